"""What an idle member costs: CPU and memory, ours beside confluent_kafka's.

    python -m benchmarks.idle [--seconds 20]

Each consumer is a process of its own that polls an empty topic of 12 partitions of a real Kafka
with ``poll(1.0)``, at its own defaults.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from kafka_coop.testing import LocalKafka


def child(client: str, bootstrap: str, seconds: float) -> None:
    config = {"bootstrap.servers": bootstrap, "group.id": f"idle-{client}"}
    # Where hypothesis is installed (here, for the tests), a dependency of kio's imports it.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    if client == "kafka_coop":
        from kafka_coop import CoopConsumer as Consumer  # noqa: PLC0415  # that is what is measured
    else:
        from confluent_kafka import Consumer  # type: ignore[assignment]  # noqa: PLC0415  # the same

    consumer = Consumer(config)
    consumer.subscribe(["idle"])
    until = time.monotonic() + 8
    while time.monotonic() < until:
        consumer.poll(1.0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    began, before = time.monotonic(), used.ru_utime + used.ru_stime
    while time.monotonic() < began + seconds:
        consumer.poll(1.0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = (used.ru_utime + used.ru_stime - before) / (time.monotonic() - began)
    print(f"{cpu * 100:.2f} {used.ru_maxrss / 1024:.0f}")
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--child", nargs=2, metavar=("CLIENT", "BOOTSTRAP"))
    options = parser.parse_args()
    if options.child:
        client, bootstrap = options.child
        child(client, bootstrap, options.seconds)
        return
    print("| client | CPU, % of a core | peak memory, MB |\n|---|---|---|")
    with LocalKafka() as kafka:
        kafka.create_topic("idle", partitions=12)
        for client in ("confluent_kafka", "kafka_coop"):
            command = [sys.executable, "-m", "benchmarks.idle", "--seconds", str(options.seconds)]
            made = subprocess.run(
                [*command, "--child", client, kafka.bootstrap_servers],
                check=True,
                capture_output=True,
                text=True,
            )
            cpu, memory = made.stdout.split()
            print(f"| {client} | {cpu} | {memory} |")


if __name__ == "__main__":
    main()
