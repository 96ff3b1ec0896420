"""From options to an administration client, and from its errors to one line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]  # its stubs hide ClusterMetadata

from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.hopeless import HOPELESS
from kafka_coop.types import INTERNAL_TOPICS, TopicPartition

T = TypeVar("T")

_FIRST_SLICE: Final = 0.25
"""Seconds of the first wait: librdkafka tries again for ever, whatever the reason of a failure.
Each further one is twice as long, for a big cluster's metadata takes its time."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "kafka-coop",
    "log_level": 0,  # what goes wrong is said once, by us
    "allow.auto.create.topics": False,
}

_READER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    # An offset with an open transaction on it is told as it was, instead of waited for (KIP-447).
    "isolation.level": "read_uncommitted",
}
_PARTITIONS_AT_ONCE: Final = 5_000
"""A question of some hundred kilobytes."""

_WRONG_SETTINGS: Final = frozenset(
    {KafkaError._INVALID_ARG, KafkaError._SSL}  # noqa: SLF001  # the same
)


class Connection:
    """An administration client that knows why it gets no answer. For one thread.

    Args:
        config: librdkafka's settings, ``bootstrap.servers`` among them.
        timeout: Seconds for each request.

    Raises:
        CommandError: librdkafka refuses the settings.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout: float) -> None:
        self.servers = str(config["bootstrap.servers"])
        self.timeout = timeout
        self._heard: list[KafkaError] = []
        self._settings = {**_DEFAULTS, **config, "error_cb": self._heard.append}
        try:
            self.admin = AdminClient(self._settings)
        except KafkaException as error:
            raise CommandError(
                f"librdkafka refuses the settings: {error.args[0].str()}", Exit.USAGE
            ) from None
        except (TypeError, ValueError) as error:
            raise CommandError(f"librdkafka refuses the settings: {error}", Exit.USAGE) from None

    def metadata(self) -> ClusterMetadata:
        """The brokers and topics. Gives up as soon as every known broker has failed.

        Raises:
            CommandError: No broker answers, or one refuses us.
        """
        deadline = time.monotonic() + self.timeout
        wait = _FIRST_SLICE
        self.admin.poll(0)  # what went wrong before, hours ago in a watch, is no reason now
        while True:
            self._heard.clear()
            try:
                return self.admin.list_topics(timeout=min(wait, self.timeout))
            except KafkaException as error:
                failed = error.args[0]
            wait = min(2 * wait, max(deadline - time.monotonic(), _FIRST_SLICE))
            self.admin.poll(0)
            codes = {heard.code() for heard in self._heard}
            refused = codes & (HOPELESS | _WRONG_SETTINGS)
            all_failed = KafkaError._ALL_BROKERS_DOWN in codes  # noqa: SLF001
            if refused or all_failed or time.monotonic() >= deadline:
                raise self._error(failed)

    def result(self, future: Future[T]) -> T:
        """What an administration call answers.

        Raises:
            CommandError: It was refused, or not answered in time.
            KafkaException: Any other error of the broker.
        """
        try:
            return future.result(self.timeout)
        except FutureTimeoutError:
            raise CommandError(
                f"no answer from {self.servers} within {self.timeout:g} s", Exit.UNREACHABLE
            ) from None
        except KafkaException as error:
            if error.args[0].code() in HOPELESS | _UNANSWERED:
                raise self._error(error.args[0]) from None
            raise

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The group's offsets, of all topics that exist.

        `AdminClient.list_consumer_group_offsets` would ask for just what the group has. It is not
        called, for librdkafka 2.16 ends the whole process there (a segmentation fault) when the
        coordinator moves or dies meanwhile. A consumer's question survives that, but must name
        the partitions; it joins nothing.

        Raises:
            CommandError: No broker answers, or one refuses us.
            KafkaException: Any other error of the broker.
        """
        topics = self.metadata().topics
        partitions = [
            ConfluentPartition(topic, partition)
            for topic in sorted(topics.keys() - INTERNAL_TOPICS)
            for partition in topics[topic].partitions
        ]
        found: dict[TopicPartition, int] = {}
        reader = Consumer({**self._settings, **_READER, "group.id": group})
        try:
            for at in range(0, len(partitions), _PARTITIONS_AT_ONCE):
                some = partitions[at : at + _PARTITIONS_AT_ONCE]
                for one in reader.committed(some, self.timeout):
                    if one.error is None and one.offset >= 0:
                        found[TopicPartition(one.topic, one.partition)] = one.offset
        except KafkaException as error:
            if error.args[0].code() in HOPELESS | _UNANSWERED:
                raise self._error(error.args[0]) from None
            raise
        finally:
            reader.close()
        return found

    def groups(self, group: str | None = None) -> Sequence[Any]:
        """Groups with their members' own bytes; None: every group there is.

        `AdminClient.list_groups` is deprecated for a call that leaves exactly these bytes out:
        subscriptions and user data are to be had in no other way.

        Raises:
            CommandError: It was refused, or not answered in time.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                found = self.admin.list_groups(group, timeout=self.timeout)
            except KafkaException as error:
                raise self._error(error.args[0]) from None
        for one in found:
            problem: KafkaError | None = one.error  # its stubs say that there never is one
            if problem is not None:  # it has no members then, nor a state
                raise self._error(problem)
        return list(found)

    def _error(self, last: KafkaError) -> CommandError:
        """The most telling of what librdkafka said."""
        self.admin.poll(0)
        said = [*self._heard, last]
        for error in said:
            if error.code() in HOPELESS:
                return CommandError(
                    f"{self.servers} refuses: {_text(error)}. Credentials and TLS settings are"
                    " given as --config key=value or in a --config-file",
                    Exit.UNAUTHORISED,
                )
        for error in said:
            if error.code() in _WRONG_SETTINGS:
                return CommandError(
                    f"no TLS connection to {self.servers}: {_text(error)}", Exit.UNREACHABLE
                )
        for error in said:
            if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  # says nothing
                return CommandError(f"can't reach {self.servers}: {_text(error)}", Exit.UNREACHABLE)
        return CommandError(f"can't reach {self.servers}", Exit.UNREACHABLE)


_UNANSWERED: Final = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001  # confluent's names for librdkafka's codes
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)


def client_config(
    servers: str | None, pairs: Sequence[str] = (), file: Path | None = None
) -> dict[str, Any]:
    """Merges what was given, the command line over the file.

    Args:
        servers: ``--bootstrap-servers``, or what the environment says in its place: it goes before
            the file, and what ``--config`` says of them before it.
        pairs: ``--config``, each ``key=value``.
        file: ``--config-file``: lines of ``key=value``, in UTF-8; blank ones and ``#`` comments are
            skipped.

    Raises:
        CommandError: A pair is none, the file can't be read, or no server is named.
    """
    settings: dict[str, Any] = {}
    if file is not None:
        settings |= _read(file)
    if servers:
        settings["bootstrap.servers"] = servers
    for pair in pairs:
        key, value = _split(pair, "--config")
        settings[key] = value
    if not settings.get("bootstrap.servers"):
        raise CommandError(
            "no broker is named: give --bootstrap-servers host:port, or bootstrap.servers in the"
            " --config-file",
            Exit.USAGE,
        )
    return settings


def _read(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--config-file {file}: {error}", Exit.USAGE) from None
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            key, value = _split(text, f"--config-file {file}, line {number}")
            found[key] = value
    return found


def _split(pair: str, where: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key.strip():
        # Whatever stands there may be a password, or a line of a key.
        raise CommandError(f"{where}: that is no key=value, and is not shown here", Exit.USAGE)
    return key.strip(), value.strip()


def _text(error: KafkaError) -> str:
    return str(error.str()).rstrip(".")
