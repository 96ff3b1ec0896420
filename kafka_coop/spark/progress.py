"""What a query's progress tells of this source. Pure.

Spark keeps the offsets of each source as JSON text: ``endOffset`` is the end of the last batch,
``latestOffset`` what `kafka_coop.spark.session.Session.report` said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kafka_coop.json_objects import json_object
from kafka_coop.types import TopicPartition

_JOIN = "symmetricHashJoin"
_REBUILT = frozenset({_JOIN, "dedupe", "dedupeWithinWatermark"})
"""Operators that come to the same state when records are read again: they keep the records, or
their keys. All others may count what they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """One source of a query.

    Attributes:
        id: The checkpoint's name for itself.
        group: The consumer group.
        cluster: The id of the cluster that it is in; empty: not known.
        member: The member's id; empty where it has none.
        topics: Those that it reads.
        lag: Records between the last batch's end and the log's, of each partition held.
        rebalances: How many this run has seen.
        last_rebalance: How long the last one took, from the wish to join to the last callback.
        last_handover: How long the last hand-over took.
    """

    id: str
    group: str
    cluster: str = ""
    member: str = ""
    topics: frozenset[str] = frozenset()
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    rebalances: int = 0
    last_rebalance: timedelta = timedelta(0)
    last_handover: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """A batch of a query, as far as it concerns us.

    Attributes:
        id: The query's.
        name: As its user named it; else its id.
        state: Spark's names of its operators that keep state.
        sources: Those that are ours.
    """

    id: str
    name: str
    state: frozenset[str]
    sources: Sequence[SourceProgress]

    @property
    def aggregates(self) -> bool:
        """Whether it keeps a state that records which are read again would change."""
        return bool(self.state - _REBUILT)

    @property
    def joins(self) -> bool:
        """Whether it joins two streams."""
        return _JOIN in self.state


def from_event(progress: Any) -> QueryProgress:
    """From PySpark's `StreamingQueryProgress`."""
    return QueryProgress(
        id=str(progress.id),
        name=progress.name or str(progress.id),
        state=frozenset(one.operatorName for one in progress.stateOperators),
        sources=own_sources(progress.sources),
    )


def from_json(text: str) -> QueryProgress:
    """From Spark's own text of it (``StreamingQueryProgress.json``)."""
    given = json.loads(text)
    sources = [
        SimpleNamespace(endOffset=one.get("endOffset"), latestOffset=one.get("latestOffset"))
        for one in given.get("sources", ())
    ]
    return from_event(
        SimpleNamespace(
            id=given["id"],
            name=given.get("name"),
            stateOperators=[
                SimpleNamespace(operatorName=one.get("operatorName", ""))
                for one in given.get("stateOperators", ())
            ],
            sources=sources,
        )
    )


def own_sources(sources: Iterable[Any]) -> list[SourceProgress]:
    """Those of a query's sources that are ours; others are left out.

    Args:
        sources: ``StreamingQueryProgress.sources``.
    """
    found = (_source(_json(one.endOffset), _json(one.latestOffset)) for one in sources)
    return [one for one in found if one is not None]


def in_competition(sources: Sequence[SourceProgress]) -> list[SourceProgress]:
    """Those sources of one query that are members of one group and read the same topics.

    The group divides the partitions among them: what one side of a join or a union reads, the other
    does not. Spark makes two sources of one frame that is joined with itself where both sides have
    the same columns, and one where each side renames its own.
    """
    members = [source for source in sources if source.member]
    return [
        one
        for one in members
        if any(
            other is not one
            and (other.cluster, other.group) == (one.cluster, one.group)
            and other.topics & one.topics
            for other in members
        )
    ]


def _json(text: Any) -> dict[str, Any]:
    given = json_object(text) if isinstance(text, str) else text
    return given if isinstance(given, dict) else {}


def _source(end: Mapping[str, Any], latest: Mapping[str, Any]) -> SourceProgress | None:
    identity = end if _is_own(end) else latest
    if not _is_own(identity):
        return None
    read = {key: span[1] for key, span in end.get("tps", {}).items()} if _is_own(end) else {}
    ends = latest.get("tps", {}) if _is_own(latest) else {}
    lag = {
        _partition(key): max(0, there - read[key])
        for key, there in ends.items()
        if there is not None and key in read
    }
    return SourceProgress(
        id=identity["id"],
        group=identity["group"],
        cluster=latest.get("cluster", ""),
        member=latest.get("member", ""),
        topics=frozenset((latest if _is_own(latest) else end).get("topics", ())),
        lag=lag,
        rebalances=latest.get("rebalances", 0),
        last_rebalance=timedelta(milliseconds=latest.get("lastRebalanceMs", 0)),
        last_handover=timedelta(milliseconds=latest.get("lastHandoverMs", 0)),
    )


def _is_own(given: Mapping[str, Any]) -> bool:
    return {"id", "group", "tps"} <= given.keys()


def _partition(key: str) -> TopicPartition:
    topic, _, index = key.rpartition(":")
    return TopicPartition(topic, int(index))
