"""Our source and Spark's built-in Kafka source, in one run, on one real Kafka.

    python -m benchmarks.spark [--records 2000000] [--partitions 4] [--only all limited]

The built-in source's jars are to be had as a pair at 4.0.0 (connector and token provider): it runs
in a PySpark 4.0.0 of its own, which is installed into a folder beside the jars' cache. Figures are
rows a second, milliseconds and cores; only their ratios travel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafka_coop.testing import jars
from kafka_coop.testing.local import LocalKafka

_VERSION = "4.0.0"
_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{_VERSION}",
)
_WHAT = ("all", "limited", "latency", "idle")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=_WHAT, default=_WHAT)
    parser.add_argument("--builtin-python", type=Path, help="a Python that has PySpark 4.0.0")
    parser.add_argument("--without-builtin", action="store_true")
    arguments = parser.parse_args()
    python = None if arguments.without_builtin else arguments.builtin_python or _builtin_python()
    folder = None if python is None else _connector_jars()
    with LocalKafka() as kafka:
        kafka.create_topic("bench", partitions=arguments.partitions)
        kafka.create_topic("quiet", partitions=arguments.partitions)
        _fill(kafka.bootstrap_servers, arguments.records, arguments.partitions)
        for what in arguments.only:
            topic = "bench" if what in ("all", "limited") else "quiet"
            ours = _measure(sys.executable, "kafka_coop", kafka.bootstrap_servers, topic, what)
            print(json.dumps(ours), flush=True)
            if python is not None:
                theirs = _measure(
                    str(python), "kafka", kafka.bootstrap_servers, topic, what, str(folder)
                )
                print(json.dumps(theirs), flush=True)
                print(f"{what}: {_ratio(ours, theirs)}", flush=True)
    return 0


def _measure(python: str, *arguments: str) -> dict[str, Any]:
    script = Path(__file__).with_name("measure.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [python, str(script), *arguments],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with status {done.returncode}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    keys = [k for k, v in ours.items() if isinstance(v, int | float) and k in theirs]
    return ", ".join(f"{k} {ours[k] / theirs[k]:.2f} times" for k in keys if theirs[k])


def _fill(servers: str, records: int, partitions: int) -> None:
    """Records of 112 bytes: a key of 12 and a value of 100."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    value = b"v" * 100
    for n in range(records):
        while True:
            try:
                producer.produce("bench", value, b"%012d" % n, partition=n % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if not n % 10_000:
            producer.poll(0)
    producer.flush()


def _connector_jars() -> Path:
    folder = jars._cache() / f"spark-sql-kafka-{_VERSION}"  # noqa: SLF001  # the same cache
    if not folder.is_dir():
        fetching = folder.with_suffix(".fetching")
        fetching.mkdir(parents=True, exist_ok=True)
        jars._fetch(_CONNECTOR, fetching)  # noqa: SLF001  # the same way
        fetching.rename(folder)
    return folder


def _builtin_python() -> Path:
    folder = jars._cache() / f"pyspark-{_VERSION}"  # noqa: SLF001  # the same cache
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        packages = [f"pyspark=={_VERSION}", "confluent-kafka"]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
