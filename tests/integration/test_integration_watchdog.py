"""Crashes noticed at once, and nothing taken for a crash that is none."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from integration_processes import children, ignores, is_running
from integration_support import (
    PATIENCE,
    Cluster,
    Member,
    classic,
    group_description,
    members,
    shared,
    unique,
    until,
)
from test_integration_processes import Child

from kafka_coop.testing import EmbeddedKafka, LocalKafka
from kafka_coop.testing.cluster import KafkaCluster

SESSION = int(2 * PATIENCE * 1000)
"""Milliseconds. Longer than any test here has patience: only a LeaveGroup can be what ended it."""

BEATS = 100
"""Heartbeats of another member during which a living member is watched, 50 ms apart."""

LOOKS = 15
"""Of a watchdog at its parent. The first ten take a second in all, each of the others one more."""

WATCHED: dict[str, Any] = {"coop_watchdog": True, "session_timeout_ms": SESSION}


@contextmanager
def pair(cluster: Cluster, how: str = "poll", **config: Any) -> Iterator[tuple[Child, Member, str]]:
    """A watched member in a process of its own, and one here, that share a topic."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=2)
    child = Child(cluster, group, topic, how, **WATCHED, **config)
    here = Member(cluster, group, session_timeout_ms=SESSION, **config)
    try:
        with members(here):
            until(
                lambda: bool(child.heard("assigned")), within=2 * PATIENCE
            )  # two interpreters start
            if how != "poll":
                until(lambda: bool(child.heard("done")), within=2 * PATIENCE)
            yield child, here, topic
    finally:
        child.process.kill()
        child.end()


def watches(member: Member) -> bool:
    guard = classic(member)._guard
    return guard is not None and guard._process is not None


def pid_of_watchdog(member: Member) -> int:
    guard = classic(member)._guard
    assert guard is not None
    assert guard._process is not None
    return guard._process.pid


def watchdog_of(parent: int) -> int:
    """The pid of another process's watchdog."""
    found = children({parent}, b"kafka_coop.watchdog")
    assert len(found) == 1, found
    return found.pop()


def has_read_everything(pid: int) -> bool:
    """Its interpreter is up, and its pipe empty: it knows whom it watches over, and waits."""
    if not ignores(pid, signal.SIGTERM):
        return False
    pipe = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
    try:
        (unread,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    finally:
        os.close(pipe)
    return bool(unread == 0)


def sleeps(pid: int) -> int:
    """How often a process has gone to sleep."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not tell")


def beats(member: Member) -> float:
    """How many of a member's heartbeats were acknowledged."""
    name = "kafka_coop_heartbeat_latency_seconds_count"
    return sum(s.value for f in member.registry.collect() for s in f.samples if s.name == name)


def in_group(kafka: KafkaCluster, member: Member) -> int:
    """How many members the coordinator has in its books."""
    return len(group_description(kafka, member.group).members)


@pytest.mark.kafka
def test_a_killed_members_partitions_are_taken_at_once(kafka: KafkaCluster) -> None:
    with pair(kafka) as (child, here, topic):
        here.subscribe(topic)
        until(lambda: len(here.owned) == 1, here)
        child.send(signal.SIGKILL)
        shared(topic, 2, here)


@pytest.mark.kafka
@pytest.mark.since("2.2", "member ids before the join (KIP-394)")
def test_a_member_killed_in_its_first_join_does_not_stay_in_the_round(kafka: KafkaCluster) -> None:
    """The coordinator waits for the id that it gave, whether its JoinGroup is answered or not."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    eager: dict[str, Any] = {
        "session_timeout_ms": SESSION,
        "partition_assignment_strategy": "range",
    }
    here = Member(kafka, group, topic, **eager)
    with members(here):
        shared(topic, 2, here)
        child = Child(kafka, group, topic, coop_watchdog=True, **eager)
        try:
            # Nobody polls here, nothing is given up, and the newcomer's JoinGroup is parked.
            until(lambda: in_group(kafka, here) == 2, within=2 * PATIENCE)
            child.send(signal.SIGKILL)
            until(lambda: in_group(kafka, here) == 1)
            shared(topic, 2, here)
        finally:
            child.process.kill()
            child.end()


@pytest.mark.kafka
def test_a_stopped_member_is_not_a_dead_one(kafka: KafkaCluster) -> None:
    with pair(kafka) as (child, here, topic):
        here.subscribe(topic)
        until(lambda: len(here.owned) == 1, here)
        watchdog = watchdog_of(child.process.pid)
        until(lambda: has_read_everything(watchdog), here)
        child.send(signal.SIGSTOP)
        generation, before = classic(here).metadata().generation, beats(here)
        until(lambda: beats(here) >= before + BEATS, here)
        assert classic(here).metadata().generation == generation
        assert in_group(kafka, here) == 2
        assert is_running(watchdog)
        child.send(signal.SIGCONT)
        child.send(signal.SIGKILL)
        shared(topic, 2, here)


@pytest.mark.kafka
def test_a_forked_child_that_lives_on_holds_nothing_up(kafka: KafkaCluster) -> None:
    """Its copy of the pipe would, as long as it were open."""
    with pair(kafka, "fork") as (child, here, topic):
        here.subscribe(topic)
        until(lambda: len(here.owned) == 1, here)
        child.send(signal.SIGKILL)
        shared(topic, 2, here)


@pytest.mark.kafka
@pytest.mark.parametrize("how", ["pipe", "exec"])
def test_a_pipe_that_a_living_process_closed_is_no_death(kafka: KafkaCluster, how: str) -> None:
    with pair(kafka, how) as (child, here, _):
        watchdog = watchdog_of(child.process.pid)
        # One that waited for the pipe would sleep on; one that took its end for a death would go.
        until(lambda: ignores(watchdog, signal.SIGTERM))
        before = sleeps(watchdog)
        until(lambda: sleeps(watchdog) >= before + LOOKS)
        assert child.process.poll() is None
        assert in_group(kafka, here) == 1
        child.send(signal.SIGKILL)
        until(lambda: in_group(kafka, here) == 0)


def test_closing_ends_it_and_leaves_no_zombie(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic, **WATCHED)
    with members(member):
        shared(topic, 1, member)
        pid = pid_of_watchdog(member)
        assert is_running(pid)
        embedded.track_requests()
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert len(_leaves(embedded)) == 1, "the member's own"


def test_one_that_dies_is_replaced_with_the_next_rebalance(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    # Not as long a session as the others': a round of the mock's takes one.
    member = Member(embedded, unique("g"), topic, coop_watchdog=True)
    with members(member):
        shared(topic, 1, member)
        first = pid_of_watchdog(member)
        os.kill(first, signal.SIGKILL)
        until(lambda: not is_running(first), member)
        member.consumer.enforce_rebalance()  # its identity stays, but for the generation
        until(lambda: watches(member) and pid_of_watchdog(member) != first, member)
        assert is_running(pid_of_watchdog(member))


def test_it_ignores_what_stops_a_service_and_shows_no_secret(embedded: EmbeddedKafka) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic, ssl_key_password="hunter2", **WATCHED)
    with members(member):
        shared(topic, 1, member)
        pid = pid_of_watchdog(member)
        until(lambda: ignores(pid, signal.SIGTERM), member)  # its interpreter takes a while
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        for file in ("cmdline", "environ"):
            assert b"hunter2" not in Path(f"/proc/{pid}/{file}").read_bytes()
        assert "hunter2" not in repr(vars(classic(member)._guard))
        assert is_running(pid)


def _leaves(embedded: EmbeddedKafka) -> list[object]:
    return [r for r in embedded.requests() if r.api == "LeaveGroup"]


# --- with credentials -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def guarded_kafka(authority: trustme.CA) -> Iterator[LocalKafka]:
    """A broker that takes nobody without TLS and a password."""
    certificate = authority.issue_cert("127.0.0.1")
    listener = "listener.name.client."
    properties = {
        listener + "ssl.keystore.type": "PEM",
        listener + "ssl.keystore.key": _pkcs8(certificate.private_key_pem.bytes()),
        listener + "ssl.keystore.certificate.chain": "".join(
            blob.bytes().decode() for blob in certificate.cert_chain_pems
        ),
        listener + "sasl.enabled.mechanisms": "PLAIN",
        listener + "plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="hunter2";'
        ),
    }
    with LocalKafka(client_protocol="SASL_SSL", properties=properties) as kafka:
        yield kafka


def _pkcs8(key: bytes) -> str:
    loaded = serialization.load_pem_private_key(key, password=None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


@pytest.fixture(scope="module")
def bundle(authority: trustme.CA) -> str:
    """As large as a system's, larger than what a pipe holds; the last one is who signed."""
    others = [trustme.CA() for _ in range(150)]
    pem = "".join(ca.cert_pem.bytes().decode() for ca in (*others, authority))
    assert len(pem) > 1 << 16
    return pem


@pytest.mark.kafka
def test_it_logs_in_as_the_member_does(guarded_kafka: LocalKafka, bundle: str) -> None:
    secure = {
        "security_protocol": "sasl_ssl",
        "ssl_ca_pem": bundle,
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "hunter2",
    }
    with pair(guarded_kafka, **secure) as (child, here, topic):
        here.subscribe(topic)
        until(lambda: len(here.owned) == 1, here)
        child.send(signal.SIGKILL)
        shared(topic, 2, here)
