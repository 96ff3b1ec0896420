"""Random schedules of starts, stops and kills, and a checker that knows every record.

    python tests/spark/spark_schedules.py --schedules 100 --seed 1

Three queries with checkpoints of their own share a group while records are produced. Every one is
started, stopped and killed at random calls of the source's life cycle, and started again. In the
end all records are in the sinks; a record is there twice only if it was in a sink while the group
did not know that yet, and the process died then.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Producer
from spark_stand_in import Checkpoint, Query, Record, random_death

from kafka_coop.testing.local import LocalKafka

PARTITIONS = 4
PATIENCE = 90.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a schedule came to."""

    produced: int
    missing: list[Record]
    twice: list[Record]
    wrong: list[Record]
    """Twice, although the group knew of the first time, or nobody died."""
    deaths: int
    failures: list[str]


def run_schedule(servers: str, topic: str, seed: int, *, steps: int = 6) -> Outcome:
    """Plays one schedule; the topic exists, is empty, and has `PARTITIONS` partitions."""
    rng = random.Random(seed)
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": f"group-{topic}",
        "kafka.session.timeout.ms": "3000",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rng.choice([7, 20, 100])),
        "staticMembership": "false",
        "assignmentTimeout": "60s",
    }
    checkpoints = [Checkpoint() for _ in range(3)]
    running: list[Query | None] = [None, None, None]
    producer = Producer({"bootstrap.servers": servers})
    produced: set[Record] = set()
    deaths, failures = 0, []

    def bury(n: int) -> None:
        nonlocal deaths
        query = running[n]
        if query is None:
            return
        running[n] = None
        query.join()
        deaths += 1
        if query.failure is not None:
            failures.append(query.failure)

    for _ in range(steps):
        _produce(producer, topic, rng, produced)
        n = rng.randrange(3)
        query = running[n]
        if query is None:
            running[n] = Query(options, checkpoints[n], dies_at=random_death(rng))
        elif rng.random() < 0.5:
            query.stop()
            bury(n)
        time.sleep(rng.random() * 1.5)  # schedules differ in time too; nothing depends on it
        for m, other in enumerate(running):
            if other is not None and not other.is_running:
                bury(m)
    for n, query in enumerate(running):
        if query is not None:
            query.stop()
            bury(n)
    # Each checkpoint once more, for a logged batch must not stay unread; then until all is there.
    finals = [Query(options, checkpoint, dies_at=None) for checkpoint in checkpoints]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(query.is_running for query in finals):
        if produced <= {record for checkpoint in checkpoints for record in checkpoint.sink}:
            break
        time.sleep(0.2)
    for query in finals:
        query.stop()
        if query.failure is not None:
            failures.append(query.failure)
    irreducible = {record for checkpoint in checkpoints for record in checkpoint.exposed}
    counted = Counter(record for checkpoint in checkpoints for record in checkpoint.sink)
    twice = sorted(record for record, count in counted.items() if count > 1)
    return Outcome(
        produced=len(produced),
        missing=sorted(produced - counted.keys()),
        twice=twice,
        wrong=[record for record in twice if record not in irreducible],
        deaths=deaths,
        failures=failures,
    )


def _produce(producer: Producer, topic: str, rng: random.Random, produced: set[Record]) -> None:
    def delivered(error: object, message: object) -> None:
        assert error is None, error
        produced.add((message.topic(), message.partition(), message.offset()))  # type: ignore[attr-defined]  # a Message

    for n in range(rng.randint(20, 120)):
        producer.produce(topic, str(n), partition=rng.randrange(PARTITIONS), on_delivery=delivered)
    producer.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    bad = produced = twice = deaths = 0
    with LocalKafka() as kafka:
        for seed in range(arguments.seed, arguments.seed + arguments.schedules):
            topic = f"schedule-{seed}"
            kafka.create_topic(topic, partitions=PARTITIONS)
            outcome = run_schedule(kafka.bootstrap_servers, topic, seed)
            produced += outcome.produced
            twice += len(outcome.twice)
            deaths += outcome.deaths
            if outcome.missing or outcome.wrong or outcome.failures:
                bad += 1
                print(f"seed {seed}: {outcome}", flush=True)
    print(
        f"{arguments.schedules} schedules, {produced} records, {deaths} ends: {bad} bad; "
        f"{twice} records twice, all of them irreducible"
        if not bad
        else f"{bad} of {arguments.schedules} schedules are bad"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
