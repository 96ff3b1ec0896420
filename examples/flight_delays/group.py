"""The group, seen from outside as every Kafka tool sees it: who owns what, and where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .data import FLIGHTS, PARTITIONS, WEATHER
from .pipeline import HORIZON, WATERMARK

Partition = tuple[str, int]
Owners = Mapping[str, frozenset[Partition]]

EVERYTHING = frozenset((topic, n) for topic in (FLIGHTS, WEATHER) for n in range(PARTITIONS))

_STARTING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,  # noqa: SLF001  # librdkafka's own codes
    KafkaError._TIMED_OUT,  # noqa: SLF001  # the same
}


def are_shared(owners: Owners, names: Sequence[str]) -> bool:
    """Whether these and no others own everything, each something, and both topics alike."""
    owned = [partition for of in owners.values() for partition in of]
    return (
        sorted(owners) == sorted(names)
        and all(owners.values())
        and len(owned) == len(EVERYTHING) == len(set(owned))
        and all({n for t, n in of if t == FLIGHTS} == _weather(of) for of in owners.values())
    )


def moved(before: Owners, after: Owners) -> frozenset[Partition]:
    """What has another owner than before."""
    return frozenset().union(*(of - before.get(name, frozenset()) for name, of in after.items()))


def in_words(owners: Owners) -> str:
    """Each query with the numbers of its partitions."""
    return ", ".join(f"{name} {sorted(_weather(of))}" for name, of in sorted(owners.items()))


def _weather(owned: frozenset[Partition]) -> frozenset[int]:
    return frozenset(n for topic, n in owned if topic == WEATHER)


@dataclass
class Distances:
    """How far apart in time committed positions have been, at most."""

    of_a_number: timedelta = timedelta(0)
    """Between the flights' partition and the weather's, of one number."""
    of_all: timedelta = timedelta(0)
    """Between any two partitions."""

    def add(
        self, positions: Mapping[Partition, int], times: Mapping[Partition, Sequence[datetime]]
    ) -> None:
        """What the group has committed now; ``times`` are the records' by partition and offset."""
        at = {
            of: times[of][max(0, min(position, len(times[of])) - 1)]
            for of, position in positions.items()
            if times.get(of)
        }
        for n in range(PARTITIONS):
            if (FLIGHTS, n) in at and (WEATHER, n) in at:
                apart = abs(at[FLIGHTS, n] - at[WEATHER, n])
                self.of_a_number = max(self.of_a_number, apart)
        if at:
            self.of_all = max(self.of_all, max(at.values()) - min(at.values()))

    @property
    def is_sound(self) -> bool:
        """Whether horizon and watermark were late enough for them (docs/SPARK.md, State)."""
        return self.of_a_number <= HORIZON and HORIZON + self.of_all < WATERMARK

    def __str__(self) -> str:
        return (
            f"positions of one number were {self.of_a_number} apart at most (the horizon is "
            f"{HORIZON.days} days), of all {self.of_all} (watermark less horizon: "
            f"{(WATERMARK - HORIZON).days} days)"
        )


class Group:
    """Asks the brokers."""

    def __init__(self, servers: str, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers})
        # No member: it never subscribes. The admin client's way to ask for what is committed ends
        # the process where a coordinator has just begun (librdkafka's issue 5040).
        self._asking = Consumer({"bootstrap.servers": servers, "group.id": name})
        self._name = name

    def owners(self) -> Owners:
        """By client id: the query's name. Empty while the coordinator does not tell."""
        try:
            described = self._admin.describe_consumer_groups([self._name])[self._name].result(60)
        except KafkaException as error:
            _raise_unless_starting(error)
            return {}
        return {
            member.client_id: frozenset(
                (of.topic, of.partition) for of in member.assignment.topic_partitions
            )
            for member in described.members
        }

    def positions(self) -> dict[Partition, int]:
        """What is committed. Empty while the coordinator does not tell."""
        asked = [TopicPartition(topic, n) for topic, n in sorted(EVERYTHING)]
        try:
            found = self._asking.committed(asked, 30)
        except KafkaException as error:
            _raise_unless_starting(error)
            return {}
        return {(of.topic, of.partition): of.offset for of in found if of.offset >= 0}

    def close(self) -> None:
        """Ends the connections."""
        self._asking.close()


def _raise_unless_starting(error: KafkaException) -> None:
    """A new broker's coordinator takes a moment."""
    if error.args[0].code() not in _STARTING:
        raise error
