"""`kafka_coop.spark.drain`: the driver's side."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.progress import own_sources
from kafka_coop.spark.rendezvous import Rendezvous

_PAUSE = 0.05


def drain_query(query: Any, timeout: timedelta) -> None:
    """See `kafka_coop.spark.drain`."""
    deadline = time.monotonic() + timeout.total_seconds()
    asked = [Rendezvous(id_) for id_ in _ids(query, deadline)]
    try:
        for one in asked:
            one.ask()
        while query.isActive and not all(one.is_done() for one in asked):
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"the query {query.id} did not end its batch and begin its next trigger in "
                    f"{timeout}: it goes on. Let drain's timeout be longer than a batch and the "
                    "trigger's interval (processingTime) together, on the driver's host; or stop() "
                    "it: what is not committed is then read again"
                )
            time.sleep(_PAUSE)
        _refuse_failed(query)
        query.stop()
    finally:
        for one in asked:
            one.clear()


def _refuse_failed(query: Any) -> None:
    """One that has failed has handed nothing over. Who has stopped, or read all, has left."""
    if not query.isActive and (error := query.exception()) is not None:
        raise MembershipError(
            f"the query {query.id} failed before it was drained: what it had not committed is read "
            f"again by others ({error})"
        ) from error


def _ids(query: Any, deadline: float) -> list[str]:
    """The query's checkpoints of ours; it tells of them with its first progress."""
    while query.isActive:
        progress = query.lastProgress
        if progress is not None:
            if ids := [source.id for source in own_sources(progress.sources)]:
                return ids
            if _reads_otherwise(progress.sources):
                raise ValueError(f"the query {query.id} does not read from kafka_coop")
        if time.monotonic() >= deadline:
            raise TimeoutError(f"the query {query.id} made no progress to know it by: it goes on")
        time.sleep(_PAUSE)
    return []


def _reads_otherwise(sources: Any) -> bool:
    """Whether all sources have told their offsets, and none is ours."""
    return all(source.endOffset not in (None, "null", "{}") for source in sources)
