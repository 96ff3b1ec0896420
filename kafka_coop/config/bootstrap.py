"""``bootstrap.servers``.

librdkafka takes any text: it stops at an entry whose protocol it refuses, dropping those that
follow, reads a missing host as localhost, and ports modulo 65536. Each of these is an error
here: none is what anybody meant.
"""

from __future__ import annotations

import ipaddress
import re

from kafka_coop.errors import ConfigurationError

DEFAULT_PORT = 9092

_MAX_PORT = 65_535
_DIGITS = re.compile(r"[0-9]{1,5}")
_HOST = re.compile(r"[^\s/@\[\]:]+")


def parse_bootstrap(
    key: str, servers: str, *, security_protocol: str
) -> tuple[tuple[str, int], ...]:
    """Parses ``host:port,PROTOCOL://host:port,[::1]:port``; a missing port is 9092.

    Args:
        key: The key by which the user gave it.
        servers: Its value.
        security_protocol: ``security.protocol``, which an entry's protocol must equal.

    Returns:
        Hosts and ports in the order given, each once; IPv6 addresses without brackets.

    Raises:
        ConfigurationError: Naming the entry that cannot be used, or none is there.
    """
    entries = [entry for entry in (part.strip() for part in servers.split(",")) if entry]
    if not entries:
        raise ConfigurationError(key, f"{key} names no broker: give at least one host:port")
    return tuple(dict.fromkeys(_address(key, entry, security_protocol) for entry in entries))


def _address(key: str, entry: str, security_protocol: str) -> tuple[str, int]:
    def refused(why: str) -> ConfigurationError:
        without_credentials = entry.rpartition("@")[2]
        return ConfigurationError(key, f"{key}: {without_credentials!r} {why}")

    protocol, separator, rest = entry.rpartition("://")
    if separator and protocol.lower() != security_protocol:
        raise refused(
            f"asks for another protocol than security.protocol={security_protocol}: change one"
        )
    host, port = _split(rest.partition("/")[0] if separator else rest)
    if not host:
        raise refused("has no host: write host:port")
    if not _is_host(host):
        raise refused("has no valid host: write host:port, IPv6 addresses in brackets")
    if not (_DIGITS.fullmatch(port) and 0 < int(port) <= _MAX_PORT):
        raise refused(f"has no valid port: write host:port, the port from 1 to {_MAX_PORT}")
    return host.strip("[]"), int(port)


def _split(address: str) -> tuple[str, str]:
    """Host and port. More than one colon without brackets: an IPv6 address and no port."""
    host, colon, port = address.rpartition(":")
    if colon and (":" not in host or host.endswith("]")):
        return host, port
    return address, str(DEFAULT_PORT)


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host):
        return True
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ipaddress.IPv6Address(bare)
    except ValueError:
        return False
    return True
