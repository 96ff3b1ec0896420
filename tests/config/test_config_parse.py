from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from config_samples import BASE, configured
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.config import (
    NEVER,
    Callbacks,
    ConnectionSettings,
    ConsumerConfig,
    OffsetReset,
    parse,
)
from kafka_coop.config.librdkafka_keys import GLOBAL
from kafka_coop.errors import ConfigurationError


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def test_defaults_are_those_of_the_settings_and_of_librdkafka() -> None:
    config = parse(BASE)
    connection = ConnectionSettings(bootstrap=(("broker", 9092),))
    plain = ConsumerConfig(group_id="g", client_id="rdkafka", connection=connection)
    for name in ConsumerConfig.__slots__:
        if name != "fetcher":
            assert getattr(config, name) == getattr(plain, name), name
    defaults = {p.name: p.default for p in GLOBAL}
    assert config.session_timeout == _ms(int(defaults["session.timeout.ms"] or 0))
    assert config.auto_commit_interval == _ms(int(defaults["auto.commit.interval.ms"] or 0))
    assert config.rebalance_timeout == _ms(int(defaults["max.poll.interval.ms"] or 0))


def test_every_setting_comes_from_its_key() -> None:
    config = configured(
        client__id="c",
        client__rack="r",
        group__instance__id="i",
        partition__assignment__strategy=" sticky , range",
        session__timeout__ms="6000",
        heartbeat__interval__ms=100,
        max__poll__interval__ms=7000,
        enable__auto__commit="false",
        auto__commit__interval__ms=0,
        enable__auto__offset__store="0",
        isolation__level="READ_UNCOMMITTED",
        allow__auto__create__topics="true",
        topic__metadata__refresh__interval__ms=1234,
        retry__backoff__ms=20,
        retry__backoff__max__ms=30,
        coop__poll__prefetch="0",
    )
    assert (config.client_id, config.rack, config.instance_id) == ("c", "r", "i")
    assert config.strategies == ("sticky", "range")
    assert (config.session_timeout, config.heartbeat_interval) == (_ms(6000), _ms(100))
    assert config.rebalance_timeout == _ms(7000)
    assert (config.auto_commit, config.auto_commit_interval) == (False, timedelta(0))
    assert not config.auto_offset_store
    assert not config.read_committed
    assert config.allow_auto_create_topics
    assert config.metadata_max_age == _ms(1234)
    assert (config.retry_backoff, config.retry_backoff_max) == (_ms(20), _ms(30))
    assert config.poll_prefetch == 0


def test_every_connection_setting_comes_from_its_key() -> None:
    connection = configured(
        client__id="c",
        socket__connection__setup__timeout__ms=1000,
        socket__timeout__ms=2000,
        reconnect__backoff__ms=3,
        reconnect__backoff__max__ms=4,
        connections__max__idle__ms=5,
        socket__keepalive__enable=True,
        socket__nagle__disable=False,
        broker__address__family="V6",
        receive__message__max__bytes=200_000_000,
    ).connection
    assert connection == ConnectionSettings(
        bootstrap=(("broker", 9092),),
        client_id="c",
        connect_timeout=_ms(1000),
        request_timeout=_ms(2000),
        reconnect_backoff=_ms(3),
        reconnect_backoff_max=_ms(4),
        connections_max_idle=_ms(5),
        keepalive=True,
        nagle_disable=False,
        address_family="v6",
        receive_message_max_bytes=200_000_000,
    )


@pytest.mark.parametrize(
    ("written", "reset"),
    [
        ("smallest", OffsetReset.EARLIEST),
        ("earliest", OffsetReset.EARLIEST),
        ("BEGINNING", OffsetReset.EARLIEST),
        ("largest", OffsetReset.LATEST),
        ("Latest", OffsetReset.LATEST),
        ("end", OffsetReset.LATEST),
        ("error", OffsetReset.ERROR),
    ],
)
def test_offset_resets_have_many_names(written: str, reset: OffsetReset) -> None:
    assert configured(auto__offset__reset=written).offset_reset is reset


@pytest.mark.parametrize("group_id", ["", None, "  ", ...])
def test_a_missing_group_id_is_an_error_instead_of_an_abort(group_id: object) -> None:
    config = {k: v for k, v in BASE.items() if k != "group.id"}
    if group_id is not ...:
        config["group.id"] = group_id
    with pytest.raises(ConfigurationError, match=r"group\.id is missing or empty: set") as caught:
        parse(config)
    assert caught.value.key == "group.id"


@pytest.mark.parametrize("key", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("servers", ["", None, " , "])
def test_missing_brokers_are_an_error_naming_the_key_that_was_used(
    key: str, servers: str | None
) -> None:
    with pytest.raises(ConfigurationError, match=r"host:port") as caught:
        parse({"group.id": "g", key: servers})
    assert caught.value.key == key


def test_no_brokers_at_all_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers is missing") as caught:
        parse({"group.id": "g"})
    assert caught.value.key == "bootstrap.servers"


@pytest.mark.parametrize(
    ("key", "suggested"),
    [
        ("sesion.timeout.ms", "session.timeout.ms"),
        ("fetch.max.wait.ms", "fetch.wait.max.ms"),
        ("Group.Id", "group.id"),
        ("coop.poll.prefetchh", "coop.poll.prefetch"),
        ("onerror_cb", "error_cb"),
        ("linger.mss", "linger.ms"),
        ("zzz", "docs/CONFIGURATION.md"),
    ],
)
def test_unknown_keys_are_an_error_with_the_closest_names(key: str, suggested: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{key}' is not a configuration key") as caught:
        parse({**BASE, key: "hidden"})
    assert caught.value.key == key
    assert suggested in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_plugins_keys_are_left_to_librdkafka() -> None:
    config = configured(plugin__library__paths="monitoring", confluent__monitoring__topic="t")
    assert config.fetcher["confluent.monitoring.topic"] == "t"
    with pytest.raises(ConfigurationError, match=r"coop\.x"):
        configured(plugin__library__paths="monitoring", coop__x=1)


def test_keys_that_are_no_strings_are_refused() -> None:
    config: Any = {**BASE, 7: 1}
    with pytest.raises(ConfigurationError, match="must be a str"):
        parse(config)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"session.timeout.ms": 1000, "heartbeat.interval.ms": 1000}, "heartbeat.interval.ms"),
        ({"heartbeat.interval.ms": 45_000}, "session.timeout.ms"),
        ({"max.poll.interval.ms": 1000}, "session.timeout.ms"),
        ({"session.timeout.ms": 400_000}, "max.poll.interval.ms"),
        ({"reconnect.backoff.ms": 20_000}, "reconnect.backoff.max.ms"),
        ({"group.protocol": "consumer", "session.timeout.ms": 1000}, "group.protocol"),
        ({"receive.message.max.bytes": 1000}, "fetch.max.bytes"),
        ({"group.protocol": "consumer", "coop.poll.prefetch": 1}, "group.protocol"),
        ({"group.protocol": "consumer", "coop.watchdog": True}, "group.protocol"),
        ({"coop.watchdog": True, "group.instance.id": "i"}, "group.instance.id"),
        ({"coop.watchdog": True, "oauth_cb": print}, "oauth_cb"),
    ],
)
def test_contradictions_name_both_keys_and_blame_one_that_was_given(
    changes: dict[str, Any], names: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({**BASE, **changes})
    assert caught.value.key in changes
    assert caught.value.key in str(caught.value)
    assert names in str(caught.value)


def test_the_heartbeat_is_unset_unless_given() -> None:
    assert configured().heartbeat_interval is None
    assert configured(heartbeat__interval__ms=1).heartbeat_interval == _ms(1)


@pytest.mark.parametrize("interval", [-1, 0])
def test_metadata_refreshing_can_be_switched_off(interval: int) -> None:
    assert configured(topic__metadata__refresh__interval__ms=interval).metadata_max_age == NEVER


def test_a_backoff_above_its_maximum_is_capped_as_librdkafka_caps_it() -> None:
    assert configured(retry__backoff__ms=5000).retry_backoff == timedelta(seconds=1)


def test_idle_connections_to_azure_are_closed_before_azure_cuts_them() -> None:
    azure = {**BASE, "bootstrap.servers": "ns.servicebus.Azure.invalid:9093"}
    assert parse(azure).connection.connections_max_idle == timedelta(seconds=230)
    kept = parse({**azure, "connections.max.idle.ms": 0})
    assert kept.connection.connections_max_idle == timedelta(0)


def test_the_broker_side_protocol_takes_the_brokers_assignor() -> None:
    config = configured(group__protocol="CONSUMER", group__remote__assignor="uniform")
    assert (config.group_protocol, config.remote_assignor) == ("consumer", "uniform")


def test_callbacks_are_kept_apart() -> None:
    names = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit")
    callables: dict[str, Any] = {name: (lambda *_: None) for name in names}
    logger = object()
    config = parse({**BASE, **callables, "logger": object()}, logger=logger)
    assert config.callbacks == Callbacks(**callables, logger=logger)
    assert config.fetcher["logger"] is logger
    own = parse({**BASE, "logger": logger})
    assert own.callbacks.logger is logger
    assert own.fetcher["logger"] is logger
    assert "logger" not in parse({**BASE, "logger": None}).fetcher


@pytest.mark.parametrize("key", ["client.dns.lookup", "topic.blacklist", "test.mock.num.brokers"])
def test_what_the_membership_cannot_honour_is_refused(key: str) -> None:
    value = "resolve_canonical_bootstrap_servers_only" if "dns" in key else "1"
    with pytest.raises(ConfigurationError) as caught:
        parse({**BASE, key: value})
    assert caught.value.key == key


@given(value=st.one_of(st.integers(), st.text(max_size=4), st.floats(), st.none()))
def test_our_own_key_has_limits(value: object) -> None:
    try:
        config = configured(coop__poll__prefetch=value)
    except ConfigurationError as error:
        refusal = error
    else:
        assert 0 <= config.poll_prefetch <= 10_000
        return
    assert refusal.key == "coop.poll.prefetch"
    assert "from 0 to 10000" in str(refusal)


def test_parsing_needs_neither_confluent_kafka_nor_a_thread() -> None:
    program = (
        "import sys, threading\n"
        "from kafka_coop.config import parse\n"
        f"parse({BASE!r})\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
