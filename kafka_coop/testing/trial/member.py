"""One Python member of a trial: ``python -m kafka_coop.testing.trial.member '{"client": …}'``.

Reads until its standard input ends, then closes its consumer; SIGTERM does the same. What else it
may be told there `orders` says: told to drain, it hands over first, and goes on reading meanwhile.
A record counts as processed when its line is in the journal, which is before its offset can be
committed.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from prometheus_client import CollectorRegistry

from kafka_coop.consumer import CoopConsumer
from kafka_coop.testing.trial.copies import value_of
from kafka_coop.testing.trial.ending import (
    NOT_PLACED,
    NOT_ROLLED_BACK,
    OUTCOME_UNKNOWN,
    end,
    ends_if_it_hangs,
)
from kafka_coop.testing.trial.journal import Journal, Kind
from kafka_coop.testing.trial.orders import Orders

Client: TypeAlias = Literal["ours", "confluent", "kafka-python", "java"]

_DRAINING: Final = timedelta(seconds=30)
_POLL: Final = 0.05
_A_WHOLE_JOIN: Final = 30.0
_BATCH: Final = 200
_COMMIT_INTERVAL_MS: Final = 200
_GENERATION: Final = struct.Struct("=i")
_GENERATION_AT: Final = len(b"CGMDv2:")
_TRANSACTION_SECONDS: Final = 15.0
_STUCK_SECONDS: Final = 2 * _TRANSACTION_SECONDS
_COMMITS: Final = 4
LONGEST_TRANSACTION: Final = timedelta(seconds=_STUCK_SECONDS + _COMMITS * _TRANSACTION_SECONDS)
"""For so long a member may be busy with one, and neither process nor give up anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a member is to do.

    Attributes:
        strategies: Assignment strategies by their names on the wire.
        config: Further settings, in librdkafka's names.
        output: Where each record is copied to in transactions; ours alone. Empty: nowhere.
        aside: A topic that it subscribes to beside; not Java's and kafka-python's. The journal has
            nothing of it. Empty: none.
    """

    client: Client
    name: str
    bootstrap: str
    group: str
    topic: str
    journal: str
    strategies: list[str]
    config: dict[str, Any] = field(default_factory=dict)
    output: str = ""
    aside: str = ""

    def to_json(self) -> str:
        """For a command line."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse."""
        return cls(**json.loads(text))


class _Runner(Protocol):
    def step(self) -> None: ...

    def drain(self) -> None: ...

    def close(self) -> None: ...


class _Librdkafka:
    """Ours and confluent-kafka's: one interface."""

    def __init__(self, job: Job, journal: Journal, orders: Orders) -> None:
        config = {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "client.id": job.name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": ",".join(job.strategies),
            "auto.commit.interval.ms": _COMMIT_INTERVAL_MS,
            "enable.auto.commit": not job.output,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            **job.config,
        }
        self._topic = job.topic
        self._journal = journal
        self._orders = orders
        self._consumer: Any
        # confluent's stores an offset before its record is processed, unless told not to.
        self._store = job.client == "confluent"
        if self._store:
            self._consumer = Consumer({**config, "enable.auto.offset.store": False})
        else:
            self._consumer = CoopConsumer(config, registry=CollectorRegistry())
        self._copier = _Copier(job, self._consumer, journal) if job.output else None
        self._consumer.subscribe(
            [job.topic, job.aside] if job.aside else [job.topic],
            on_assign=self._told("A"),
            on_revoke=self._told("V"),
            on_lost=self._told("L"),
        )

    def _told(self, kind: Kind) -> Callable[[Any, list[Any]], None]:
        def note(consumer: Any, partitions: list[Any]) -> None:
            numbers = [p.partition for p in partitions if p.topic == self._topic]
            if kind == "V" and numbers and self._orders.is_slow:
                self._give_up_slowly(consumer, numbers)
                return
            generation = _generation(consumer.consumer_group_metadata())
            self._journal.callback(kind, generation, numbers)

        return note

    def _give_up_slowly(self, consumer: Any, partitions: list[int]) -> None:
        """The user takes long in on_revoke.

        A member that is evicted meanwhile calls no on_lost for what on_revoke is at, and others
        may have it by then: it is written down here as lost.
        """
        self._journal.callback("W", _newest_generation(consumer), partitions)
        self._orders.dawdle()
        fenced = isinstance(consumer, CoopConsumer) and consumer.health().fenced
        self._journal.callback("L" if fenced else "V", _newest_generation(consumer), partitions)

    def step(self) -> None:
        try:
            self._process(self._read())
        except KafkaException as error:
            self._journal.note("E", str(error))

    def _read(self) -> list[Message]:
        if self._copier is not None:  # a transaction for each record would be slow
            found: list[Message] = self._consumer.consume(_BATCH, _POLL)
            return found
        message = self._consumer.poll(_POLL)
        return [] if message is None else [message]

    def _process(self, messages: list[Message]) -> None:
        records = []
        for message in messages:
            if (error := message.error()) is not None:
                self._journal.note("E", str(error))
            elif message.topic() == self._topic:
                records.append(message)
        if not records:
            return
        if self._copier is not None and not self._copier.copy(records):
            return  # taken back, and read again
        self._journal.records((m.partition(), m.offset()) for m in records)  # type: ignore[misc]  # known
        if self._store:
            for message in records:
                self._consumer.store_offsets(message=message)

    def drain(self) -> None:
        """Processes until others have taken over. confluent's can't."""
        if isinstance(self._consumer, CoopConsumer):
            self._consumer.drain(_DRAINING)
            while not self._consumer.drained:
                self.step()

    def close(self) -> None:
        self._consumer.close()


class _Copier:
    """Consume, transform, produce: records and offsets in one transaction (KIP-447)."""

    def __init__(self, job: Job, consumer: Any, journal: Journal) -> None:
        self._consumer = consumer
        self._journal = journal
        self._topic = job.topic
        self._output = job.output
        self._name = job.name
        self._settings = {
            "bootstrap.servers": job.bootstrap,
            "transactional.id": f"{job.group}-{job.name}",
            "transaction.timeout.ms": 10_000,
            "log_level": 0,
        }
        self._producer: Producer | None = None

    def copy(self, records: list[Message]) -> bool:
        """Copies them; False where the transaction failed and the records will come again."""
        try:
            producer = self._ready()
            producer.begin_transaction()
            for message in records:
                of = message.partition(), message.offset()
                producer.produce(self._output, value_of(of, self._name))  # type: ignore[arg-type]  # known
            self._send_offsets(producer)
            _commit(producer)
        except KafkaException as error:
            first, last = records[0], records[-1]
            self._journal.note(
                "E",
                f"{first.partition()}:{first.offset()} to {last.partition()}:{last.offset()} are "
                f"not copied: {error}",
            )
            self._recover(error)
            return False
        return True

    def _send_offsets(self, producer: Producer) -> None:
        """Ends the process where it hangs, as on a commit whose outcome is unknown.

        librdkafka 2.16 does not look at the call's timeout while it looks for a coordinator that
        has moved (librdkafka#5456, #5511).
        """
        positions = self._consumer.position(self._consumer.assignment())
        metadata = self._consumer.consumer_group_metadata()
        with ends_if_it_hangs(_STUCK_SECONDS):
            producer.send_offsets_to_transaction(
                [p for p in positions if p.offset >= 0],
                metadata,
                _TRANSACTION_SECONDS,
            )

    def _ready(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._settings)
            producer.init_transactions(_TRANSACTION_SECONDS)
            self._producer = producer
        return self._producer

    def _recover(self, error: KafkaException) -> None:
        """Rolls back, or learns what became of it; then on from the committed offsets.

        By a new producer, whatever failed: it settles the old one's last transaction one way or
        the other, and fences what is late of it. Proxies that fall silent hold back the requests
        of those who have long given up, and pass them on when healed
        (`test_integration_late_offsets`).
        """
        try:
            if self._producer is not None and error.args[0].txn_requires_abort():
                self._producer.abort_transaction(_TRANSACTION_SECONDS)
            self._producer = None
            self._ready()
        except KafkaException as again:
            end(NOT_ROLLED_BACK, f"{error}, then {again}")
        try:
            self._go_back()
        except KafkaException as again:
            # Nothing may be delivered from a position that is in doubt: a new process is sure.
            end(NOT_PLACED, f"{error}, then {again}")

    def _go_back(self) -> None:
        """To the committed offsets, of the topic of which there are records to copy.

        Raises:
            KafkaException: They can't be had.
        """
        owned = [p for p in self._consumer.assignment() if p.topic == self._topic]
        for where in self._consumer.committed(owned, timeout=_TRANSACTION_SECONDS):
            if where.error is not None:
                raise KafkaException(where.error)
            offset = max(where.offset, 0)  # nothing committed yet: from the first record
            self._consumer.seek(TopicPartition(where.topic, where.partition, offset))


def _commit(producer: Producer) -> None:
    """Again until the outcome is known: a commit that timed out may have happened.

    Within bounds: a member that waits for ever holds up its group for max.poll.interval.ms.

    Raises:
        KafkaException: It failed.
        SystemExit: Its outcome is unknown. The coordinator settles it one way or the other,
            offsets and records alike, and whoever owns the partition next begins behind it.
    """
    for _ in range(_COMMITS):
        try:
            producer.commit_transaction(_TRANSACTION_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    end(OUTCOME_UNKNOWN, "a transaction's outcome can't be learned")


def _generation(metadata: object) -> int:
    """Librdkafka's serialised group metadata; None before the first join."""
    if not isinstance(metadata, bytes):
        return -1
    return int(_GENERATION.unpack_from(metadata, _GENERATION_AT)[0])


def _newest_generation(consumer: Any) -> int:
    """In which the member is; what ours shows the user is the last whose round is applied."""
    if isinstance(consumer, CoopConsumer):
        return consumer.health().generation
    return _generation(consumer.consumer_group_metadata())


class _KafkaPython:
    """kafka-python's consumer."""

    def __init__(self, job: Job, journal: Journal, orders: Orders) -> None:
        import kafka  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415  # optional
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415  # optional
        from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415  # optional

        strategies = {
            "range": RangePartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        config = {k.replace(".", "_"): v for k, v in job.config.items()}
        self._journal = journal
        self._orders = orders
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=job.bootstrap.split(","),
            group_id=job.group,
            client_id=job.name,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[strategies[s] for s in job.strategies],
            auto_commit_interval_ms=_COMMIT_INTERVAL_MS,
            fetch_max_wait_ms=100,
            **config,
        )
        runner = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
            def on_partitions_revoked(self, revoked: Any) -> None:
                runner.told("V", revoked)

            def on_partitions_assigned(self, assigned: Any) -> None:
                runner.told("A", assigned)

            def on_partitions_lost(self, lost: Any) -> None:
                runner.told("L", lost)

        self._consumer.subscribe([job.topic], listener=Listener())

    def told(self, kind: Kind, partitions: Iterable[Any]) -> None:
        numbers = [p.partition for p in partitions]
        if kind == "V" and numbers and self._orders.is_slow:
            self._journal.callback("W", self._generation(), numbers)
            self._orders.dawdle()
        self._journal.callback(kind, self._generation(), numbers)

    def _generation(self) -> int:
        return int(self._consumer._coordinator._generation.generation_id)  # noqa: SLF001  # no other way

    def step(self) -> None:
        """A join is not left to the next poll: kafka-python 3.0.12 may forget it in between.

        An answer that comes between two polls is dropped, and it joins anew: as the leader it
        throws the whole group back into a round, time and again on a busy machine. And a leader
        that had joined because of metadata takes itself for assigned before SyncGroup is answered:
        if poll's time runs out then, what it was given is never looked at, and it stands in the
        group owning nothing, without a heartbeat.
        """
        joining = self._consumer._coordinator.need_rejoin()  # noqa: SLF001  # no other way
        seconds = _A_WHOLE_JOIN if joining else _POLL
        for records in self._consumer.poll(timeout_ms=int(seconds * 1000)).values():
            self._journal.records((r.partition, r.offset) for r in records)

    def drain(self) -> None:
        """It can't."""

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    """Runs one member."""
    job, orders = Job.from_json(sys.argv[1]), Orders()
    signal.signal(signal.SIGTERM, lambda *_: orders.leave.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trial's to answer
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)  # each rebalance
    faulthandler.register(signal.SIGQUIT)  # what every thread is at, to be read in its last words
    threading.Thread(target=orders.follow, args=[sys.stdin.fileno()], daemon=True).start()
    journal = Journal(Path(job.journal))
    made = _KafkaPython if job.client == "kafka-python" else _Librdkafka
    runner: _Runner = made(job, journal, orders)
    journal.note("S")
    while not orders.leave.is_set():
        runner.step()
    if orders.drain:
        runner.drain()
    runner.close()
    journal.note("X")
    journal.close()


if __name__ == "__main__":
    main()
