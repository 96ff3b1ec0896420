"""How fast records come out: confluent_kafka.Consumer, our fetcher, and CoopConsumer.

    python -m benchmarks.consume [--records 1000000] [--rounds 3] [--group]

Records of 112 bytes in 4 partitions of the embedded cluster, lz4 (its log keeps 5 MiB a partition
at most). All contestants take turns in one process, `rounds` times; figures are medians. Each
reads everything, one record a call (poll) and 10,000 a call (consume), under

    equal         fetch.queue.backoff.ms=10, what ours sets unless told otherwise
    own defaults  each with the configuration its user would write

Two figures each: records a second, in which librdkafka's threads and the broker's, in the same
process on the same cores, have their part; and the CPU time of the calling thread per record,
which is what this package adds to or takes from. Ratios are to confluent_kafka.Consumer in the
same column. `--group` has the drop-ins subscribe instead of being assigned by hand.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from kafka_coop import CoopConsumer
from kafka_coop.config import parse
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import TopicPartition

TOPIC = "records"
PARTITIONS = 4
RECORD_BYTES = 112
BATCH = 10_000
TIMEOUT = 0.2
WARM_UP = 50_000
"""Records read before the clock starts: connecting and the first fetches are not the subject."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What is measured of a contestant."""

    one: Callable[[float], Any]
    many: Callable[[int, float], list[Any]]
    close: Callable[[], None]


def open_drop_in(make: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Reader:
    consumer = make({"enable.auto.commit": False, "enable.auto.offset.store": False, **config})
    if config["group.id"].startswith("joined"):
        consumer.subscribe([TOPIC])
    else:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    return Reader(one=consumer.poll, many=consumer.consume, close=consumer.close)


def open_fetcher(config: dict[str, Any]) -> Reader:
    fetcher = Fetcher(parse(config).fetcher)
    start = OffsetAndMetadata(offset=0)
    fetcher.add({TopicPartition(TOPIC, p): start for p in range(PARTITIONS)})
    return Reader(one=fetcher.next, many=fetcher.take, close=fetcher.close)


CONTESTANTS: Mapping[str, Callable[[dict[str, Any]], Reader]] = {
    "confluent_kafka.Consumer": functools.partial(open_drop_in, confluent_kafka.Consumer),
    "Fetcher": open_fetcher,
    "CoopConsumer": functools.partial(open_drop_in, CoopConsumer),
}

SETTINGS: Mapping[str, dict[str, Any]] = {
    "equal": {"fetch.queue.backoff.ms": 10},
    "own defaults": {},
}


def read_one_by_one(reader: Reader, count: int) -> int:
    one, left = reader.one, count
    while left > 0:
        if one(TIMEOUT) is not None:
            left -= 1
    return count


def read_in_batches(reader: Reader, count: int) -> int:
    many, left = reader.many, count
    while left > 0:
        left -= len(many(BATCH, TIMEOUT))
    return count - left


WAYS: Mapping[str, Callable[[Reader, int], int]] = {
    "poll": read_one_by_one,
    "consume": read_in_batches,
}


@dataclass(frozen=True, kw_only=True)
class Figures:
    per_second: float
    cpu_microseconds: float
    """Of the calling thread, per record."""


def measure(reader: Reader, read: Callable[[Reader, int], int], records: int) -> Figures:
    try:
        warm_up = read(reader, min(WARM_UP, records // 10))
        began, cpu_began = time.perf_counter(), time.thread_time()
        count = read(reader, records - warm_up)
        took, cpu_took = time.perf_counter() - began, time.thread_time() - cpu_began
    finally:
        reader.close()
    return Figures(per_second=count / took, cpu_microseconds=cpu_took / count * 1e6)


def produce(kafka: EmbeddedKafka, records: int) -> None:
    kafka.create_topic(TOPIC, partitions=PARTITIONS)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.num.messages": 10_000,
        }
    )
    value = bytes(RECORD_BYTES)
    for n in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    for partition in range(PARTITIONS):
        kept_from, _ = low_and_high(kafka, partition)
        if kept_from:
            raise SystemExit("the embedded cluster dropped records: ask for fewer --records")


def low_and_high(kafka: EmbeddedKafka, partition: int) -> tuple[int, int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looking"}
    )
    try:
        return consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, partition), 10)
    finally:
        consumer.close()


def run(records: int, rounds: int, *, in_group: bool) -> dict[tuple[str, str, str], list[Figures]]:
    figures: dict[tuple[str, str, str], list[Figures]] = {}
    with EmbeddedKafka() as kafka:
        produce(kafka, records)
        for turn in range(rounds):
            for setting, extra in SETTINGS.items():
                for way, read in WAYS.items():
                    for name, opened in CONTESTANTS.items():
                        key = (setting, way, name)
                        config = {
                            "bootstrap.servers": kafka.bootstrap_servers,
                            "group.id": f"{'joined' if in_group else 'by-hand'} {key} {turn}",
                            "auto.offset.reset": "earliest",
                            "log_level": 0,
                            **extra,
                        }
                        found = measure(opened(config), read, records)
                        figures.setdefault(key, []).append(found)
    return figures


def report(figures: Mapping[tuple[str, str, str], list[Figures]]) -> None:
    reference = next(iter(CONTESTANTS))
    print("| settings | call | contestant | records/s | ratio | CPU µs/record | ratio |")
    print("|---|---|---|---|---|---|---|")
    for (setting, way, name), found in figures.items():
        peer = figures[setting, way, reference]
        speed, peer_speed = (statistics.median(f.per_second for f in fs) for fs in (found, peer))
        cpu, peer_cpu = (statistics.median(f.cpu_microseconds for f in fs) for fs in (found, peer))
        print(
            f"| {setting} | {way} | {name} | {speed:,.0f} | {speed / peer_speed:.2f} "
            f"| {cpu:.2f} | {cpu / peer_cpu:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Records a second, ours and confluent's.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--group", action="store_true", help="subscribe instead of assigning")
    arguments = parser.parse_args()
    print(
        f"confluent-kafka {confluent_kafka.version()}, "
        f"librdkafka {confluent_kafka.libversion()[0]}\n"
        f"{arguments.records:,} records of {RECORD_BYTES} bytes, {PARTITIONS} partitions, "
        f"medians of {arguments.rounds}\n"
    )
    report(run(arguments.records, arguments.rounds, in_group=arguments.group))


if __name__ == "__main__":
    main()
