"""A plain consumer service with metrics and health.

    BOOTSTRAP_SERVERS=localhost:9092 python examples/observed_service.py

Serves /metrics, /health and /live on METRICS_PORT, logs one JSON object a line, and leaves the
group in order on SIGTERM. WORK_SECONDS is what a record takes, FLUSH_SECONDS what giving
partitions up takes: both are for trying out what slow applications look like.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from typing import Any

from kafka_coop import CoopConsumer, Shutdown
from kafka_coop.metrics import serve
from kafka_coop.metrics.json_lines import JsonFormatter


def main() -> None:
    """Runs until SIGTERM or Ctrl-C."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    topic = os.environ.get("TOPIC", "orders")
    work = float(os.environ.get("WORK_SECONDS", "0.005"))
    flushing = float(os.environ.get("FLUSH_SECONDS", "0"))
    consumer = CoopConsumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ.get("GROUP", "orders-service"),
            "client.id": os.environ.get("CLIENT_ID", socket.gethostname()),
            "session.timeout.ms": int(os.environ.get("SESSION_TIMEOUT_MS", "10000")),
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 1000,
        }
    )

    def flush(_consumer: CoopConsumer, _partitions: list[Any]) -> None:
        time.sleep(flushing)  # write out what belongs to these partitions

    consumer.subscribe([topic], on_revoke=flush)
    with serve(consumer, int(os.environ.get("METRICS_PORT", "9100"))) as server:
        logging.getLogger("service").info("metrics and health on port %d", server.port)
        with Shutdown() as shutdown, consumer:
            for message in shutdown.messages(consumer):
                if message.error() is None:
                    time.sleep(work)


if __name__ == "__main__":
    main()
