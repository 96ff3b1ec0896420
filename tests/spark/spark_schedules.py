"""Random schedules of starts, stops and kills, and a checker that knows every record.

    python tests/spark/spark_schedules.py --schedules 100 --seed 1

Three queries with checkpoints of their own share a group while records are produced. Every one is
started, stopped, drained and killed, between and in the midst of the calls of the source's life
cycle, and started again; some runs end when all is read that was there; sinks are slow, the topic
grows, and brokers restart. Each schedule draws the group's strategy, and whether members are
static. In the end all records are in the
sinks, and one is there twice only where that is irreducible: once for each query that died, or lost
its session, before it had committed that it was there (`spark_rereads`). A batch that is replayed
reads nothing else than before. A sink that knows records (`spark_flights`) has each of them once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from spark_commits import read_commits
from spark_flights import Flights
from spark_rereads import History, Record, judge
from spark_stand_in import AIM, Checkpoint, Death, Query, random_death

from kafka_coop.assignors import known_names
from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.testing.local import LocalKafka

PARTITIONS = 4
QUERIES = 3
PATIENCE = 90.0
MOMENT = 10.0
_OF_OUTAGES = (
    "_TRANSPORT",
    "Broker transport failure",
    "_TIMED_OUT",
    "BROKERS_DOWN",
    "_RESOLVE",
    "No leaders found",
    "FENCED_LEADER_EPOCH",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a schedule came to."""

    produced: int
    missing: list[Record]
    twice: list[Record]
    wrong: list[str]
    """What was read again without an excuse, and why it has none."""
    unlike: int
    """Replayed batches that read something new."""
    drained: int
    deaths: int
    failures: list[str]
    shared: list[str]
    """What is wrong in the sink that all share."""
    died: bool = True
    """Whether who was to die at some point has."""

    @property
    def sound(self) -> bool:
        """Nothing is missing, nothing is there twice without an excuse, no query failed."""
        wrong = self.missing or self.wrong or self.unlike or self.failures or self.shared
        return self.died and not wrong


def run_schedule(
    kafka: KafkaCluster,
    topic: str,
    seed: int,
    *,
    steps: int = 6,
    restart: Callable[[], None] | None = None,
    hasty: bool = False,
    flights: Flights | None = None,
) -> Outcome:
    """Plays one schedule; the topic exists, is empty, and has `PARTITIONS` partitions.

    Args:
        restart: Restarts a broker; None: nobody does.
        hasty: With a fault, see `spark_stand_in.serve`.
        flights: A sink that all queries write into, besides their own.
    """
    schedule = _Schedule(kafka, topic, random.Random(seed), restart, hasty=hasty, flights=flights)
    for _ in range(steps):
        schedule.step()
    schedule.stop_all()
    schedule.finish()
    return schedule.outcome()


def run_death(kafka: KafkaCluster, topic: str, death: Death, flights: Flights) -> Outcome:
    """One query dies there for certain, while another comes; in the end all are started again."""
    schedule = _Schedule(
        kafka,
        topic,
        random.Random(0),
        None,
        flights=flights,
        session=2000,
        strategy="cooperative-sticky",
    )
    schedule.die(death)
    schedule.finish()
    return schedule.outcome()


class _Schedule:
    def __init__(
        self,
        kafka: KafkaCluster,
        topic: str,
        rng: random.Random,
        restart: Callable[[], None] | None,
        *,
        hasty: bool = False,
        flights: Flights | None = None,
        session: int = 6000,
        strategy: str | None = None,
    ) -> None:
        self._rng = rng
        self._hasty = hasty
        self._restart = restart
        self._restarted = False
        self._drained = 0
        self._topic = topic
        self._options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.group.id": f"group-{topic}",
            "kafka.session.timeout.ms": str(session),
            "kafka.partition.assignment.strategy": strategy or rng.choice(known_names()),
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(rng.choice([7, 20, 100])),
            "staticMembership": rng.choice(["false", "false", "true"]),
            "kafka.topic.metadata.refresh.interval.ms": "500",
            "assignmentTimeout": "180s",  # longer than a broker takes to come back
        }
        self._flights = flights
        shared = None if flights is None else flights.write
        self._checkpoints = [Checkpoint(query, shared=shared) for query in range(QUERIES)]
        self._running: list[Query | None] = [None] * QUERIES
        self._kafka = kafka
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self._partitions = PARTITIONS
        self._produced: set[Record] = set()
        self._deaths = 0
        self._died = True
        self._failures: list[str] = []

    def step(self) -> None:
        """Records come, and one query is started or stopped; others may die meanwhile."""
        rng = self._rng
        self._produce()
        n = rng.randrange(QUERIES)
        query = self._running[n]
        if query is None:
            sink_takes = rng.choice([0.0, 0.0, 0.3, 7.0])
            dies = random_death(rng)
            ends = rng.random() < 0.25 or (dies is not None and dies.at == AIM)
            self._start(n, dies=dies, sink_takes=sink_takes, ends=ends)
        elif (what := rng.random()) < 0.2:
            query.stop()
        elif what < 0.4:
            query.stop(killed_after=rng.choice([0.0, 0.005, 0.05]))
        elif what < 0.6:
            self._drained += query.drain()
        elif what < 0.7 and self._restart is not None:
            self._restarted = True
            for running in filter(None, self._running):
                running.outage()
            self._restart()
        elif what < 0.8:
            self._grow()
        self._let_them_read(rng.choice([0, 1, 2, 4]))
        time.sleep(rng.random() * 1.5)  # schedules differ in time too; nothing depends on it
        for m, other in enumerate(self._running):
            if other is not None and not other.is_running:
                self._bury(m)

    def die(self, death: Death) -> None:
        """The first query; records come, and a second query when that is in the midst of it."""
        self._produce()
        self._start(0, dies=death, ends=death.at == AIM)
        query = self._running[0]
        assert query is not None, "just started"
        self._let_them_read(1)
        self._start(1, dies=None)
        deadline = time.monotonic() + PATIENCE
        while query.is_running and time.monotonic() < deadline:
            self._produce()
            self._let_them_read(1)
        self._died = not query.is_running
        if not self._died:
            query.stop()
        self._bury(0)
        self._died &= query.has_died

    def _let_them_read(self, batches: int) -> None:
        """On a busy machine they would else be stopped before they had read anything."""
        wanted = self._batches() + batches
        deadline = time.monotonic() + MOMENT
        while self._batches() < wanted and time.monotonic() < deadline and self._is_any_running():
            time.sleep(0.02)

    def _is_any_running(self) -> bool:
        return any(query is not None and query.is_running for query in self._running)

    def _batches(self) -> int:
        return sum(one.committed for one in self._checkpoints)

    def stop_all(self) -> None:
        for n, query in enumerate(self._running):
            if query is not None:
                query.stop()
                self._bury(n)

    def finish(self) -> None:
        """Every checkpoint once more: a logged batch must not stay unread. Until all is there."""
        for n, query in enumerate(self._running):
            if query is None:
                self._start(n, dies=None)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not self._produced <= self._written():
            time.sleep(0.2)
        self.stop_all()

    def outcome(self) -> Outcome:
        verdict = judge(self._history())
        return Outcome(
            produced=len(self._produced),
            missing=verdict.missing,
            twice=verdict.twice,
            wrong=verdict.wrong,
            unlike=sum(len(one.unlike) for one in self._checkpoints),
            drained=self._drained,
            deaths=self._deaths,
            failures=self._failures,
            shared=[] if self._flights is None else self._flights.faults(self._produced),
            died=self._died,
        )

    def _history(self) -> History:
        given = self._options
        return History(
            produced=frozenset(self._produced),
            commits=read_commits(given["kafka.bootstrap.servers"], given["kafka.group.id"]),
            batches=[batch for one in self._checkpoints for batch in one.sink.values()],
            ends={run: end for one in self._checkpoints for run, end in one.ends.items()},
            losses=[loss for one in self._checkpoints for loss in one.losses],
            hand_overs=[went for one in self._checkpoints for went in one.hand_overs],
            session=int(given["kafka.session.timeout.ms"]),
        )

    def _produce(self) -> None:
        def delivered(error: object, message: object) -> None:
            assert error is None, error
            self._produced.add((message.topic(), message.partition(), message.offset()))  # type: ignore[attr-defined]  # a Message

        for n in range(self._rng.randint(20, 120)):
            partition = self._rng.randrange(self._partitions)
            self._producer.produce(self._topic, str(n), partition=partition, on_delivery=delivered)
        self._producer.flush()

    def _grow(self) -> None:
        self._partitions += 1
        self._kafka.add_partitions(self._topic, total=self._partitions)
        wait_until(self._producer_sees_all, "the producer does not see the new partition")

    def _producer_sees_all(self) -> bool:
        """Before that it refuses to produce there."""
        told = self._producer.list_topics(self._topic, MOMENT)
        return len(told.topics[self._topic].partitions) == self._partitions

    def _start(
        self, n: int, *, dies: Death | None, sink_takes: float = 0.0, ends: bool = False
    ) -> None:
        self._running[n] = Query(
            self._options,
            self._checkpoints[n],
            dies=dies,
            sink_takes=sink_takes,
            ends=ends,
            hasty=self._hasty,
        )

    def _bury(self, n: int) -> None:
        query = self._running[n]
        assert query is not None, "the caller has seen it"
        self._running[n] = None
        query.join()
        self._deaths += 1
        if query.failure is not None and not (self._restarted and _is_outage(query.failure)):
            self._failures.append(query.failure)

    def _written(self) -> set[Record]:
        return {record for one in self._checkpoints for record in one.written()}


def _is_outage(failure: str) -> bool:
    """Whether it tells that no broker answered, while one restarted: the query is started anew."""
    return any(word in failure for word in _OF_OUTAGES)


def restart(kafka: LocalKafka) -> None:
    """The broker dies, and is started again."""
    (broker,) = kafka.brokers
    kafka.kill_broker(broker)
    kafka.start_broker(broker)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    bad = produced = twice = deaths = drained = 0
    with LocalKafka() as kafka:
        for seed in range(arguments.seed, arguments.seed + arguments.schedules):
            topic = f"schedule-{seed}"
            kafka.create_topic(topic, partitions=PARTITIONS)
            with TemporaryDirectory() as folder:
                outcome = run_schedule(
                    kafka,
                    topic,
                    seed,
                    restart=lambda: restart(kafka),
                    flights=Flights(Path(folder) / "flights.sqlite"),
                )
            produced += outcome.produced
            twice += len(outcome.twice)
            deaths += outcome.deaths
            drained += outcome.drained
            if not outcome.sound:
                bad += 1
                print(f"seed {seed}: {outcome}", flush=True)
    ends = f"{deaths} ends, {drained} of them by drain()"
    print(
        f"{bad} of {arguments.schedules} schedules are bad"
        if bad
        else f"{arguments.schedules} schedules, {produced} records, {ends}: nothing missing; "
        f"{twice} records twice, all of them irreducible"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
