"""Where logs begin and end, and where a time is in them: asked of the brokers, in one go.

`confluent_kafka.Consumer` asks for one partition at a time, and waits behind a poll. An
AdminClient asks each broker once for all partitions that it leads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its stubs hide OffsetSpec

from kafka_coop.config.known import KNOWN
from kafka_coop.config.properties import Role
from kafka_coop.fetching.native import told_offset
from kafka_coop.types import TopicPartition, is_matched

_SPEC: Any = OffsetSpec  # untyped
_NO_RECORD = -1

_NO_ID = "A" * 22
"""Sixteen bytes of zero, as librdkafka spells them: brokers before 2.8."""

_NONE: Mapping[TopicPartition, int] = {}


class LogsNotToldError(KafkaException):
    """The brokers do not tell of some logs: no leader, no right to describe them, no answer.

    Attributes:
        partitions: Whose logs these are.
    """

    def __init__(self, error: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(error)
        self.partitions = frozenset(partitions)


class LogOffsets:
    """Answers about the logs of a cluster. Any thread may ask.

    Args:
        config: As `kafka_coop.fetching.fetcher.Fetcher` takes it; a consumer's own properties
            are left out.
        read_committed: Whether the end of a log is the end of what is committed there
            (the last stable offset), rather than the high watermark.
        timeout: How long one request may take.
        retries: How often a request is repeated that failed for a reason that may pass.
        retry_interval: How long to wait before it is.

    Attributes:
        admin: Who asks; for other questions to the same cluster.
        cluster: The cluster's id, once it has told of its topics; empty: not known.

    Raises:
        KafkaException: librdkafka does not take the configuration.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        read_committed: bool,
        timeout: timedelta = timedelta(seconds=30),
        retries: int = 3,
        retry_interval: timedelta = timedelta(seconds=1),
    ) -> None:
        own = {key: value for key, value in config.items() if _is_common(key)}
        self.cluster = ""
        self.admin = AdminClient(own)
        self._has_controller = False
        self._isolation = (
            IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        )
        self._timeout = timeout.total_seconds()
        self._tries = retries + 1
        self._pause = retry_interval.total_seconds()

    def ends(
        self, partitions: Iterable[TopicPartition], *, known: Mapping[TopicPartition, int] = _NONE
    ) -> dict[TopicPartition, int]:
        """The offsets after the last records.

        Args:
            partitions: Of these.
            known: How far logs have reached before. A broker that has crashed and is back may at
                first tell an end from long before: the high watermark that it last wrote down. So
                an end below what is known is asked for again, as what fails is, before it counts:
                unless there is an open transaction before, which may take as long as it likes.

        Returns:
            Without those partitions that can't be had now, for instance while a leader is
            elected.

        Raises:
            KafkaException: None of them can be had.
        """
        latest = _SPEC.latest()
        found = self._available(dict.fromkeys(partitions, latest))
        for _ in range(self._tries - 1):
            shorter = {of: known[of] for of, end in found.items() if end < known.get(of, end)}
            if shorter and self._isolation is IsolationLevel.READ_COMMITTED:
                with contextlib.suppress(KafkaException):  # asked again all the same
                    shorter = {of: shorter[of] for of in shorter.keys() - self.reaching(shorter)}
            if not shorter:
                break
            time.sleep(self._pause)
            found |= self._ask(dict.fromkeys(shorter, latest))[0]
        return found

    def reaching(self, offsets: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """The partitions whose logs go as far as these offsets, open transactions included.

        Where only what is committed is read, a log ends before the first open transaction, and
        who reads all of it may have come further.

        Raises:
            LogsNotToldError: One of them can't be had.
        """
        specs = dict.fromkeys(offsets, _SPEC.latest())
        ends = self._all(specs, IsolationLevel.READ_UNCOMMITTED)
        return frozenset(of for of, end in ends.items() if end >= offsets[of])

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of the first records; see `ends`."""
        return self._available(dict.fromkeys(partitions, _SPEC.earliest()))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offsets of the first records at or after a time (ms); None: there is none.

        Raises:
            LogsNotToldError: One of them can't be had.
        """
        specs = {of: _SPEC.for_timestamp(at) for of, at in times.items()}
        found = self._all(specs)
        return {of: None if offset == _NO_RECORD else offset for of, offset in found.items()}

    def all_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `ends`, of every partition.

        Raises:
            LogsNotToldError: One of them can't be had.
        """
        return self._all(dict.fromkeys(partitions, _SPEC.latest()))

    def all_beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `beginnings`, of every partition.

        Raises:
            LogsNotToldError: One of them can't be had.
        """
        return self._all(dict.fromkeys(partitions, _SPEC.earliest()))

    def partition_counts(
        self, topics: Iterable[str] = (), pattern: str | None = None
    ) -> dict[str, int]:
        """How many partitions each of these topics has; topics that do not exist are left out.

        Args:
            topics: Names.
            pattern: Also every topic that this regular expression matches, internal ones excepted.

        Raises:
            KafkaException: No broker answers.
        """
        wanted = set(topics)
        metadata: Any = self.admin.list_topics(timeout=self._timeout)  # stubs: no cluster_id
        self.cluster = metadata.cluster_id or self.cluster
        self._has_controller = metadata.controller_id in metadata.brokers
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None
            and topic.partitions
            and (name in wanted or (pattern is not None and is_matched(name, pattern)))
        }

    def topic_ids(self, topics: Iterable[str], *, timeout: float) -> dict[str, str]:
        """The ids of topics, which a topic that is made anew does not inherit (KIP-516).

        Args:
            topics: Their names. Nothing is created.
            timeout: Seconds to wait for all of them.

        Returns:
            Without those that are not told: they do not exist, nobody answers in time, or brokers
            know no ids. Asks nobody before `partition_counts` has, nor in a cluster without a
            controller, whom librdkafka would ask, and wait for in vain (its own mock).
        """
        names = sorted(set(topics))
        if not names or not self._has_controller:
            return {}
        asked = self.admin.describe_topics(TopicCollection(names), request_timeout=timeout)
        found = {}
        deadline = time.monotonic() + timeout
        for name, future in asked.items():
            with contextlib.suppress(KafkaException, FutureTimeoutError):
                described: Any = future.result(max(0.0, deadline - time.monotonic()) + 0.1)
                found[name] = str(described.topic_id)
        return {name: id_ for name, id_ in found.items() if id_ != _NO_ID}

    def _available(self, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        found, failed = self._ask(specs)
        if failed and not found:
            raise next(iter(failed.values()))
        return found

    def _all(
        self, specs: Mapping[TopicPartition, Any], isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        found, failed = self._ask(specs, isolation)
        for _ in range(self._tries - 1):
            if not failed:
                break
            time.sleep(self._pause)
            more, failed = self._ask({of: specs[of] for of in failed}, isolation)
            found |= more
        for error in failed.values():
            raise LogsNotToldError(error.args[0], failed) from error
        return found

    def _ask(
        self, specs: Mapping[TopicPartition, Any], isolation: IsolationLevel | None = None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaException]]:
        if not specs:
            return {}, {}
        native = {confluent_kafka.TopicPartition(*of): spec for of, spec in specs.items()}
        futures = self.admin.list_offsets(
            native,
            isolation_level=self._isolation if isolation is None else isolation,
            request_timeout=self._timeout,
        )
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, KafkaException] = {}
        for asked, future in futures.items():
            of = TopicPartition(asked.topic, asked.partition)
            try:
                found[of] = self._result(future)
            except KafkaException as error:
                failed[of] = error
        if failed:
            self._refresh()
        return found, failed

    def _refresh(self) -> None:
        """The next question goes to who leads by then.

        librdkafka keeps the leaders and their epochs, and asks with these: after an election it
        would be told FENCED_LEADER_EPOCH or NOT_LEADER until its own refresh, minutes later.
        """
        with contextlib.suppress(KafkaException):  # no broker answers: nor will the next question
            self.admin.list_topics(timeout=self._timeout)

    def _result(self, future: Future[Any]) -> int:
        try:
            listed = future.result(self._timeout + 1)
        except FutureTimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001  # confluent's public constant
        return told_offset(listed)


def _is_common(key: str) -> bool:
    """Whether the property is not a consumer's alone: librdkafka would warn of each such one."""
    known = KNOWN.get(key)
    return known is not None and known.role is not Role.CONSUMER
