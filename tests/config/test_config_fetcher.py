"""What librdkafka is given. Its constructor is the judge of what it takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from config_samples import BASE, SCRAM, configured, confluent_refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.config import parse
from kafka_coop.config.known import KNOWN
from kafka_coop.config.properties import Kind, Role

_MEMBERSHIP: dict[str, Any] = {
    "group.instance.id": "i",
    "group.protocol": "classic",
    "group.protocol.type": "consumer",
    "group.remote.assignor": "uniform",
    "partition.assignment.strategy": "range,cooperative-sticky",
    "session.timeout.ms": 400_000,
    "heartbeat.interval.ms": 100,
    "max.poll.interval.ms": 500_000,
    "auto.commit.interval.ms": 1,
    "auto.commit.enable": True,
    "offset.store.method": "file",
    "offset.store.path": "/nowhere",
    "offset.store.sync.interval.ms": 0,
    "on_commit": print,
    "coop.poll.prefetch": 3,
    "coop.watchdog": False,
}

_ADDED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.queue.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1000,
}


def test_librdkafka_gets_nothing_of_the_membership() -> None:
    assert parse({**BASE, **_MEMBERSHIP}).fetcher == {**BASE, **_ADDED}


def test_with_the_consumer_protocol_it_gets_the_membership_and_still_commits_nothing() -> None:
    theirs: dict[str, Any] = {"group.protocol": "Consumer", "group.remote.assignor": "range"}
    theirs |= {"group.instance.id": "i", "max.poll.interval.ms": 500_000}
    assert parse({**BASE, **theirs, "auto.commit.interval.ms": 1}).fetcher == {
        **BASE,
        **_ADDED,
        **theirs,
        "group.protocol": "consumer",
    }


def test_committing_is_off_whatever_the_user_set() -> None:
    fetcher = configured(enable__auto__commit=True, enable__auto__offset__store="true").fetcher
    assert fetcher["enable.auto.commit"] is False
    assert fetcher["enable.auto.offset.store"] is False
    nested = {"default.topic.config": {"enable.auto.commit": True}}
    assert parse({**BASE, **nested}).fetcher["enable.auto.commit"] is False


def test_the_users_word_goes_before_our_defaults() -> None:
    assert configured(fetch__queue__backoff__ms=1000).fetcher["fetch.queue.backoff.ms"] == 1000


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        ({}, 1000),
        ({"reconnect.backoff.ms": 900}, 1000),
        ({"reconnect.backoff.ms": 4000}, 4000),
        ({"reconnect.backoff.max.ms": 10_000}, 10_000),
        ({"reconnect.backoff.ms": "0", "reconnect.backoff.max.ms": "0"}, 0),
    ],
)
def test_a_broker_that_is_back_is_found_within_a_second_unless_the_user_says_otherwise(
    given: dict[str, Any], longest: int
) -> None:
    config = parse({**BASE, **given})
    assert int(config.fetcher["reconnect.backoff.max.ms"]) == longest
    assert config.connection.reconnect_backoff_max == timedelta(milliseconds=longest)


def test_callbacks_and_unknown_roles_pass() -> None:
    passed: dict[str, Any] = {
        "error_cb": print,
        "stats_cb": print,
        "throttle_cb": print,
        "linger.ms": 5,
        "client.rack": "r",
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",
    }
    assert parse({**BASE, **passed}).fetcher == {**BASE, **_ADDED, **passed}


def test_strategies_that_librdkafka_refuses_do_not_reach_it() -> None:
    mixed = {"partition.assignment.strategy": "range,cooperative-sticky"}
    assert confluent_refuses(mixed) is not None
    fetcher = dict(parse({**BASE, **mixed}).fetcher)
    del fetcher["bootstrap.servers"]
    assert confluent_refuses(fetcher) is None


# Scalars without effect on files or the network, in values that they take.
_HARMLESS = [
    p
    for p in KNOWN.values()
    if p.role is not Role.PRODUCER
    and p.kind in {Kind.INTEGER, Kind.BOOLEAN, Kind.ENUM}
    and p.name not in {"security.protocol", "test.mock.num.brokers", "client.dns.lookup"}
    # What librdkafka's threads are sent as a client ends: 9 kills the process.
    and p.name != "internal.termination.signal"
    and "oauthbearer" not in p.name
    and p.alias_of is None
]


@st.composite
def _configurations(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(_HARMLESS), max_size=8, unique_by=lambda p: p.name))
    values: dict[str, Any] = draw(st.sampled_from([{}, SCRAM])).copy()
    for prop in chosen:
        if prop.limits:
            values[prop.name] = draw(st.integers(*prop.limits) | st.sampled_from(prop.limits))
        else:
            values[prop.name] = draw(st.sampled_from(prop.choices))
    return values


@given(config=_configurations())
@settings(max_examples=150, deadline=None)
def test_what_we_take_librdkafka_takes(config: dict[str, Any]) -> None:
    try:
        fetcher = dict(parse({**BASE, **config}).fetcher)
    except ValueError:
        return
    del fetcher["bootstrap.servers"]
    assert confluent_refuses(fetcher) is None


@pytest.mark.parametrize("timeout", [1, 3_600_000])
def test_any_session_timeout_is_fine_for_the_fetcher(timeout: int) -> None:
    config = {"session.timeout.ms": timeout, "max.poll.interval.ms": 86_400_000}
    fetcher = dict(parse({**BASE, **config}).fetcher)
    del fetcher["bootstrap.servers"]
    assert confluent_refuses(fetcher) is None
