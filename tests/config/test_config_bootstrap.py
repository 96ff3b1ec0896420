from __future__ import annotations

import ipaddress

import pytest
from config_samples import configured
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.config.bootstrap import parse_bootstrap
from kafka_coop.errors import ConfigurationError

_PORTS = st.integers(1, 65_535)
_NAMES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)
_HOSTS = st.one_of(_NAMES, st.ip_addresses().map(str))


def _parsed(servers: str, protocol: str = "plaintext") -> tuple[tuple[str, int], ...]:
    return parse_bootstrap("bootstrap.servers", servers, security_protocol=protocol)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 ,, b ,", (("a", 1), ("b", 9092))),
        ("a:1,a:1,a:2", (("a", 1), ("a", 2))),
        ("PLAINTEXT://a:1,plaintext://b/path", (("a", 1), ("b", 9092))),
        ("[::1]:1,[::1],::1,fe80::1%eth0", (("::1", 1), ("::1", 9092), ("fe80::1%eth0", 9092))),
        ("127.0.0.1", (("127.0.0.1", 9092),)),
        ("a:00001", (("a", 1),)),
    ],
)
def test_entries(servers: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert _parsed(servers) == expected


@given(entries=st.lists(st.tuples(_HOSTS, _PORTS), min_size=1, unique=True))
def test_what_is_written_is_read(entries: list[tuple[str, int]]) -> None:
    written = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in entries)
    assert _parsed(written) == tuple(entries)


@given(text=st.text(st.sampled_from("a1:/[]@,. %\N{KELVIN SIGN}\t"), max_size=12))
def test_any_text_is_hosts_and_ports_or_an_error(text: str) -> None:
    try:
        parsed = _parsed(text)
    except ConfigurationError as error:
        key = error.key
        parsed = ()
    else:
        key = "bootstrap.servers"
        assert parsed
    assert key == "bootstrap.servers"
    for host, port in parsed:
        assert host
        assert 0 < port <= 65_535
        assert not set(host) & set(" \t/[]@,")
        if ":" in host:
            ipaddress.IPv6Address(host)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (":9092", "no host"),
        ("a:", "port"),
        ("a:0", "port"),
        ("a:65536", "port"),
        ("a:9092x", "port"),
        ("a:-1", "port"),
        ("a:9092/path", "port"),
        ("a b:1", "host"),
        ("[::1", "host"),
        ("[a]:1", "host"),
        ("[::1]]:1", "host"),
        ("a:b:c", "host"),
        ("SSL://a:1", "security.protocol=plaintext"),
        ("http://a:1", "security.protocol=plaintext"),
        ("://a:1", "security.protocol=plaintext"),
        ("plaintext://", "no host"),
    ],
)
def test_errors_name_the_entry(entry: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _parsed(f"good:1,{entry},other:2")
    assert repr(entry) in str(caught.value)
    assert why in str(caught.value)
    assert "good" not in str(caught.value)


def test_credentials_in_an_entry_are_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        _parsed("user:hidden@host:9092")
    assert "hidden" not in str(caught.value)


def test_the_protocol_of_an_entry_is_that_of_the_client() -> None:
    config = configured(bootstrap__servers="SSL://a:1", security__protocol="SSL")
    assert config.connection.bootstrap == (("a", 1),)
