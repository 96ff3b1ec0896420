"""A streaming offset that describes itself: what the batch that ends here reads, whole.

Spark logs the offset before the batch runs and hands it back after a crash, perhaps to a process
that knows nothing else. docs/SPARK.md says what each field is for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafka_coop.json_objects import json_object
from kafka_coop.spark.errors import CheckpointError, name_of
from kafka_coop.types import TopicPartition

_VERSION = 1


class Range(NamedTuple):
    """Offsets of one partition: from ``start`` up to ``stop``, which is not included."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many offsets; of records there may be fewer (compaction, transactions)."""
        return self.stop - self.start


class TakenOver(NamedTuple):
    """How partitions came to the checkpoint that others had read before; both may be so.

    From the batch on that is logged with them, the checkpoint's word counts for them, and no
    later run sees that they ever moved: so it is logged, too.

    Attributes:
        bare: Without what had been read: state that the query keeps lacks it.
        replayed: From a horizon on: what the query counts may be counted twice, or in part.
    """

    bare: bool = False
    replayed: bool = False


class Known(NamedTuple):
    """How far a checkpoint is in a partition.

    Attributes:
        position: All before it is durable.
        runs: It counts as long as one of these is the claim that is committed, or the one that
            that claim follows (`Claim.after`).
    """

    position: int
    runs: frozenset[str]

    def counted_by(self, run: str | None, after: str | None) -> str | None:
        """Which of them is committed, if nobody else has held the partition since.

        Args:
            run: The claim that is committed for it.
            after: The one that it follows.
        """
        return next((one for one in (run, after) if one in self.runs), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """The end of a micro-batch.

    Attributes:
        group: The group whose member reads.
        id: The checkpoint's name for itself, made once.
        run: The claim under which the batch reads.
        cluster: Where the group is; empty: it was not known.
        topics: How many partitions each topic had when the checkpoint was begun.
        ids: Which topics these are, as far as brokers tell: one that is made anew has another id.
        ranges: Every partition held when the batch was planned; empty ranges say only where
            a partition stands.
        known: Partitions that were not held then, or not claimed: how far the checkpoint is there.
            Who has them may go without having claimed them, and then nobody else has read on.
        taken: How partitions came that others had read, with this batch or an earlier one.
    """

    group: str
    id: str
    run: str
    cluster: str = ""
    topics: Mapping[str, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[TopicPartition, Range] = field(default_factory=dict)
    known: Mapping[TopicPartition, Known] = field(default_factory=dict)
    taken: TakenOver = field(default_factory=TakenOver)

    @property
    def known_topics(self) -> frozenset[str]:
        """Those that there were when the checkpoint was begun, and `read_topics`."""
        return frozenset(self.topics) | self.read_topics

    @property
    def read_topics(self) -> frozenset[str]:
        """Those of which something is held, or was."""
        return frozenset(of.topic for of in (*self.ranges, *self.known))

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it. The same offset gives the same text: keys are sorted."""
        taken = [how for how, is_so in self.taken._asdict().items() if is_so]
        known = {name_of(of): [at, *sorted(runs)] for of, (at, runs) in sorted(self.known.items())}
        return {
            "v": _VERSION,
            "group": self.group,
            "cluster": self.cluster,
            "id": self.id,
            "run": self.run,
            "topics": dict(sorted(self.topics.items())),
            "ids": dict(sorted(self.ids.items())),
            "tps": {name_of(of): list(span) for of, span in sorted(self.ranges.items())},
            **({"known": known} if known else {}),
            **({"taken": taken} if taken else {}),
        }


def taken_of(given: Mapping[str, Any]) -> TakenOver:
    """`SourceOffset.taken` of an offset of ours, the rest of which need not be read."""
    return TakenOver(*(how in given.get("taken", ()) for how in TakenOver._fields))


def without(offset: SourceOffset, topics: Collection[str]) -> SourceOffset:
    """The same offset as if it had known nothing of these topics."""
    if not topics:
        return offset
    left = {topic: count for topic, count in offset.topics.items() if topic not in topics}
    return replace(without_positions(offset, topics), topics=left)


def without_positions(offset: SourceOffset, topics: Collection[str]) -> SourceOffset:
    """The same offset as if it had read nothing of these topics. That they were there it knows."""
    return replace(
        offset,
        ranges={of: span for of, span in offset.ranges.items() if of.topic not in topics},
        known={of: known for of, known in offset.known.items() if of.topic not in topics},
    )


def parse_offset(given: Any, *, group: str) -> SourceOffset | None:
    """Reads an offset of the checkpoint.

    Args:
        given: As `SourceOffset.to_json`; empty: nothing has been read yet. Another source's
            checkpoint may give anything: Spark's ``rate`` counts seconds.
        group: The group that this query is configured with.

    Returns:
        None where nothing has been read yet.

    Raises:
        CheckpointError: Written by another source, for another group, or by a newer version.
    """
    if given == {}:
        return None
    if not isinstance(given, dict) or not {"v", "tps"} <= given.keys():
        text = json.dumps(given)
        raise CheckpointError(
            "the checkpoint was written by Spark's own source. Set checkpointLocation to a new "
            f"folder, and for its first run startingOffsets to where that stands: {text}"
            if _is_sparks(given)
            else "the checkpoint was written by another source: its offset is "
            f"{text[:200]}. Set checkpointLocation to a new folder"
        )
    if given["v"] != _VERSION:
        raise CheckpointError(
            f"the checkpoint has offsets of version {given['v']}, this kafka_coop reads version "
            f"{_VERSION}: use the newer kafka_coop that wrote it, or a new checkpointLocation"
        )
    if given.get("group") != group:
        raise CheckpointError(
            f"the checkpoint belongs to the group {given.get('group')!r}, and option "
            f"kafka.group.id is {group!r}: set it back, or set checkpointLocation to a new folder"
        )
    try:
        return SourceOffset(
            group=group,
            id=str(given["id"]),
            run=str(given["run"]),
            cluster=str(given.get("cluster", "")),
            topics={str(t): int(n) for t, n in given["topics"].items()},
            ids={str(t): str(id_) for t, id_ in given.get("ids", {}).items()},
            ranges={_partition(key): _range(span) for key, span in given["tps"].items()},
            known={_partition(key): _known(its) for key, its in given.get("known", {}).items()},
            taken=taken_of(given),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the checkpoint's offset can't be read ({error!r}): {json.dumps(given)[:200]}. "
            "Set checkpointLocation to a new folder"
        ) from None


def _is_sparks(offset: Any) -> bool:
    """Whether it is of ``spark-sql-kafka``: what startingOffsets takes, too."""
    return isinstance(offset, dict) and all(
        isinstance(its, dict) and all(p.isdigit() and type(at) is int for p, at in its.items())
        for its in offset.values()
    )


def _partition(key: str) -> TopicPartition:
    topic, _, index = key.rpartition(":")
    if not topic:
        raise ValueError(f"{key!r} is no topic:partition")
    return TopicPartition(topic, int(index))


def _range(span: Any) -> Range:
    start, stop = (int(end) for end in span)
    if not 0 <= start <= stop:
        raise ValueError(f"{span!r} is no range of offsets")
    return Range(start, stop)


def _known(given: Any) -> Known:
    position, *runs = given
    if int(position) < 0:
        raise ValueError(f"{position!r} is no offset")
    return Known(int(position), frozenset(map(str, runs)))


class Claim(NamedTuple):
    """Who holds a partition: what a query commits beside its offsets (docs/SPARK.md).

    Attributes:
        run: Of the process that committed.
        after: Of the same checkpoint's process before it; None: it is the first.
        unread: Nobody in the group had read the partition when that was committed: the offset is
            where options said to begin.
    """

    run: str
    after: str | None = None
    unread: bool = False

    def to_metadata(self) -> str:
        """As it is committed."""
        fields: dict[str, Any] = {"kafka_coop": _VERSION, "run": self.run}
        if self.after is not None:
            fields["after"] = self.after
        if self.unread:
            fields["unread"] = True
        return json.dumps(fields, separators=(",", ":"))


def claim_of(metadata: str | None) -> Claim | None:
    """The claim in a committed offset's metadata, which is anybody's, and may have none."""
    fields = json_object(metadata or "")
    if fields is None or fields.get("kafka_coop") != _VERSION:
        return None
    run, after = fields.get("run"), fields.get("after")
    if not isinstance(run, str):
        return None
    return Claim(run, after if isinstance(after, str) else None, fields.get("unread") is True)
