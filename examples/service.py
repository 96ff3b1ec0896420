"""A consumer as a service: metrics on a port, an orderly end at SIGTERM.

    python examples/service.py                        # a broker inside this process
    KAFKA=localhost:9092 python examples/service.py   # yours

At SIGTERM (or Ctrl-C) the batch at hand is finished, what was processed is committed, and the
member leaves its group, so that the others take over at once.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

from confluent_kafka import KafkaException, Message
from playground import Config, fill, playground
from prometheus_client import Counter, start_http_server

from kafka_coop import CoopConsumer, RebalanceListener, TopicPartition

log = logging.getLogger("service")
processed = Counter("service_records", "Records processed", ["topic"])


class State(RebalanceListener):
    """Where state that belongs to partitions is to be loaded and saved."""

    def on_partitions_assigned(
        self, consumer: CoopConsumer, partitions: list[TopicPartition]
    ) -> None:
        """Load it here."""
        log.info("%s got %s", consumer.memberid(), [p.partition for p in partitions])

    def on_partitions_revoked(
        self, consumer: CoopConsumer, partitions: list[TopicPartition]
    ) -> None:
        """Save it here; their offsets are committed next."""
        log.info("%s gives %s", consumer.memberid(), [p.partition for p in partitions])


def serve(
    config: Config, topics: list[str], handle: Callable[[Message], None], stopping: threading.Event
) -> None:
    """Processes records until told to stop.

    Offsets of what was processed are committed in the background; when partitions are revoked;
    and at the end, also where ``handle`` has raised: what it failed at, and what came with it, is
    read again by whoever owns the partition next. Were offsets stored by `consume`, as they are
    unless that is switched off, the whole batch would be committed, and never processed.
    """
    consumer = CoopConsumer(
        {"auto.offset.reset": "earliest", **config, "enable.auto.offset.store": False}
    )
    consumer.subscribe(topics, listener=State())
    with consumer:  # leaves the group, however the loop ends
        while not stopping.is_set():
            try:
                messages = consumer.consume(500, timeout=0.5)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                log.warning("%s; going on", error)
                continue
            for message in messages:
                if (problem := message.error()) is not None:
                    if problem.fatal():  # with group.protocol=consumer
                        raise KafkaException(problem)
                    log.warning("%s", problem)
                    continue
                handle(message)
                consumer.store_offsets(message)
                processed.labels(message.topic()).inc()


def main() -> None:
    """Serves until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    server, _ = start_http_server(0, addr="127.0.0.1")
    with playground(orders=12) as config:
        fill(config, "orders", range(12), records=100)
        log.info("metrics: http://127.0.0.1:%d/metrics", server.server_port)
        service = {**config, "group.id": "orders-service", "client.id": "orders-service-1"}
        serve(service, ["orders"], lambda _: None, stopping)
    server.shutdown()
    server.server_close()
    log.info("stopped in good order")


if __name__ == "__main__":
    main()
