"""One member of the rebalance benchmarks, a process: logs every delivery to a file.

    python -m benchmarks.rebalance_member CLIENT BOOTSTRAP GROUP TOPIC LOG
        [wait] [stay] [drain] [K=V…]

Lines of the log: wall-clock nanoseconds, then ``r PARTITION OFFSET PRODUCED`` for a record, with
the milliseconds of its timestamp, ``+ LIST`` and ``- LIST`` for callbacks, ``g GENERATION`` before
each callback's line and once a second. SIGTERM closes the consumer. With ``wait``, the consumer is
made when a line comes on standard input: an interpreter that starts keeps a core busy, which is not
the rebalance's cost, and so does one that ends: with ``stay`` the process does, once the consumer
is closed, when standard input does. The log is there once the member can be told so. With ``drain``
it hands over before it closes. The rest is configuration. Garbage among the imports is collected
first, as a service does that minds its pauses (docs/LEAVING.md): else it is at the first burst of
records, a dead member's, and every thread stands still for as long as that takes.

CLIENT is kafka_coop, or librdkafka's by confluent-kafka: a strategy's name, or ``consumer``, the
protocol of KIP-848.

``RebalanceMember.java`` is the same with Java's consumer.
"""

from __future__ import annotations

import gc
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka

from kafka_coop.consumer import CoopConsumer
from kafka_coop.fetching.group_metadata import decode_group_metadata
from kafka_coop.shutdown import Shutdown


def make(client: str, bootstrap: str, group: str, more: dict[str, str]) -> Any:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "latest",
        **more,
    }
    if client == "consumer":  # the broker says how long a session is
        return confluent_kafka.Consumer({**config, "group.protocol": client})
    config = {"session.timeout.ms": "6000", **config}
    if client == "kafka_coop":
        return CoopConsumer(config)
    return confluent_kafka.Consumer({**config, "partition.assignment.strategy": client})


class Log:
    """A line a write: SIGKILL loses none."""

    def __init__(self, path: str) -> None:
        self._out = open(path, "w", buffering=1)  # noqa: SIM115, PTH123  # the process's own

    def __call__(self, kind: str, rest: str) -> None:
        self._out.write(f"{time.time_ns()} {kind} {rest}\n")

    def told(self, kind: str, consumer: Any, partitions: list[Any]) -> None:
        self.generation(consumer)
        self(kind, ",".join(str(p.partition) for p in partitions))

    def generation(self, consumer: Any) -> None:
        metadata = consumer.consumer_group_metadata()
        generation = -1 if metadata is None else decode_group_metadata(metadata).generation
        if generation >= 0:
            self("g", str(generation))


def told_to_go(stopped: threading.Event) -> bool:
    """Waits for a line; False: none will come, or the member is to end."""
    while not stopped.is_set():  # a signal's handler runs between two waits
        if select.select([sys.stdin], [], [], 0.01)[0]:
            return bool(sys.stdin.readline())
    return False


def deliver(consumer: Any, log: Log, at_end: Callable[[], bool]) -> None:
    """Polls, and logs what comes."""
    due = time.monotonic()
    while not at_end():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            _, produced = message.timestamp()
            log("r", f"{message.partition()} {message.offset()} {produced}")
        if time.monotonic() >= due:
            log.generation(consumer)
            due = time.monotonic() + 1.0


def main() -> None:
    client, bootstrap, group, topic, path, *options = sys.argv[1:]
    more = dict(option.split("=", 1) for option in options if "=" in option)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    gc.collect()
    log = Log(path)
    by_hand = client == "cooperative-sticky"

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        log.told("+", consumer, partitions)
        if by_hand:
            consumer.incremental_assign(partitions)

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        log.told("-", consumer, partitions)
        if by_hand:
            consumer.incremental_unassign(partitions)

    if "wait" in options and not told_to_go(stopped):
        return
    consumer = make(client, bootstrap, group, more)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    if "drain" in options:
        signal.signal(signal.SIGTERM, lambda *_: consumer.drain())
        deliver(consumer, log, lambda: consumer.drained)
    else:
        # As a service has it. A second signal is the group's, which ends: there is nothing to do.
        with Shutdown((signal.SIGTERM,)) as shutdown:
            deliver(consumer, log, lambda: bool(shutdown) or stopped.is_set())
    consumer.close()
    if "stay" in options:
        sys.stdin.read()


if __name__ == "__main__":
    main()
