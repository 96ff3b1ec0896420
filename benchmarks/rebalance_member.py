"""One member of the rebalance benchmark, a process: logs every delivery to a file.

    python -m benchmarks.rebalance_member CLIENT BOOTSTRAP GROUP TOPIC LOG

Lines of the log: wall-clock nanoseconds, then ``r PARTITION OFFSET`` for a record, ``+ LIST`` and
``- LIST`` for callbacks. SIGTERM closes the consumer.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any


def make(client: str, bootstrap: str, group: str) -> Any:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "latest",
        "session.timeout.ms": 6000,
    }
    if client == "kafka_coop":
        from prometheus_client import CollectorRegistry

        from kafka_coop import CoopConsumer

        return CoopConsumer(config, registry=CollectorRegistry())
    from confluent_kafka import Consumer

    return Consumer({**config, "partition.assignment.strategy": client})


def main() -> None:
    client, bootstrap, group, topic, log = sys.argv[1:]
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    out = open(log, "w", buffering=1)  # noqa: SIM115, PTH123  # a line a write: SIGKILL loses none

    def note(kind: str, rest: str) -> None:
        out.write(f"{time.time_ns()} {kind} {rest}\n")

    def listed(partitions: list[Any]) -> str:
        return ",".join(str(p.partition) for p in partitions)

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        note("+", listed(partitions))
        if client == "cooperative-sticky":
            consumer.incremental_assign(partitions)
        out.flush()

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        note("-", listed(partitions))
        if client == "cooperative-sticky":
            consumer.incremental_unassign(partitions)
        out.flush()

    consumer = make(client, bootstrap, group)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    flushed = time.monotonic()
    while running:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            note("r", f"{message.partition()} {message.offset()}")
        if time.monotonic() - flushed > 0.5:
            out.flush()
            flushed = time.monotonic()
    note("x", "closing")
    consumer.close()
    note("x", "closed")
    out.close()


if __name__ == "__main__":
    main()
