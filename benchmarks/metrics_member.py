"""One side of the benchmark of metrics, a process: reads the log when told.

    python -m benchmarks.metrics_member with|without BOOTSTRAP GROUP BATCH

First it prints the port of its metrics (0: it has none). For each line of its input, a number of
records, it reads so many and prints the CPU seconds of the calling thread and of the process, both
since it began. The log's end is followed by its beginning.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from unittest import mock

import confluent_kafka
from prometheus_client import CollectorRegistry

from benchmarks.consume import PARTITIONS, TOPIC
from kafka_coop import CoopConsumer
from kafka_coop.metrics import serve

IN_THE_LOG = 1_000_000


class NoPolls:
    """In place of a `PollClock`."""

    last_seen: Any = None

    def entered(self, now: float) -> None:
        pass

    def left(self, now: float) -> None:
        pass


class NoStatistics:
    """In place of `LibrdkafkaStatistics`."""

    def listening(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return dict(config)


class NoMetrics:
    """In place of `MemberMetrics`: whatever is to be observed is not."""

    def __init__(self, **_: Any) -> None:
        self.polls = NoPolls()
        self.librdkafka = NoStatistics()
        self.registry = CollectorRegistry()

    def nothing(self, *_: Any, **__: Any) -> None:
        pass

    heartbeat = heartbeat_failed = joined = synced = committed = commit_failed = nothing
    callback = rebalance = assignment = close = nothing


class Member:
    """Reads the log round and round.

    Args:
        batch: How many records a call of consume() asks for.
    """

    def __init__(self, bootstrap: str, group: str, batch: int, more: Mapping[str, Any]) -> None:
        self.consumer = CoopConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **more,
            },
            registry=CollectorRegistry(),
        )
        self._batch = batch
        self.consumer.subscribe([TOPIC])
        while len(self.consumer.assignment()) < PARTITIONS:
            self.consumer.consume(0, 0.1)
        self._left = IN_THE_LOG

    def read(self, records: int) -> None:
        while records > 0:
            if not self._left:
                self._rewind()
            taken = len(self.consumer.consume(min(self._batch, records, self._left), 1))
            self._left -= taken
            records -= taken

    def _rewind(self) -> None:
        for partition in range(PARTITIONS):
            self.consumer.seek(confluent_kafka.TopicPartition(TOPIC, partition, 0))
        self._left = IN_THE_LOG


def main() -> None:
    side, bootstrap, group, batch = sys.argv[1:]
    with ExitStack() as stack:
        if side == "with":
            member = Member(bootstrap, group, int(batch), {"statistics.interval.ms": 1000})
            port = stack.enter_context(serve(stack.enter_context(member.consumer), 0)).port
        else:
            with mock.patch("kafka_coop.consumer.MemberMetrics", NoMetrics):
                member = Member(bootstrap, group, int(batch), {})
            stack.enter_context(member.consumer)
            port = 0
        print(port, flush=True)
        for line in sys.stdin:
            member.read(int(line))
            print(time.thread_time(), time.process_time(), flush=True)


if __name__ == "__main__":
    main()
