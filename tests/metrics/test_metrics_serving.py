"""Metrics and health over HTTP, health's judgement, and the end by signal."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.client import RemoteDisconnected
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import confluent_kafka
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kafka_coop import CoopConsumer, Shutdown
from kafka_coop.client.health import Health, assess
from kafka_coop.errors import ConfigurationError
from kafka_coop.metrics import MetricsServer, serve
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot, PartitionProgress
from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.embedded import EmbeddedKafka
from kafka_coop.types import Generation, Partitions, TopicPartition

WELL = Health(
    subscribed=True,
    joined=True,
    stable=True,
    fenced=False,
    poll_overdue=False,
    lagging=None,
    closed=False,
    over=False,
    lag=3,
    owned=1,
    generation=1,
    since_poll=timedelta(seconds=1),
)


class Stub:
    """A consumer that is as well as it is told to be."""

    def __init__(self, health: Health, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.now = health

    def health(self, max_lag: int | None = None) -> Health:
        return replace(self.now, lagging=None if max_lag is None else max_lag < 3)


def get(server: MetricsServer, path: str, accept: str = "") -> tuple[int, str]:
    request = Request(f"http://127.0.0.1:{server.port}{path}", headers={"Accept": accept})
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


# --- over HTTP -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("health", "live", "ready"),
    [
        (WELL, 200, 200),
        (replace(WELL, stable=False), 200, 200),
        (replace(WELL, joined=False), 200, 503),
        (replace(WELL, fenced=True), 200, 503),
        (replace(WELL, poll_overdue=True), 503, 503),
        (replace(WELL, closed=True), 503, 503),
        (replace(WELL, over=True), 503, 503),
    ],
)
def test_probes(health: Health, live: int, ready: int) -> None:
    with serve([Stub(WELL), Stub(health)], 0, host="127.0.0.1") as server:
        assert get(server, "/live")[0] == live
        status, body = get(server, "/health")
        assert status == ready
        assert json.loads(body)["consumers"] == [WELL.as_dict(), health.as_dict()]
        assert get(server, "/")[0] == 404


def test_lag_is_judged_where_it_is_asked_for() -> None:
    for most, status in ((2, 503), (3, 200)):
        with serve(Stub(WELL), 0, host="127.0.0.1", max_lag=most) as server:
            assert get(server, "/health")[0] == status


def test_serving_asks_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostbyaddr", lambda _name: pytest.fail("it asks"))
    with serve(Stub(WELL), 0) as server:
        assert get(server, "/live")[0] == 200


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as one:
        one.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("host", ["::1", "::", ""])
def test_who_has_ipv6_addresses_alone_is_served_too(host: str) -> None:
    """Some clusters give their pods no others, and a probe comes by them."""
    with serve(Stub(WELL), 0, host=host) as server:
        with urlopen(f"http://[::1]:{server.port}/live", timeout=30) as answer:
            assert answer.status == 200
        if host != "::1":
            assert get(server, "/live")[0] == 200


@pytest.mark.parametrize("host", ["", "localhost"])
def test_without_ipv6_it_is_served_by_ipv4(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel knows of it and has no address of it, too."""
    bind = socket.socket.bind

    def refuse(self: socket.socket, address: Any) -> None:
        if self.family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "no such address")
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with serve(Stub(WELL), 0, host=host) as server:
        assert get(server, "/live")[0] == 200


def test_a_port_that_is_taken_is_named() -> None:
    with (
        serve(Stub(WELL), 0, host="127.0.0.1") as server,
        pytest.raises(ConfigurationError, match=f"127.0.0.1:{server.port}"),
    ):
        serve(Stub(WELL), server.port, host="127.0.0.1")
    with pytest.raises(ConfigurationError, match="65536"):
        serve(Stub(WELL), 65536)


class Hung(Stub):
    """Its health is asked for after the prober hung up, or can't be told."""

    def __init__(self, raised: Exception) -> None:
        super().__init__(WELL)
        self.raised = raised

    def health(self, max_lag: int | None = None) -> Health:
        raise self.raised


@pytest.mark.parametrize(
    ("raised", "logged"), [(BrokenPipeError(), False), (ValueError("no idea"), True)]
)
def test_what_goes_wrong_is_logged_and_a_prober_that_hangs_up_is_no_news(
    raised: Exception,
    logged: bool,  # parametrized
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve(Hung(raised), 0, host="127.0.0.1") as server, pytest.raises(RemoteDisconnected):
        get(server, "/health")
    printed = capfd.readouterr().err.splitlines()
    # What librdkafka prints is of clients that earlier tests have left to the collector.
    assert [line for line in printed if not line.startswith("%")] == []
    assert ("no idea" in caplog.text) == logged


# --- a living consumer ---------------------------------------------------------------------


@pytest.fixture
def consumer(embedded: EmbeddedKafka) -> Iterator[CoopConsumer]:
    embedded.create_topic("t", partitions=2)
    made = CoopConsumer(
        {
            "bootstrap.servers": embedded.bootstrap_servers,
            "group.id": "g",
            "session.timeout.ms": 6000,
            "statistics.interval.ms": 50,
        },
        registry=CollectorRegistry(),
    )
    try:
        yield made
    finally:
        made.close()


def polled_until_assigned(consumer: CoopConsumer) -> None:
    def assigned() -> bool:
        consumer.poll(0.05)
        return len(consumer.assignment()) == 2 and consumer.health().stable

    wait_until(assigned, "nothing is assigned")


def test_a_consumer_is_served_alone_though_it_can_be_iterated(consumer: CoopConsumer) -> None:
    with serve(consumer, 0, host="127.0.0.1") as server:
        assert get(server, "/live")[0] == 200


def test_health_from_birth_to_close(consumer: CoopConsumer) -> None:
    assert consumer.health().problems == ("not subscribed",)
    consumer.subscribe(["t"])
    assert consumer.health().problems == ("not in the group",)
    polled_until_assigned(consumer)
    well = consumer.health()
    assert (well.ready, well.problems, well.owned) == (True, (), 2)
    consumer.close()
    assert consumer.health().problems == ("closed",)
    assert not consumer.health().live


def test_all_metrics_of_a_consumer_are_served_also_as_openmetrics(consumer: CoopConsumer) -> None:
    consumer.subscribe(["t"])
    polled_until_assigned(consumer)

    def value(name: str) -> float | None:
        return consumer.registry.get_sample_value(name, {"group": "g", "client_id": "rdkafka"})

    def told() -> bool:
        consumer.poll(0.05)
        return bool(value("kafka_coop_librdkafka_requests_total"))

    wait_until(told, "librdkafka told nothing")
    assert value("kafka_coop_leader") == value("kafka_coop_stable") == 1
    assert value("kafka_coop_group_partitions") == 2
    broker = {"group": "g", "client_id": "rdkafka", "broker": "1"}
    up = "kafka_coop_librdkafka_broker_up"
    assert consumer.registry.get_sample_value(up, broker) == 1
    with serve([consumer, Stub(WELL)], 0, host="127.0.0.1") as server:
        _, text = get(server, "/metrics", "application/openmetrics-text; version=1.0.0")
        families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        names = {family.name for family in families}
        assert {"kafka_coop_assigned_partitions", "kafka_coop_rebalance_rounds"} <= names


def test_who_is_subscribed_to_nothing_waits_for_no_round(consumer: CoopConsumer) -> None:
    """A round that never ends is an alert: none is under way for partitions assigned by hand."""
    stable = "kafka_coop_stable", {"group": "g", "client_id": "rdkafka"}
    assert consumer.registry.get_sample_value(*stable) == 1
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    assert consumer.registry.get_sample_value(*stable) == 1
    assert consumer.health().stable
    consumer.unassign()
    assert not consumer.health().stable
    consumer.subscribe(["t"])
    assert consumer.registry.get_sample_value(*stable) == 0


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_consumers_with_registries_of_their_own_are_one_scrape(accept: str) -> None:
    """A family is told once, with everybody's samples: OpenMetrics' readers refuse it else."""
    registries = {name: CollectorRegistry() for name in ("a", "b")}
    for name, registry in registries.items():
        MemberMetrics(group_id="g", client_id=name, registry=registry)
    consumers = [Stub(WELL, registry) for registry in registries.values()]
    with serve(consumers, 0, host="127.0.0.1") as server:
        _, text = get(server, "/metrics", accept)
    assert text.count("# TYPE kafka_coop_assigned_partitions gauge") == 1
    if accept:
        families = {f.name: f for f in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
        samples = families["kafka_coop_assigned_partitions"].samples
        assert [s.labels["client_id"] for s in samples] == ["a", "b"]


# --- judgement -----------------------------------------------------------------------------

SEEN = MemberSnapshot(
    generation=Generation(3),
    stable=True,
    progress={TopicPartition("t", 0): PartitionProgress(position=5, end=12)},
)


def judged(**changes: Any) -> Health:
    seen: dict[str, Any] = {
        "closed": False,
        "over": False,
        "subscribed": True,
        "by_hand": False,
        "owned": Partitions({"t": [0]}),
        "snapshot": SEEN,
        "lease_until": 100.0,
        "last_poll": 40.0,
        "subscribed_at": 30.0,
        "now": 50.0,
        "max_poll_interval": timedelta(seconds=10),
        "max_lag": 7,
    }
    return assess(**{**seen, **changes})


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, ()),
        ({"now": 50.1}, ("poll overdue",)),
        ({"last_poll": float("-inf")}, ("poll overdue",)),
        ({"last_poll": float("-inf"), "subscribed_at": 40.0}, ()),
        ({"last_poll": 20.0, "subscribed_at": 40.0}, ()),
        ({"last_poll": 20.0, "subscribed_at": 39.9}, ("poll overdue",)),
        ({"lease_until": 50.0}, ("fenced",)),
        ({"lease_until": 50.0, "owned": Partitions()}, ()),
        ({"lease_until": 50.0, "by_hand": True}, ()),
        ({"max_lag": 6}, ("lagging",)),
        ({"max_lag": None}, ()),
        ({"snapshot": MemberSnapshot()}, ("not in the group",)),
        ({"snapshot": MemberSnapshot(), "by_hand": True}, ()),
        ({"closed": True, "subscribed": False, "now": 99.0}, ("closed",)),
        ({"over": True, "snapshot": MemberSnapshot()}, ("over for good", "not in the group")),
        ({"over": True, "closed": True, "subscribed": False}, ("closed",)),
    ],
)
def test_what_counts_as_a_problem(changes: dict[str, Any], problems: tuple[str, ...]) -> None:
    assert judged(**changes).problems == problems


# --- the end -------------------------------------------------------------------------------


class Endless:
    def poll(self, timeout: float | None = -1) -> int | None:
        return 1


def test_a_signal_ends_the_loop_and_the_second_does_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    got = 0
    with Shutdown() as shutdown:
        for message in shutdown.messages(Endless()):
            got += message
            if got == 3:
                os.kill(os.getpid(), signal.SIGINT)
        assert shutdown.signal is signal.SIGINT
        assert got == 3
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
