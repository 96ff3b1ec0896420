"""What the embedded broker offers, each as a client sees it."""

from __future__ import annotations

import ctypes
import select
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from embedded_wire import Wire, announced, heartbeat, join, member, refused_join
from kio.index import api_key_map  # type: ignore[attr-defined]  # public, if not declared so

from kafka_coop.testing import librdkafka
from kafka_coop.testing.cluster import end_offsets, quiet_admin
from kafka_coop.testing.embedded import API_KEYS, DISCONNECT, Api, EmbeddedKafka, EmbeddedKafkaError

COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
TOPIC_ALREADY_EXISTS = 36
FAR_OFF = timedelta(minutes=5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    """Two brokers for tests that leave no trace but topics and groups of their own."""
    with EmbeddedKafka(brokers=2) as kafka:
        yield kafka


def address(kafka: EmbeddedKafka, broker: int) -> str:
    return kafka.bootstrap_servers.split(",")[broker - 1]


def connect(stack: ExitStack, kafka: EmbeddedKafka, broker: int = 1) -> Wire:
    return stack.enter_context(closing(Wire(address(kafka, broker))))


def client(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


def produce(kafka: EmbeddedKafka, topic: str, values: list[bytes]) -> None:
    # One batch a record: what is deleted is deleted by whole batches.
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "batch.num.messages": 1, "log_level": 0}
    )
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(10) == 0


def consumer(kafka: EmbeddedKafka, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 1100,  # a member that left is waited for all but a second of it
            "heartbeat.interval.ms": 200,
            "log_level": 0,
        }
    )


def read(from_consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        message = from_consumer.poll(10)
        assert message is not None, f"only {values} came"
        assert message.error() is None
        values.append(message.value())
    return values


class TestRecords:
    def test_what_was_produced_is_consumed_in_a_group_and_committed(
        self, cluster: EmbeddedKafka
    ) -> None:
        cluster.create_topic("records", partitions=1)
        produce(cluster, "records", [b"a", b"b", b"c"])
        with consumer(cluster, "readers") as first:
            first.subscribe(["records"])
            assert read(first, 2) == [b"a", b"b"]
            first.commit(
                offsets=[TopicPartition("records", 0, 2)],
                asynchronous=False,
            )
        with consumer(cluster, "readers") as second:
            (committed,) = second.committed([TopicPartition("records", 0)], timeout=10)
            assert committed.offset == 2
            second.subscribe(["records"])
            assert read(second, 1) == [b"c"]

    def test_the_producer_of_another_process_is_served(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("afar", partitions=1)
        script = textwrap.dedent(f"""
            from confluent_kafka import Producer
            producer = Producer({{"bootstrap.servers": {cluster.bootstrap_servers!r}}})
            producer.produce("afar", b"hello", partition=0)
            assert producer.flush(10) == 0
        """)
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
        with consumer(cluster, "near") as reader:
            reader.assign([TopicPartition("afar", 0, 0)])
            assert read(reader, 1) == [b"hello"]


class TestTopics:
    def test_a_topic_is_there_when_the_call_returns(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("wide", partitions=12, replication_factor=2)
        metadata = client(cluster).list_topics("wide", timeout=10).topics["wide"]
        assert sorted(metadata.partitions) == list(range(12))
        assert all(sorted(p.replicas) == [1, 2] for p in metadata.partitions.values())

    def test_a_topic_is_created_once(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("once")
        with pytest.raises(EmbeddedKafkaError) as refused:
            cluster.create_topic("once", partitions=9)
        assert refused.value.code == TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize("name", ["", ".", "a b", "a\0b", "t" * 250])
    def test_a_name_that_no_broker_takes_is_refused(
        self, cluster: EmbeddedKafka, name: str
    ) -> None:
        for call in (cluster.create_topic, cluster.delete_topic):
            with pytest.raises(EmbeddedKafkaError, match="named") as refused:
                call(name)
            assert refused.value.code == KafkaError.TOPIC_EXCEPTION
        assert not {name, "a"} & set(client(cluster).list_topics(timeout=10).topics)

    def test_topic_settings_are_not_taken_silently(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("plain", config={})
        with pytest.raises(EmbeddedKafkaError, match="no topic settings"):
            cluster.create_topic("compacted", config={"cleanup.policy": "compact"})

    @pytest.mark.parametrize("count", [0, -2])
    @pytest.mark.parametrize("of", ["partitions", "replication_factor"])
    def test_what_would_end_the_process_is_refused(
        self, cluster: EmbeddedKafka, of: str, count: int
    ) -> None:
        counts: dict[str, Any] = {of: count}
        with pytest.raises(ValueError, match=f"{of} is {count}"):
            cluster.create_topic("of-nothing", **counts)

    def test_what_its_brokers_can_not_hold_is_refused(self, cluster: EmbeddedKafka) -> None:
        """librdkafka would make what it can, and of the partitions nobody could hear."""
        brokers = len(cluster.brokers)
        with pytest.raises(EmbeddedKafkaError, match=f"of {brokers} brokers") as refused:
            cluster.create_topic("too-safe", replication_factor=brokers + 1)
        assert refused.value.code == KafkaError.INVALID_REPLICATION_FACTOR
        with pytest.raises(ValueError, match="at most 99999"):
            cluster.create_topic("too-wide", partitions=100_000)
        assert not {"too-safe", "too-wide"} & client(cluster).list_topics(timeout=10).topics.keys()

    def test_a_brokers_defaults_may_be_asked_for(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("by-default", partitions=-1, replication_factor=-1)
        metadata = client(cluster).list_topics("by-default", timeout=10).topics["by-default"]
        assert [len(p.replicas) for p in metadata.partitions.values()] == [1]

    def test_a_deleted_topic_can_come_back_wider(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("growing", partitions=2)
        produce(cluster, "growing", [b"lost"])
        cluster.delete_topic("growing")
        cluster.create_topic("growing", partitions=5)
        assert (
            len(client(cluster).list_topics("growing", timeout=10).topics["growing"].partitions)
            == 5
        )
        with consumer(cluster, "growers") as reader:
            watermarks = reader.get_watermark_offsets(TopicPartition("growing", 0), timeout=10)
            assert watermarks == (0, 0)

    def test_an_unknown_topic_cannot_be_deleted(self, cluster: EmbeddedKafka) -> None:
        with pytest.raises(EmbeddedKafkaError) as refused:
            cluster.delete_topic("never")
        assert refused.value.code == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_a_partitions_end_is_told(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("ends", partitions=2)
        produce(cluster, "ends", [b"a", b"b"])
        assert cluster.end_offsets("ends") == {0: 2, 1: 0}

    def test_a_leader_that_does_not_yet_know_of_itself_is_asked_again(
        self, cluster: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.create_topic("ends-unknown")
        admin, answers = (
            quiet_admin(cluster.bootstrap_servers),
            [KafkaError.NOT_LEADER_FOR_PARTITION],
        )
        list_offsets = admin.list_offsets

        def refused_once(*asked: Any, **options: Any) -> Any:
            if answers:
                raise KafkaException(KafkaError(answers.pop()))
            return list_offsets(*asked, **options)

        monkeypatch.setattr(admin, "list_offsets", refused_once)
        assert end_offsets(admin, "ends-unknown") == {0: 0}
        assert not answers

    def test_an_unknown_topic_has_no_ends(self, cluster: EmbeddedKafka) -> None:
        with pytest.raises(KafkaException) as refused:
            cluster.end_offsets("no-such-topic")
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_deleted_records_move_the_log_start(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("retained")
        produce(cluster, "retained", [b"0", b"1", b"2", b"3"])
        cluster.delete_records("retained", 0, before=3)
        with consumer(cluster, "retainers") as reader:
            reader.assign([TopicPartition("retained", 0, 3)])
            assert read(reader, 1) == [b"3"]
            watermarks = reader.get_watermark_offsets(TopicPartition("retained", 0), timeout=10)
            assert watermarks == (3, 4)

    @pytest.mark.parametrize(
        ("topic", "partition"),
        [("nope", 0), ("nope", 7), ("led", 1), ("led", -1), ("led", 1 << 32)],
    )
    def test_what_is_not_there_has_no_leader_nor_records(
        self, cluster: EmbeddedKafka, topic: str, partition: int
    ) -> None:
        if "led" not in client(cluster).list_topics(timeout=10).topics:
            cluster.create_topic("led")
            produce(cluster, "led", [b"0"])
        with pytest.raises(EmbeddedKafkaError):
            cluster.set_leader(topic, partition, 1)
        with pytest.raises(EmbeddedKafkaError):
            cluster.delete_records(topic, partition, before=0)
        assert "nope" not in client(cluster).list_topics(timeout=10).topics
        with pytest.raises(EmbeddedKafkaError, match="no broker 9"):
            cluster.set_leader("led", 0, 9)

    def test_a_log_that_was_cut_may_have_another_leader(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("cut", replication_factor=2)
        produce(cluster, "cut", [b"0", b"1", b"2"])
        cluster.delete_records("cut", 0, before=2)
        for leader in (2, 1):
            cluster.set_leader("cut", 0, leader)
        with consumer(cluster, "cutters") as reader:
            assert reader.get_watermark_offsets(TopicPartition("cut", 0), timeout=10) == (2, 3)
            cluster.delete_records("cut", 0, before=-1)
            assert reader.get_watermark_offsets(TopicPartition("cut", 0), timeout=10) == (3, 3)

    def test_a_request_that_is_none_is_named(self, cluster: EmbeddedKafka) -> None:
        wrong: Any = "Bogus"
        asked: list[Callable[[], None]] = [
            lambda: cluster.fail(wrong, 1),
            lambda: cluster.delay(wrong, timedelta(0), broker=1),
            lambda: cluster.clear_failures(wrong),
            lambda: cluster.set_api_version(wrong, 0, 1),
        ]
        for ask in asked:
            with pytest.raises(ValueError, match=r"'Bogus'; there are Produce, Fetch"):
                ask()
        with pytest.raises(ValueError, match="times is 0"):
            cluster.delay("Metadata", timedelta(0), broker=1, times=0)
        cluster.fail("Metadata", 0)
        delay = partial(cluster.delay, "Produce", timedelta(0), broker=1)
        with pytest.raises(ValueError, match="600 answers of broker 1 at once: 500 at most"):
            delay(times=600)
        with pytest.raises(ValueError, match="is no error code"):
            delay(error=1 << 20)
        with pytest.raises(ValueError, match="is no error code"):
            cluster.fail("Produce", 1 << 40)
        with pytest.raises(ValueError, match="in the past"):
            cluster.set_rtt(1, timedelta(seconds=-1))

    @pytest.mark.parametrize(("leader", "shown"), [(2, 2), (1, 1), (None, -1)])
    def test_a_partitions_leader_is_moved(
        self, cluster: EmbeddedKafka, leader: int | None, shown: int
    ) -> None:
        topic = f"led-by-{leader}"
        cluster.create_topic(topic, replication_factor=2)
        cluster.set_leader(topic, 0, leader)
        metadata = client(cluster).list_topics(topic, timeout=10).topics[topic]
        assert metadata.partitions[0].leader == shown

    def test_a_topic_error_stays_until_it_is_cleared(self, cluster: EmbeddedKafka) -> None:
        cluster.create_topic("guarded")
        cluster.set_topic_error("guarded", KafkaError.TOPIC_AUTHORIZATION_FAILED)
        admin = client(cluster)
        for _ in range(2):
            error = admin.list_topics("guarded", timeout=10).topics["guarded"].error
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        cluster.set_topic_error("guarded", 0)
        assert admin.list_topics("guarded", timeout=10).topics["guarded"].error is None


class TestFailures:
    @pytest.fixture
    def kafka(self) -> Iterator[EmbeddedKafka]:
        with EmbeddedKafka(brokers=2) as cluster:
            for group in ("one", "two"):
                cluster.set_coordinator(group, {"one": 1, "two": 2}[group])
            yield cluster

    def test_errors_come_one_a_request_in_their_order(self, kafka: EmbeddedKafka) -> None:
        with closing(Wire(address(kafka, 1))) as wire:
            joined = member(wire, "one")
            kafka.fail("Heartbeat", REBALANCE_IN_PROGRESS, 0, UNKNOWN_MEMBER_ID)
            seen = [heartbeat(wire, "one", joined) for _ in range(4)]
        assert seen == [REBALANCE_IN_PROGRESS, 0, UNKNOWN_MEMBER_ID, 0]

    def test_other_requests_are_spared(self, kafka: EmbeddedKafka) -> None:
        with closing(Wire(address(kafka, 1))) as wire:
            kafka.fail("SyncGroup", REBALANCE_IN_PROGRESS)
            assert join(wire, "one").error_code == 0

    def test_cleared_errors_do_not_come(self, kafka: EmbeddedKafka) -> None:
        with closing(Wire(address(kafka, 1))) as wire:
            kafka.fail("JoinGroup", COORDINATOR_NOT_AVAILABLE)
            kafka.clear_failures("JoinGroup")
            assert join(wire, "one").error_code == 0

    def test_a_disconnect_cuts_the_connection(self, kafka: EmbeddedKafka) -> None:
        with closing(Wire(address(kafka, 1))) as wire:
            kafka.fail("JoinGroup", DISCONNECT)
            with pytest.raises((AssertionError, ConnectionError)):
                join(wire, "one")
        with closing(Wire(address(kafka, 1))) as wire:
            assert join(wire, "one").error_code == 0

    def test_one_broker_fails_alone(self, kafka: EmbeddedKafka) -> None:
        kafka.fail("JoinGroup", COORDINATOR_NOT_AVAILABLE, broker=2)
        with ExitStack() as stack:
            assert join(connect(stack, kafka, 1), "one").error_code == 0
            assert refused_join(connect(stack, kafka, 2), "two") == COORDINATOR_NOT_AVAILABLE
            assert join(connect(stack, kafka, 2), "two").error_code == 0

    def test_errors_that_would_never_be_seen_are_refused(self, kafka: EmbeddedKafka) -> None:
        kafka.fail("JoinGroup", COORDINATOR_NOT_AVAILABLE, broker=2)
        with pytest.raises(EmbeddedKafkaError, match="name the broker"):
            kafka.fail("JoinGroup", COORDINATOR_NOT_AVAILABLE)

    def test_a_delayed_answer_comes_after_those_of_the_other_broker(
        self, kafka: EmbeddedKafka
    ) -> None:
        kafka.delay("FindCoordinator", FAR_OFF, broker=1)
        with ExitStack() as stack:
            assert self._slower_broker(connect(stack, kafka, 1), connect(stack, kafka, 2))

    def test_a_round_trip_time_delays_every_answer(self, kafka: EmbeddedKafka) -> None:
        kafka.set_rtt(1, FAR_OFF)
        with ExitStack() as stack:
            assert self._slower_broker(connect(stack, kafka, 1), connect(stack, kafka, 2))
            kafka.set_rtt(1, timedelta(0))
            assert announced(connect(stack, kafka, 1), "Fetch")

    @staticmethod
    def _slower_broker(slow: Wire, fast: Wire) -> bool:
        """Whether `slow` has nothing to say after `fast` answered a later request."""
        slow.send("find_coordinator", 0, key="one")
        assert fast.ask("find_coordinator", 0, key="one").error_code == 0
        return select.select([slow.socket], [], [], 0)[0] == []

    def test_a_delayed_request_still_takes_effect(self, kafka: EmbeddedKafka) -> None:
        with ExitStack() as stack:
            joined = member(connect(stack, kafka), "one")
            kafka.delay("LeaveGroup", FAR_OFF, broker=1)
            leaving = connect(stack, kafka)
            leaving.send("leave_group", 1, group_id="one", member_id=joined.member_id)
            deadline = time.monotonic() + 10
            while heartbeat(connect(stack, kafka), "one", joined) != UNKNOWN_MEMBER_ID:
                assert time.monotonic() < deadline


class TestBrokers:
    @pytest.fixture
    def kafka(self) -> Iterator[EmbeddedKafka]:
        with EmbeddedKafka(brokers=2) as cluster:
            yield cluster

    def test_a_broker_goes_down_alone_and_comes_up_on_its_port(self, kafka: EmbeddedKafka) -> None:
        host, port = address(kafka, 2).split(":")
        with ExitStack() as stack:
            before = connect(stack, kafka, 2)
            assert announced(before, "Fetch"), "accepted, not just queued by the kernel"
            kafka.broker_down(2)
            assert before.socket.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=10)
            assert announced(connect(stack, kafka, 1), "Fetch")
            kafka.broker_up(2)
            assert announced(connect(stack, kafka, 2), "Fetch")

    def test_the_coordinator_moves_with_the_group(self, kafka: EmbeddedKafka) -> None:
        kafka.set_coordinator("movers", 1)
        with ExitStack() as stack:
            first, second = connect(stack, kafka, 1), connect(stack, kafka, 2)
            assert first.ask("find_coordinator", 0, key="movers").node_id == 1
            joined = member(first, "movers")
            kafka.set_coordinator("movers", 2)
            assert first.ask("find_coordinator", 0, key="movers").node_id == 2
            assert heartbeat(first, "movers", joined) == NOT_COORDINATOR
            assert heartbeat(second, "movers", joined) == 0

    def test_racks_are_in_the_metadata(self, kafka: EmbeddedKafka) -> None:
        kafka.set_rack(2, "b")
        with closing(Wire(address(kafka, 1))) as wire:
            brokers = wire.ask("metadata", 1, topics=()).brokers
        assert {broker.node_id: broker.rack for broker in brokers} == {1: None, 2: "b"}

    def test_versions_can_be_limited_and_taken_away(self, kafka: EmbeddedKafka) -> None:
        kafka.set_api_version("OffsetFetch", 1, 3)
        kafka.set_api_version("Fetch", -1, -1)
        with closing(Wire(address(kafka, 1))) as wire:
            assert announced(wire, "OffsetFetch") == range(1, 4)
            assert not announced(wire, "Fetch")

    @pytest.mark.parametrize(
        "act",
        [
            lambda kafka: kafka.broker_down(3),
            lambda kafka: kafka.broker_up(-1),
            lambda kafka: kafka.set_rtt(0, timedelta(0)),
            lambda kafka: kafka.set_rack(3, "c"),
            lambda kafka: kafka.set_coordinator("g", 3),
            lambda kafka: kafka.fail("Fetch", 1, broker=3),
            lambda kafka: kafka.delay("Fetch", timedelta(0), broker=3),
        ],
    )
    def test_a_broker_that_is_not_there_is_refused(
        self, kafka: EmbeddedKafka, act: Callable[[EmbeddedKafka], None]
    ) -> None:
        with pytest.raises(EmbeddedKafkaError, match="no broker"):
            act(kafka)

    def test_the_first_rebalance_waits_as_long_as_told(self) -> None:
        with (
            EmbeddedKafka(group_initial_rebalance_delay=timedelta(seconds=1)) as kafka,
            ExitStack() as stack,
        ):
            first, second = connect(stack, kafka), connect(stack, kafka)
            # Without the delay the first would be answered, alone, before the second asks.
            first.send_join("patient")
            second.send_join("patient")
            answers = [first.receive("join_group", 5), second.receive("join_group", 5)]
        assert len({answer.generation_id for answer in answers}) == 1
        assert sorted(len(answer.members) for answer in answers) == [0, 2]


class TestTracking:
    def test_every_request_is_told_with_its_broker(self) -> None:
        with EmbeddedKafka(brokers=2) as kafka, ExitStack() as stack:
            wires = [connect(stack, kafka, broker) for broker in (2, 1)]
            announced(wires[0], "Fetch")
            kafka.track_requests()
            assert kafka.requests() == []
            wires[0].ask("find_coordinator", 0, key="g")
            announced(wires[1], "Fetch")
            told = kafka.requests()
            assert [(r.broker, r.api) for r in told] == [(2, "FindCoordinator"), (1, "ApiVersions")]
            assert [r.api_key for r in told] == [
                API_KEYS["FindCoordinator"],
                API_KEYS["ApiVersions"],
            ]
            assert all(a.at <= b.at for a, b in pairwise(told))
            assert told[-1].at <= timedelta(seconds=time.monotonic())
            kafka.track_requests()
            assert kafka.requests() == []

    def test_the_names_are_kafkas(self) -> None:
        assert {api: api_key_map[key].replace("_", "") for api, key in API_KEYS.items()} == {
            api: api.lower() for api in API_KEYS
        }


class TestLifetime:
    def test_closing_twice_is_closing_once(self) -> None:
        kafka = EmbeddedKafka()
        kafka.close()
        kafka.close()
        assert "closed" in repr(kafka)
        with pytest.raises(EmbeddedKafkaError, match="closed"):
            kafka.create_topic("late")

    def test_a_cluster_needs_a_broker(self) -> None:
        with pytest.raises(ValueError, match="at least one broker"):
            EmbeddedKafka(brokers=0)

    @pytest.mark.parametrize(
        "script",
        [
            "kafka = EmbeddedKafka()",
            """
            kafka = EmbeddedKafka()
            child = os.fork()
            if not child:
                kafka.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            kafka.create_topic("alive")
            """,
            """
            import gc
            from confluent_kafka.admin import AdminClient
            from kafka_coop.testing import librdkafka
            with EmbeddedKafka() as one, EmbeddedKafka(brokers=3) as three:
                one.create_topic("here")
                client = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
                assert "here" not in client.list_topics(timeout=10).topics
                assert len(three.bootstrap_servers.split(",")) == 3
            del client
            gc.collect()  # a client frees its threads when Python frees it
            assert librdkafka.load().rd_kafka_thread_cnt() == 0
            """,
            """
            import gc, socket
            from kafka_coop.testing import librdkafka
            kafka = EmbeddedKafka()
            host, port = kafka.bootstrap_servers.split(":")
            del kafka
            gc.collect()
            assert librdkafka.load().rd_kafka_thread_cnt() == 0
            assert socket.socket().connect_ex((host, int(port)))
            """,
        ],
        ids=[
            "exits while open",
            "closed in a forked child",
            "side by side, and nothing left",
            "closed when collected",
        ],
    )
    def test_processes_end_cleanly(self, script: str) -> None:
        prelude = "import os\nfrom kafka_coop.testing import EmbeddedKafka\n"
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore::DeprecationWarning",
                "-c",
                prelude + textwrap.dedent(script),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")


class TestLibrary:
    @pytest.fixture(autouse=True)
    def _fresh(self) -> Iterator[None]:
        librdkafka.load.cache_clear()
        yield
        librdkafka.load.cache_clear()

    def test_it_is_the_one_that_confluent_kafka_runs_on(self) -> None:
        with EmbeddedKafka() as kafka:
            before = librdkafka.load().rd_kafka_thread_cnt()
            with consumer(kafka, "same"):
                assert librdkafka.load().rd_kafka_thread_cnt() > before

    def test_the_bundled_file_serves_without_the_extension(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rest = [file for file in librdkafka._candidates() if "cimpl" not in file]
        if not rest:
            pytest.skip("librdkafka is linked into the extension or the system's")
        monkeypatch.setattr(librdkafka, "_candidates", lambda: iter(rest))
        assert librdkafka.load().rd_kafka_thread_cnt() >= 0

    def test_a_library_without_the_mock_cluster_is_an_error_with_a_remedy(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = ctypes.util.find_library("c")
        assert plain is not None
        monkeypatch.setattr(librdkafka, "_candidates", lambda: iter(["/no/such.so", plain]))
        with pytest.raises(librdkafka.MockClusterUnavailableError) as refused:
            EmbeddedKafka()
        text = str(refused.value)
        assert "pip install" in text
        assert "rd_kafka_mock_cluster_new" in text
        assert "/no/such.so" in text


def test_an_injected_error_reaches_confluents_consumer(cluster: EmbeddedKafka) -> None:
    cluster.create_topic("coded")
    cluster.fail("OffsetCommit", KafkaError.GROUP_AUTHORIZATION_FAILED)
    with consumer(cluster, "coded") as reader, pytest.raises(KafkaException) as refused:
        reader.commit(offsets=[TopicPartition("coded", 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_every_api_can_be_told_to_fail(cluster: EmbeddedKafka) -> None:
    apis: list[Api] = list(API_KEYS)
    for api in apis:
        cluster.fail(api, COORDINATOR_NOT_AVAILABLE)
        cluster.clear_failures(api)
