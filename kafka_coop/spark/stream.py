"""What Spark's reader process calls: `StreamReader`."""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.reading import RangeTask, read_task
from kafka_coop.spark.session import Session

_NO_LIMIT = 2**63 - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming source. Spark also pickles copies of it to tasks, for `read` alone.

    Args:
        options: The source's.
        near: Whether the tasks run on the driver's host.
    """

    def __init__(self, options: StreamOptions, *, near: bool = False) -> None:
        self._options = options
        self._near = near
        self._session: Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_session": None}

    def getDefaultReadLimit(self) -> ReadLimit:
        """For Spark's plan; the limits are applied by `latestOffset`."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadMaxRows(_NO_LIMIT)  # not ReadAllAvailable: that is how Trigger.Once is known

    def initialOffset(self) -> dict[str, Any]:
        """Nothing: where to begin is the group's matter, and Spark may ask a second process."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        """What is in the logs now is to be read, and no more."""
        self._in_session().aim_at_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` is durable (docs/SPARK.md, hand-over)."""
        once = isinstance(limit, ReadAllAvailable)
        return dict(self._in_session().latest(start, limited=not once))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return list(self._in_session().tasks(start, end))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress."""
        return None if self._session is None else self._session.report()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task's ranges, on an executor."""
        assert isinstance(partition, RangeTask), "partitions() makes no others"
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it comes when the next batch is logged; `latestOffset` has committed before."""

    def stop(self) -> None:
        """Leaves the group."""
        if self._session is not None:
            self._session.close()
            atexit.unregister(self._session.close)

    def _in_session(self) -> Session:
        if self._session is None:
            _stop_on_sigterm()
            self._session = Session(self._options, near=self._near)
            # ``query.stop()`` closes the connection, at which `stop` is called, and sends SIGTERM,
            # which may come when that has just begun, and ends it: the group would wait for the
            # session's end.
            atexit.register(self._session.close)
        return self._session


def _stop_on_sigterm() -> None:
    """``query.stop()`` ends this process with SIGTERM, and `stop` would not run.

    Once: a second SIGTERM follows soon, and must not cut short what the first began.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(0)

    with contextlib.suppress(ValueError):  # an embedded interpreter
        signal.signal(signal.SIGTERM, end)
