"""One member of the rebalance benchmark, a process: logs every delivery to a file.

    python -m benchmarks.rebalance_member CLIENT BOOTSTRAP GROUP TOPIC LOG [wait] [drain] [K=V…]

Lines of the log: wall-clock nanoseconds, then ``r PARTITION OFFSET`` for a record, ``+ LIST`` and
``- LIST`` for callbacks. SIGTERM closes the consumer. With ``wait``, the consumer is made when
SIGUSR1 comes: an interpreter that starts keeps a core busy, which is not the rebalance's cost. With
``drain`` it hands over before it closes. The rest is configuration.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

import confluent_kafka

from kafka_coop.consumer import CoopConsumer


def make(client: str, bootstrap: str, group: str, more: dict[str, str]) -> Any:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "latest",
        "session.timeout.ms": 6000,
        **more,
    }
    if client == "kafka_coop":
        return CoopConsumer(config)
    return confluent_kafka.Consumer({**config, "partition.assignment.strategy": client})


class Log:
    """A line a write: SIGKILL loses none."""

    def __init__(self, path: str) -> None:
        self._out = open(path, "w", buffering=1)  # noqa: SIM115, PTH123  # the process's own

    def __call__(self, kind: str, rest: str) -> None:
        self._out.write(f"{time.time_ns()} {kind} {rest}\n")

    def partitions(self, kind: str, partitions: list[Any]) -> None:
        self(kind, ",".join(str(p.partition) for p in partitions))


def main() -> None:
    client, bootstrap, group, topic, path, *options = sys.argv[1:]
    more = dict(option.split("=", 1) for option in options if "=" in option)
    stopped, go = threading.Event(), threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: go.set())
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    log = Log(path)
    by_hand = client == "cooperative-sticky"

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        log.partitions("+", partitions)
        if by_hand:
            consumer.incremental_assign(partitions)

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        log.partitions("-", partitions)
        if by_hand:
            consumer.incremental_unassign(partitions)

    while "wait" in options and not go.is_set() and not stopped.is_set():
        go.wait(0.01)  # a signal's handler runs between two waits
    consumer = make(client, bootstrap, group, more)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    drains = "drain" in options
    if drains:
        signal.signal(signal.SIGTERM, lambda *_: consumer.drain())
    while not (consumer.drained if drains else stopped.is_set()):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            log("r", f"{message.partition()} {message.offset()}")
    consumer.close()


if __name__ == "__main__":
    main()
