"""Topics of a real cluster, whoever started it."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec  # type: ignore[attr-defined]  # its stubs hide ClusterMetadata
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kafka_coop.closeable import Closeable
from kafka_coop.fetching.native import told_offset
from kafka_coop.protocol.messages import address

REQUEST_TIMEOUT: Final = timedelta(seconds=30)
_POLL: Final = 0.02
_NO_LEADER_YET: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
_QUIET: Final[Mapping[str, Any]] = {
    "log_level": 0,  # a broker that is not up yet is no news
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "allow.auto.create.topics": False,
}


class KafkaCluster:
    """A running Kafka cluster, as tests use it. All methods may be called from any thread.

    Args:
        bootstrap_servers: The brokers' addresses for clients.
        admin_servers: Those for administration, which need no authentication. None: the same.
    """

    def __init__(self, bootstrap_servers: str, admin_servers: str | None = None) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin_servers = admin_servers or bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, as ``bootstrap.servers`` takes them."""
        return self._bootstrap_servers

    @property
    def admin_servers(self) -> str:
        """The same brokers' plaintext listeners for administration."""
        return self._admin_servers

    def admin(self) -> AdminClient:
        """A new administration client."""
        return quiet_admin(self._admin_servers)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic and waits until clients see it, with a leader for each partition.

        Raises:
            KafkaException: The cluster refused: the topic exists, or has too few brokers.
            TimeoutError: It was created but is not seen.
        """
        admin = self.admin()
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
        )
        _result(admin.create_topics([topic], operation_timeout=REQUEST_TIMEOUT.total_seconds()))
        _wait_for_partitions(admin, name, partitions)

    def add_partitions(self, name: str, *, total: int) -> None:
        """Widens a topic to `total` partitions and waits until clients see them.

        Raises:
            KafkaException: The cluster refused: no such topic, or it is not narrower.
            TimeoutError: They were created but are not seen.
        """
        admin = self.admin()
        _result(
            admin.create_partitions(
                [NewPartitions(name, total)], operation_timeout=REQUEST_TIMEOUT.total_seconds()
            )
        )
        _wait_for_partitions(admin, name, total)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits until clients no longer see it, and its name is free again.

        Raises:
            KafkaException: The cluster refused: no such topic.
            TimeoutError: It was deleted but is still seen.
        """
        admin = self.admin()
        _result(admin.delete_topics([name], operation_timeout=REQUEST_TIMEOUT.total_seconds()))
        wait_until(
            lambda: (
                everywhere(admin, lambda seen: name not in seen.topics) and _is_free(admin, name)
            ),
            f"{name} is deleted but still seen",
        )

    def end_offsets(self, name: str) -> dict[int, int]:
        """For each partition of a topic, the offset that its next record will have.

        Raises:
            KafkaException: The cluster refused, or has no such topic.
        """
        return end_offsets(self.admin(), name)


class StartedKafka(KafkaCluster, Closeable):
    """A cluster of its own: its ``with`` block starts it, and stops it at the end."""

    @abstractmethod
    def start(self) -> None:
        """Starts the brokers and waits until they serve."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self


def quiet_admin(servers: str) -> AdminClient:
    """An administration client that retries fast and logs nothing."""
    return AdminClient({**_QUIET, "bootstrap.servers": servers})


def peek(admin: AdminClient) -> ClusterMetadata | None:
    """The cluster's metadata; None where no broker answers within a second."""
    try:
        return admin.list_topics(timeout=1)
    except KafkaException:
        return None


def everywhere(admin: AdminClient, true: Callable[[ClusterMetadata], bool]) -> bool:
    """Whether each broker that answers has heard of it by now; one does at least.

    A change reaches each by itself, and clients ask whomever they like.
    """
    if (first := peek(admin)) is None or not true(first):
        return False
    if len(first.brokers) == 1:
        return True
    brokers = [address(str(broker.host), broker.port) for broker in first.brokers.values()]
    others = (peek(quiet_admin(broker)) for broker in brokers)  # a new client asks whom it knows
    return all(seen is None or true(seen) for seen in others)


def leaders(metadata: ClusterMetadata, topic: str) -> int:
    """How many partitions of a topic have a leader."""
    known = metadata.topics.get(topic)
    return 0 if known is None else sum(p.leader >= 0 for p in known.partitions.values())


def _wait_for_partitions(admin: AdminClient, name: str, count: int) -> None:
    wait_until(
        lambda: everywhere(admin, lambda seen: leaders(seen, name) >= count),
        f"{name} has no leader for each of its {count} partitions",
    )


def _is_free(admin: AdminClient, topic: str) -> bool:
    """Brokers with ZooKeeper keep the name of a deleted topic for some time longer."""
    wanted = NewTopic(topic, num_partitions=1, replication_factor=1)
    asked = admin.create_topics([wanted], validate_only=True)
    try:
        _result(asked)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code != KafkaError.TOPIC_ALREADY_EXISTS
    return True


def end_offsets(admin: AdminClient, name: str) -> dict[int, int]:
    """As `KafkaCluster.end_offsets`.

    The metadata may know of a leader that does not yet know of itself: it is asked again.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT.total_seconds()
    while True:
        try:
            return _end_offsets_now(admin, name)
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() >= deadline:
                raise
        time.sleep(_POLL)


def _end_offsets_now(admin: AdminClient, name: str) -> dict[int, int]:
    topic = admin.list_topics(name, timeout=REQUEST_TIMEOUT.total_seconds()).topics[name]
    if topic.error is not None:
        raise KafkaException(topic.error)
    asked: dict[TopicPartition, OffsetSpec] = {
        TopicPartition(name, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]  # a gap in its stubs
        for partition in topic.partitions
    }
    found = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT.total_seconds())
    return {where.partition: told_offset(future.result()) for where, future in found.items()}


def wait_until(
    true: Callable[[], bool], otherwise: str, timeout: timedelta = REQUEST_TIMEOUT
) -> None:
    """Asks again and again until the answer is yes.

    Raises:
        TimeoutError: It never was. Whatever `true` raises passes through.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    while not true():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{otherwise}, after {timeout.total_seconds():g} s")
        time.sleep(_POLL)


def _result(futures: Mapping[str, Future[Any]]) -> None:
    for future in futures.values():
        try:
            future.result(REQUEST_TIMEOUT.total_seconds())
        except TimeoutError:
            raise TimeoutError(
                f"no answer within {REQUEST_TIMEOUT.total_seconds():g} s: has a broker ended?"
            ) from None
