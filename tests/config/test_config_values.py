"""Values: what librdkafka takes we take, and what it refuses we refuse."""

from __future__ import annotations

import ctypes
import enum
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from config_samples import BASE, OIDC, SCRAM, confluent_refuses, we_refuse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_coop.config import parse
from kafka_coop.config.known import KNOWN, property_of
from kafka_coop.config.properties import Kind, Property, Role
from kafka_coop.config.values import Values, read
from kafka_coop.errors import ConfigurationError

# What the typed settings are made of, by kind. Properties whose value alone decides: those bound
# to others by a rule have tests of their own.
_BOUND = {
    "client.dns.lookup",
    "fetch.max.bytes",
    "group.protocol",
    "receive.message.max.bytes",
    "security.protocol",
}
_CHECKED = [
    p
    for p in KNOWN.values()
    if p.kind in {Kind.INTEGER, Kind.BOOLEAN, Kind.ENUM}
    and p.role is not Role.PRODUCER
    and p.name not in _BOUND
    and not p.name.startswith("coop.")
]
_INTEGERS = [p for p in _CHECKED if p.kind is Kind.INTEGER]
_OTHERS = [p for p in _CHECKED if p.kind is not Kind.INTEGER]

# So that rules between keys don't interfere with what one key may be.
_WIDE = {
    "session.timeout.ms": 1,
    "heartbeat.interval.ms": 0,
    "max.poll.interval.ms": 86_400_000,
    "reconnect.backoff.ms": 0,
    "reconnect.backoff.max.ms": 3_600_000,
    "fetch.max.bytes": 1_000_000_000,
    "receive.message.max.bytes": 2_147_483_647,
}


def _alone(prop: Property, value: Any) -> dict[str, Any]:
    room = {k: v for k, v in _WIDE.items() if k not in {prop.name, "heartbeat.interval.ms"}}
    if prop.name == "heartbeat.interval.ms":
        room["session.timeout.ms"] = 3_600_000
    return {**room, prop.name: value}


def _agree(config: dict[str, Any]) -> bool:
    """Both take it, or both refuse it. Returns whether it was taken."""
    theirs, ours = confluent_refuses(config), we_refuse(config)
    assert (theirs is None) == (ours is None), f"{config}: librdkafka: {theirs}; we: {ours}"
    return ours is None


@pytest.mark.parametrize("prop", _INTEGERS, ids=lambda p: p.name)
def test_the_bounds_of_integers_are_the_librarys(prop: Property) -> None:
    assert prop.limits is not None
    low, high = prop.limits
    # Rules of Java's and of librdkafka's constructor narrow these two at one end.
    inner_high = high - 1 if prop.name == "heartbeat.interval.ms" else high
    inner_low = 1 if prop.name == "fetch.min.bytes" else low
    inner_high = 100_000_000 if prop.name == "fetch.min.bytes" else inner_high
    assert _agree(_alone(prop, inner_low))
    assert _agree(_alone(prop, str(inner_high)))
    assert not _agree(_alone(prop, low - 1))
    if high < 2**31 - 1:
        assert not _agree(_alone(prop, high + 1))


@pytest.mark.parametrize("prop", _OTHERS, ids=lambda p: p.name)
def test_the_choices_are_the_librarys_in_any_case(prop: Property) -> None:
    for choice in prop.choices:
        assert _agree({prop.name: choice.upper()})
        assert _agree({prop.name: choice.title()})
        assert not _agree({prop.name: f"{choice} "})
        assert not _agree({prop.name: f"{choice}x"})
    _agree({prop.name: f" {prop.choices[0]}"})
    assert not _agree({prop.name: None})
    assert not _agree({prop.name: ""})


def test_letters_outside_of_ascii_have_no_case_in_c() -> None:
    assert _agree({"offset.store.method": "BROKER"})
    assert not _agree({"offset.store.method": "bro\N{KELVIN SIGN}er"})


@pytest.mark.parametrize("flag", [True, False, 1, 0, "T", "f", "1", "0", "TRUE", "False"])
def test_booleans_are_written_as_librdkafka_has_it(flag: object) -> None:
    assert _agree({"enable.auto.commit": flag})
    config = parse({**BASE, "enable.auto.commit": flag})
    assert config.auto_commit is (str(flag).lower() in {"true", "t", "1"})


@pytest.mark.parametrize("flag", ["yes", "on", "", None, 2, 1.0, " true", "true ", "-1"])
def test_other_booleans_are_refused(flag: object) -> None:
    assert not _agree({"enable.auto.commit": flag})


_SCRAPS = st.text(
    st.sampled_from([*"0123456789xXaAfF+-., tTrRuUeE", "\N{KELVIN SIGN}", "\u0665"]), max_size=6
)

_LIBC = ctypes.CDLL(None)
_LIBC.strtol.restype = ctypes.c_long
_LIBC.strtol.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int]


def _strtol(text: str) -> tuple[int, str]:
    """C's reading, as librdkafka calls for it, and what it leaves unread."""
    rest = ctypes.c_char_p()
    written = text.encode()  # held, since `rest` points into it
    number: int = _LIBC.strtol(written, ctypes.byref(rest), 0)
    return number, (rest.value or b"").decode()


@given(text=_SCRAPS)
@example(text="0x1770")
@example(text="010")
@example(text="+7")
@example(text="6000.0")
@example(text="45s")
@example(text="0x")
@example(text="4294967297")
@example(text="\u0665")  # a digit, and none of C's
@settings(max_examples=500, deadline=None)
def test_numbers_are_librdkafkas_but_where_it_ignores_a_part(text: str) -> None:
    config = {"statistics.interval.ms": text}
    number, unread = _strtol(text)
    if we_refuse(config) is None:
        assert confluent_refuses(config) is None
        assert Values.of(config).integer("statistics.interval.ms") == number
    elif confluent_refuses(config) is None:
        assert unread.removeprefix(".").strip("0") or not -(2**31) <= number < 2**31


@given(number=st.integers(-(2**31), 2**31 - 1), base=st.sampled_from(["d", "#x", "#X"]))
@settings(max_examples=100, deadline=None)
def test_whole_numbers_are_read_as_written(number: int, base: str) -> None:
    prop = Property("n", Role.BOTH, Kind.INTEGER, limits=(-(2**31), 2**31 - 1))
    for value in (number, str(number), float(number), f"{number:{base}}", f" {number}"):
        if isinstance(value, float) and "e" in str(value):
            continue
        assert read(prop, value) == number


@pytest.mark.parametrize("value", ["45s", "6000ms", "6e3", 6000.5, 2**32 + 6000, "08"])
def test_numbers_of_which_librdkafka_ignores_a_part_are_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"session\.timeout\.ms=.*whole number from 1"):
        parse({**BASE, "session.timeout.ms": value})


def test_a_number_too_long_to_be_written_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"session\.timeout\.ms=\(a number of"):
        parse({**BASE, "session.timeout.ms": 10**5000})


@pytest.mark.parametrize("value", [np.int64(6000), Decimal(6000), "6000", 6000.0])
def test_numbers_of_other_types_are_taken_as_confluent_takes_them(value: object) -> None:
    assert _agree({"session.timeout.ms": value})
    assert Values.of({"session.timeout.ms": value}).integer("session.timeout.ms") == 6000


class _Level(enum.StrEnum):
    COMMITTED = "read_committed"


def test_text_is_whatever_str_makes_of_it() -> None:
    config = parse(
        {
            **BASE,
            "group.id": 7,
            "client.id": "  c ",
            "client.rack": " r",
            "isolation.level": _Level.COMMITTED,
            "ssl.ca.location": Path("/ca.pem"),
            "security.protocol": "ssl",
        }
    )
    assert (config.group_id, config.client_id, config.rack) == ("7", "c ", " r")
    assert config.read_committed
    assert config.connection.tls is not None
    assert config.connection.tls.ca_location == "/ca.pem"


@pytest.mark.parametrize("empty", ["", None])
def test_empty_text_is_unset(empty: object) -> None:
    unset = {"client.id": empty, "client.rack": empty, "group.instance.id": empty}
    assert _agree(unset)
    config = parse({**BASE, **unset})
    assert (config.client_id, config.rack, config.instance_id) == ("rdkafka", None, None)


@pytest.mark.parametrize("value", [b"g", ["g"], {"g": 1}, "a\0b", "\ud800", object()])
def test_text_that_c_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^group\.id") as caught:
        parse({**BASE, "group.id": value})
    assert caught.value.key == "group.id"


def test_aliases_are_one_property() -> None:
    alias = {k: v for k, v in BASE.items() if k != "bootstrap.servers"}
    config = parse({**alias, "metadata.broker.list": "a:1"})
    assert config.connection.bootstrap == (("a", 1),)
    assert we_refuse({"metadata.broker.list": BASE["bootstrap.servers"]}) is None
    with pytest.raises(ConfigurationError, match=r"metadata\.broker\.list and bootstrap\.servers"):
        parse({**BASE, "metadata.broker.list": "other:1"})
    oidc = dict(OIDC)
    secret = oidc.pop("sasl.oauthbearer.client.secret")
    oidc["sasl.oauthbearer.client.credentials.client.secret"] = secret
    sasl = parse({**BASE, **oidc}).connection.sasl
    assert sasl is not None
    assert sasl.oidc is not None
    assert sasl.oidc.client_secret == secret


def test_topic_level_keys_may_stand_in_default_topic_config_and_win() -> None:
    nested = {"auto.offset.reset": "earliest"}
    given_twice = {**BASE, "auto.offset.reset": "latest", "default.topic.config": nested}
    config = parse(given_twice)
    assert config.offset_reset.value == "earliest"
    assert config.fetcher["auto.offset.reset"] == "earliest"
    assert "default.topic.config" not in config.fetcher
    assert given_twice["default.topic.config"] is nested, "the caller's dict is left as it is"
    assert _agree({"default.topic.config": nested})
    for wrong in ("x", None):
        assert not _agree({"default.topic.config": wrong})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        SCRAM,
        {**SCRAM, "sasl.mechanisms": "scram-sha-256"},
        {**SCRAM, "sasl.mechanisms": "PLAIN"},
        {**SCRAM, "sasl.mechanisms": " PLAIN"},
        {**SCRAM, "sasl.mechanisms": "PLAIN "},
        {**SCRAM, "sasl.mechanisms": "GSSAPI"},
        {**SCRAM, "sasl.username": None},
        {**SCRAM, "sasl.password": ""},
        {"sasl.mechanisms": "PLAIN,GSSAPI"},
        {"sasl.mechanisms": ""},
        {"sasl.mechanisms": "nonsense"},
        {"sasl.username": "me"},
        {**SCRAM, "security.protocol": "SASL_SSL", "enable.ssl.certificate.verification": "f"},
        OIDC,
        {**OIDC, "sasl.oauthbearer.client.id": ""},
        {**OIDC, "sasl.oauthbearer.client.secret": ""},
        {**OIDC, "sasl.oauthbearer.token.endpoint.url": ""},
        {**OIDC, "enable.sasl.oauthbearer.unsecure.jwt": True},
        {"ssl.keystore.location": "/k.p12"},
        {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        {"https.ca.location": "probe", "https.ca.pem": "x"},
        {"session.timeout.ms": 300_001},
        {"max.poll.interval.ms": 44_999},
        {"max.poll.interval.ms": 45_000},
        {"reconnect.backoff.ms": 10_001},
        {"reconnect.backoff.max.ms": 99},
        {"fetch.min.bytes": 0},
        {"fetch.min.bytes": 100_000_001},
        {"fetch.max.bytes": 999_999},
        {"fetch.max.bytes": 1_000_000},
        {"receive.message.max.bytes": 52_429_311},
        {"receive.message.max.bytes": 52_429_312},
        {"receive.message.max.bytes": 1_000_512, "queued.max.messages.kbytes": 1},
        {"receive.message.max.bytes": 1_000_511, "queued.max.messages.kbytes": 1},
        {"group.protocol": "consumer"},
        {"group.protocol": "Consumer", "group.remote.assignor": "range"},
        {"group.protocol": "consumer", "session.timeout.ms": 45_000},
        {"group.protocol": "consumer", "heartbeat.interval.ms": 3_000},
        {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
        {"group.protocol": "consumer", "group.protocol.type": "consumer"},
        {"group.protocol": "consumer", "max.poll.interval.ms": 1},
        {"group.protocol.type": "consumer"},
        {"group.protocol.type": "other"},
        {"retry.backoff.ms": 5_000},
        {"linger.ms": 5, "acks": "all", "compression.codec": "gzip", "request.timeout.ms": 1},
        {"max.poll.records": 10},
        {"debug": "consumer, -FETCH,,+all"},
        {"debug": "consumer,nonsense"},
        {"debug": "consumer ,fetch"},
        {"debug": ""},
        {"error_cb": print, "on_commit": print, "stats_cb": print, "throttle_cb": print},
        {"logger": None},
        {"error_cb": None},
        {"error_cb": 3},
        {"on_commit": "x"},
        {"on_delivery": print},
        {"no.such.key": 1},
        {"ssl.truststore.location": "x"},
    ],
    ids=str,
)
def test_rules_between_keys_are_librdkafkas(changes: dict[str, Any]) -> None:
    _agree(changes)


@pytest.mark.parametrize("key", ["client.id", "client.rack", "group.id", "group.instance.id"])
def test_what_brokers_are_told_is_no_longer_than_kafkas_strings(key: str) -> None:
    """The member could send nothing, looked on for ever, and logged a bug of its own."""
    longest = "\N{BULLET}" * 10_922  # three bytes each
    assert read(property_of(key), longest + "x") == longest + "x"
    with pytest.raises(ConfigurationError, match="it must be a str of 32767 bytes at most"):
        read(property_of(key), longest + "xx")
