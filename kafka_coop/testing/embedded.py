"""An in-process Kafka for tests: librdkafka's mock cluster behind a Python interface.

It is a TCP broker on the loopback interface that librdkafka's clients and ours can talk to, also
from other processes: produce, fetch, committed offsets, classic groups, transactions, and failures
on demand. A cluster is up in milliseconds and needs neither Java nor Docker.

What it is not. Its answer to an ApiVersions request that is newer than it (Java's 4.1,
kafka-python's 3.0) can't be read by these: they need a real broker. It has no TLS, SASL, quotas,
admin requests, static-membership rules, consumer groups of KIP-848 that behave, or growing topics
(delete and create anew instead, or use `LocalKafka`). Five traits of its group coordinator matter
to tests:

* A rebalance of a group that is up collects members for ``session.timeout.ms`` less one
  second (the whole of it where it is at most one second), even after all have joined. Tests
  that rebalance want ``session.timeout.ms`` a little above 1000: 1100 gives 100 ms.
* The leader's first protocol is taken for everyone's. A member whose first protocol is
  another *ends the process* by an assertion in C. Mixed groups need a real broker.
* SyncGroup answers wait until the leader has assigned something to every member.
* While members join it takes no commit (REBALANCE_IN_PROGRESS), which Kafka's does. Of two that
  give partitions up at once, the first to join again spoils the other's commit: what that has
  not committed the next owner processes again. Nor do members go ahead to a follow-up round.
* A JoinGroup that is refused, `EmbeddedKafka.fail` included, is answered with nulls where the
  protocol has strings (protocol, leader, member id): read the error code first.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

from confluent_kafka.admin import AdminClient

from kafka_coop.closeable import Closeable
from kafka_coop.testing import librdkafka
from kafka_coop.testing.cluster import end_offsets, quiet_admin
from kafka_coop.types import is_topic_name

Api: TypeAlias = Literal[
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "ApiVersions",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
]
"""The requests of the Kafka protocol that the cluster answers and can be told to fail."""

API_KEYS: Final[dict[Api, int]] = dict(
    zip(
        get_args(Api),
        (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 22, 23, 24, 25, 26, 28),
        strict=True,
    )
)
"""Each request's number on the wire."""

DISCONNECT: Final = -195
"""An error for `EmbeddedKafka.fail`: the broker cuts the connection instead of answering."""

# It announces more than it parses: it reads LeaveGroup v3 (a list of members, KIP-345) as if
# it were v2, the flexible JoinGroup and SyncGroup without their compact arrays, and offers a
# Heartbeat v5 that Kafka never had.
_HIGHEST_SOUND_VERSION: Final[dict[Api, int]] = {
    "JoinGroup": 5,
    "Heartbeat": 4,
    "LeaveGroup": 2,
    "SyncGroup": 3,
}

# The cluster's thread answers a call, then empties the pipe that wakes it: a call made in
# between loses its wake-up and waits up to a second for the next event. Nothing breaks, yet
# ten calls in a row took seconds; by now the thread is back in its poll.
_SETTLING: Final = 0.001

_DEFAULT: Final = -1
"""A broker's own number of partitions or replicas (KIP-464)."""

_INVALID_TOPIC: Final = 17
_OFFSET_OUT_OF_RANGE: Final = 1
_UNKNOWN_PARTITION: Final = 3
_INVALID_REPLICATION_FACTOR: Final = 38

_MOST_PARTITIONS: Final = 99_999
"""Of one topic: librdkafka's clients take no more from an answer."""

_INT32: Final = 1 << 31
_PAST_ANY_END: Final = 1 << 62

_PRODUCER: Final = 0
_CONF_OK: Final = 0
_MILLISECOND: Final = timedelta(milliseconds=1)

_MOST_ANSWERS: Final = 500
"""Of one call: each is two arguments of a function in C, which ctypes calls with 1,024 at most."""


class EmbeddedKafkaError(RuntimeError):
    """The cluster refused what was asked of it.

    Attributes:
        code: The error's code, Kafka's where positive, librdkafka's own where negative.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRequest:
    """A request the cluster received.

    Attributes:
        broker: The id of the broker it was sent to.
        api_key: Its number on the wire.
        api: Its name, or None where `Api` does not list it.
        at: When it arrived, on the clock of `time.monotonic`.
    """

    broker: int
    api_key: int
    api: Api | None
    at: timedelta


class EmbeddedKafka(Closeable):
    """A Kafka cluster inside this process, for as long as the ``with`` block runs.

    All methods may be called from any thread. The cluster belongs to the process that made
    it: a forked child can talk to it over TCP, but `close` does nothing there. Any number of
    clusters can live side by side.

    Args:
        brokers: How many brokers; their ids count from 1.
        group_initial_rebalance_delay: How long the first member of an empty group waits for
            others (``group.initial.rebalance.delay.ms``).

    Raises:
        MockClusterUnavailableError: librdkafka's mock cluster is not to be had; the text
            says how to get it.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        group_initial_rebalance_delay: timedelta = timedelta(0),
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self.brokers: Final = tuple(range(1, brokers + 1))
        self._library = librdkafka.load()
        self._lock = threading.Lock()
        self._scripted: set[Api] = set()
        client = _new_client(self._library)
        cluster = self._library.rd_kafka_mock_cluster_new(client, brokers)
        if not cluster:
            self._library.rd_kafka_destroy(client)
            raise EmbeddedKafkaError("librdkafka could not open the cluster's listeners")
        self._cluster: int = cluster
        self._destroy = weakref.finalize(
            self, _destroy, self._library, client, cluster, os.getpid()
        )
        self._bootstrap_servers: str = self._library.rd_kafka_mock_cluster_bootstraps(
            cluster
        ).decode()
        self._call(
            "rd_kafka_mock_group_initial_rebalance_delay_ms",
            _milliseconds(group_initial_rebalance_delay),
        )
        for api, version in _HIGHEST_SOUND_VERSION.items():
            self.set_api_version(api, 0, version)

    def __repr__(self) -> str:
        state = "" if self._destroy.alive else ", closed"
        return f"EmbeddedKafka({self._bootstrap_servers!r}{state})"

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, as ``bootstrap.servers`` takes them."""
        return self._bootstrap_servers

    @property
    def admin_servers(self) -> str:
        """The same: a `KafkaCluster` may have others."""
        return self.bootstrap_servers

    def close(self) -> None:
        """Ends the cluster and frees all of it. A second call does nothing.

        Clients that are still connected see their connections cut. Left to itself, an
        unreachable cluster is closed when it is collected or when the interpreter exits.
        """
        with self._lock:
            self._destroy()

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic. It exists when the call returns.

        Unknown topics are also created by clients that ask for them, with four partitions.

        Args:
            name: Its name.
            partitions: How many; -1 is a broker's default, here one.
            replication_factor: Likewise.
            config: Topic settings, as the other clusters take them; the mock has none.

        Raises:
            EmbeddedKafkaError: It exists already, no topic can have that name, there are fewer
                brokers than replicas, or settings are asked for.
            ValueError: There would be no partition, or no replica, or more partitions than clients
                take from an answer.
        """
        if config:
            raise EmbeddedKafkaError(f"the embedded broker has no topic settings: {dict(config)}")
        # librdkafka takes any number: less than none ends the process, by an assertion in C.
        partitions = _count("partitions", partitions)
        replication_factor = _count("replication_factor", replication_factor)
        if partitions > _MOST_PARTITIONS:
            raise ValueError(f"partitions is {partitions}; at most {_MOST_PARTITIONS} are possible")
        if replication_factor > len(self.brokers):  # librdkafka makes as many as it can
            raise EmbeddedKafkaError(
                f"replication_factor is {replication_factor}, of {len(self.brokers)} brokers",
                _INVALID_REPLICATION_FACTOR,
            )
        self._checked("rd_kafka_mock_topic_create", _topic(name), partitions, replication_factor)

    def add_partitions(self, name: str, *, total: int) -> None:
        """What a `KafkaCluster` can do, and this one can't.

        Raises:
            EmbeddedKafkaError: Always.
        """
        raise EmbeddedKafkaError(
            f"{name} can't grow to {total} partitions: librdkafka's mock cluster can't do it. Mark "
            "the test real_kafka, or delete the topic and create a wider one"
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records and committed offsets.

        Raises:
            EmbeddedKafkaError: There is no such topic.
        """
        self._checked("rd_kafka_mock_topic_delete", _topic(name))

    def end_offsets(self, name: str) -> dict[int, int]:
        """For each partition of a topic, the offset that its next record will have.

        Raises:
            KafkaException: There is no such topic.
        """
        return end_offsets(self.admin(), name)

    def admin(self) -> AdminClient:
        """A new administration client. Of what it can ask for, the mock knows little."""
        return quiet_admin(self.bootstrap_servers)

    def delete_records(self, topic: str, partition: int, *, before: int) -> None:
        """Moves a partition's log start to an offset, as retention does.

        Batches are deleted whole: records of a batch that reaches past `before` may stay. As for
        Kafka, -1 is the partition's end.

        Raises:
            EmbeddedKafkaError: No such partition, or the offset lies past its end.
        """
        known = _topic(topic), _partition(partition)
        self._checked("rd_kafka_mock_partition_delete_records", *known, before)

    def set_leader(self, topic: str, partition: int, broker: int | None) -> None:
        """Makes a broker the partition's leader; None leaves it without one.

        Raises:
            EmbeddedKafkaError: No such partition or broker.
        """
        leader = -1 if broker is None else self._known(broker)
        self._require_partition(topic, partition)
        self._checked("rd_kafka_mock_partition_set_leader", _topic(topic), partition, leader)

    def set_topic_error(self, topic: str, error: int) -> None:
        """Answers Metadata requests for a topic with this error until it is set to 0.

        Raises:
            ValueError: That is no error code.
        """
        _require_codes([error])
        self._call("rd_kafka_mock_topic_set_error", _topic(topic), error)

    # Failures

    def fail(self, api: Api, *errors: int, broker: int | None = None) -> None:
        """Has the next requests of this kind fail, one error each, in this order.

        Args:
            api: The request, such as ``"JoinGroup"``.
            errors: Kafka's error codes; 0 lets one request through, `DISCONNECT` cuts the
                connection. The broker does not act on a request that fails.
            broker: The broker that fails them; None: whichever gets the request.

        Raises:
            EmbeddedKafkaError: No such broker; or `broker` is None after failures or delays
                of single brokers were asked for with the same request, which would hide
                the new ones for ever.
            ValueError: No such request, a code that is none, or more than 500 of a broker's.
        """
        key = _api_key(api)
        _require_codes(errors)
        if broker is not None:
            self._script(broker, api, [(error, timedelta(0)) for error in errors])
            return
        if api in self._scripted:
            raise EmbeddedKafkaError(
                f"{api} has failures or delays of single brokers, which hide those of the"
                " cluster: name the broker here too"
            )
        codes = (ctypes.c_int * len(errors))(*errors)
        self._call("rd_kafka_mock_push_request_errors_array", key, len(errors), codes)

    def delay(
        self, api: Api, by: timedelta, *, broker: int, error: int = 0, times: int = 1
    ) -> None:
        """Has a broker answer the next requests of this kind late; it acts on them at once.

        Args:
            api: The request, such as ``"OffsetCommit"``.
            by: How late, in whole milliseconds.
            broker: The broker that is slow.
            error: Kafka's error code to answer with; 0: the true answer.
            times: How many requests.

        Raises:
            EmbeddedKafkaError: No such broker.
            ValueError: No such request, less than one of them or more than 500, or a negative time.
        """
        if times < 1:
            raise ValueError(f"times is {times}; at least 1 is needed")
        _require_codes([error])
        self._script(broker, api, [(error, by)] * times)

    def clear_failures(self, api: Api) -> None:
        """Forgets the failures of the whole cluster still to come for this request.

        Raises:
            ValueError: No such request.
        """
        self._call("rd_kafka_mock_clear_request_errors", _api_key(api))

    # Brokers

    def broker_down(self, broker: int) -> None:
        """Cuts a broker's connections and refuses new ones. Leaders do not move.

        Raises:
            EmbeddedKafkaError: No such broker.
        """
        self._checked("rd_kafka_mock_broker_set_down", self._known(broker))

    def broker_up(self, broker: int) -> None:
        """Has a broker accept connections again, on the same port.

        Raises:
            EmbeddedKafkaError: No such broker.
        """
        self._checked("rd_kafka_mock_broker_set_up", self._known(broker))

    def set_rtt(self, broker: int, rtt: timedelta) -> None:
        """Delays every answer of a broker by this round-trip time, in whole milliseconds.

        Raises:
            EmbeddedKafkaError: No such broker.
        """
        self._checked("rd_kafka_mock_broker_set_rtt", self._known(broker), _milliseconds(rtt))

    def set_rack(self, broker: int, rack: str) -> None:
        """Sets the rack that Metadata names for a broker (KIP-36).

        Raises:
            EmbeddedKafkaError: No such broker.
        """
        self._checked("rd_kafka_mock_broker_set_rack", self._known(broker), rack.encode())

    def set_coordinator(self, group: str, broker: int) -> None:
        """Makes a broker the group's coordinator. The group's members and generation move along.

        Raises:
            EmbeddedKafkaError: No such broker.
        """
        self._checked(
            "rd_kafka_mock_coordinator_set", b"group", group.encode(), self._known(broker)
        )

    def set_api_version(self, api: Api, lowest: int, highest: int) -> None:
        """Limits the versions of a request that the brokers announce and take.

        JoinGroup, SyncGroup, LeaveGroup and Heartbeat are limited from the start to the
        versions that librdkafka's mock cluster really parses (5, 3, 2 and 4).

        Args:
            api: The request.
            lowest: The lowest version; -1 with -1 takes the request away altogether.
            highest: The highest version. Beyond what librdkafka implements, which it does not
                check, requests are misread.

        Raises:
            ValueError: No such request.
        """
        self._checked("rd_kafka_mock_set_apiversion", _api_key(api), lowest, highest)

    # What was asked of it

    def track_requests(self) -> None:
        """Records every request from now on, and forgets those recorded before."""
        self._call("rd_kafka_mock_clear_requests")
        self._call("rd_kafka_mock_start_request_tracking")

    def requests(self) -> list[TrackedRequest]:
        """The requests received since `track_requests`, in order of their arrival."""
        count = ctypes.c_size_t()
        array = self._call("rd_kafka_mock_get_requests", ctypes.byref(count))
        if not array:
            return []
        try:
            pointers = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))
            return [_tracked(self._library, pointers[i]) for i in range(count.value)]
        finally:
            self._library.rd_kafka_mock_request_destroy_array(array, count)

    # Calls

    def _call(self, function: str, *arguments: object) -> int:
        """Calls a function on the cluster. The lock keeps `close` from freeing it meanwhile."""
        with self._lock:
            if not self._destroy.alive:
                raise EmbeddedKafkaError("the cluster is closed")
            call: Callable[..., int] = getattr(self._library, function)
            try:
                return call(self._cluster, *arguments)
            finally:
                time.sleep(_SETTLING)

    def _checked(self, function: str, *arguments: object) -> None:
        code = self._call(function, *arguments)
        if code:
            raise EmbeddedKafkaError(
                f"{function}{arguments!r}: {self._library.rd_kafka_err2str(code).decode()}", code
            )

    def _require_partition(self, topic: str, partition: int) -> None:
        """For calls that would make the topic: what lies past a log's end can't be deleted."""
        try:
            self.delete_records(topic, partition, before=_PAST_ANY_END)
        except EmbeddedKafkaError as error:
            if error.code != _OFFSET_OUT_OF_RANGE:
                raise

    def _script(self, broker: int, api: Api, answers: list[tuple[int, timedelta]]) -> None:
        if len(answers) > _MOST_ANSWERS:
            raise ValueError(
                f"{len(answers)} answers of broker {broker} at once: {_MOST_ANSWERS} at most; "
                "ask for them in several calls"
            )
        flat = [ctypes.c_int(v) for error, rtt in answers for v in (error, _milliseconds(rtt))]
        self._checked(
            "rd_kafka_mock_broker_push_request_error_rtts",
            self._known(broker),
            _api_key(api),
            ctypes.c_size_t(len(answers)),
            *flat,
        )
        self._scripted.add(api)

    def _known(self, broker: int) -> int:
        """The broker's id, if it is one: librdkafka takes -1 for all, and most others silently."""
        if broker not in self.brokers:
            raise EmbeddedKafkaError(f"no broker {broker}: there are {list(self.brokers)}")
        return broker


def _new_client(library: ctypes.CDLL) -> int:
    """A client handle that lends the cluster its logging and timers, and never connects."""
    reason = ctypes.create_string_buffer(512)
    conf = library.rd_kafka_conf_new()
    # Emergencies alone: it would complain on stderr that it has no broker to connect to.
    if library.rd_kafka_conf_set(conf, b"log_level", b"0", reason, len(reason)) != _CONF_OK:
        library.rd_kafka_conf_destroy(conf)
        raise EmbeddedKafkaError(reason.value.decode())
    client: int | None = library.rd_kafka_new(_PRODUCER, conf, reason, len(reason))
    if client is None:
        library.rd_kafka_conf_destroy(conf)  # only a client that came up owns it
        raise EmbeddedKafkaError(reason.value.decode())
    return client


def _destroy(library: ctypes.CDLL, client: int, cluster: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child has the memory but not the threads, and would wait for them
    library.rd_kafka_mock_cluster_destroy(cluster)
    library.rd_kafka_destroy(client)


def _tracked(library: ctypes.CDLL, request: int | None) -> TrackedRequest:
    key: int = library.rd_kafka_mock_request_api_key(request)
    return TrackedRequest(
        broker=library.rd_kafka_mock_request_id(request),
        api_key=key,
        api=next((name for name, number in API_KEYS.items() if number == key), None),
        at=timedelta(microseconds=library.rd_kafka_mock_request_timestamp(request)),
    )


def _topic(name: str) -> bytes:
    """What Kafka takes as a name: librdkafka takes any, up to its first NUL."""
    if not is_topic_name(name):
        raise EmbeddedKafkaError(f"no topic can be named {name!r}", _INVALID_TOPIC)
    return name.encode()


def _count(name: str, number: int) -> int:
    if number < 1 and number != _DEFAULT:
        raise ValueError(f"{name} is {number}; at least 1 is needed, or -1 for the default")
    return 1 if number == _DEFAULT else number


def _partition(number: int) -> int:
    """C would take what is left of a larger number."""
    if not 0 <= number < _INT32:
        raise EmbeddedKafkaError(f"no topic has a partition {number}", _UNKNOWN_PARTITION)
    return number


def _api_key(api: Api) -> int:
    if api not in API_KEYS:
        raise ValueError(f"no request is named {api!r}; there are {', '.join(API_KEYS)}")
    return API_KEYS[api]


def _require_codes(errors: Iterable[int]) -> None:
    """Ctypes would cut a larger number off, to a code of another error."""
    for error in errors:
        if not -0x8000 <= error <= 0x7FFF:  # noqa: PLR2004  # the protocol's int16
            raise ValueError(f"{error} is no error code of Kafka's, which have 16 bits")


def _milliseconds(duration: timedelta) -> int:
    if duration < timedelta(0):
        raise ValueError(f"{duration} is in the past: give a time of zero or more")
    return duration // _MILLISECOND
