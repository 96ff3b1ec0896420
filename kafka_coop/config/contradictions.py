"""Keys that exclude one another: librdkafka's rules, and Java's for the heartbeat.

Every error names both keys, the one that the user wrote first.
"""

from __future__ import annotations

from kafka_coop.config.known import CLASSIC_OWN
from kafka_coop.config.values import Values
from kafka_coop.errors import ConfigurationError

# Decided by the broker under KIP-848.
_CLASSIC_ALONE = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.protocol.type",
)

_FETCH_MIN_BYTES = (1, 100_000_000)

_FRAMING = 512
"""Bytes that librdkafka reserves around the records of a response."""


def refuse_contradictions(values: Values) -> None:
    """Checks what single keys can't show.

    Raises:
        ConfigurationError: Naming the keys, and their values unless secret.
    """
    _group(values)
    _not_less(values, "reconnect.backoff.max.ms", "reconnect.backoff.ms")
    _sizes(values)
    _files(values)


def _group(values: Values) -> None:
    if values.choice("group.protocol") == "consumer":
        for name in filter(values.given, _CLASSIC_ALONE):
            raise ConfigurationError(
                name,
                f"{name} is not supported with group.protocol=consumer, where the broker decides "
                "it: remove it, or use group.protocol=classic",
            )
        for name in filter(values.given, CLASSIC_OWN):
            raise ConfigurationError(
                name,
                f"{name} has no meaning with group.protocol=consumer, where librdkafka is the "
                "member: remove it, or use group.protocol=classic",
            )
        return
    _not_less(values, "max.poll.interval.ms", "session.timeout.ms")
    _watchdog(values)
    kind = "group.protocol.type"
    if values.text(kind) != "consumer":
        raise ConfigurationError(kind, f"{kind} must be 'consumer', which it is unless set")
    # Java's rule; librdkafka lets the session expire between two beats.
    beat, session = "heartbeat.interval.ms", "session.timeout.ms"
    if values.given(beat) and values.integer(beat) >= values.integer(session):
        raise ConfigurationError(
            beat,
            f"{values.shown(beat)} must be less than {values.shown(session)}: half of it at most",
        )


def _watchdog(values: Values) -> None:
    watchdog = "coop.watchdog"
    if not values.flag(watchdog):
        return
    if values.text("group.instance.id"):
        raise ConfigurationError(
            watchdog,
            f"{watchdog} and group.instance.id exclude one another: a static member's group waits "
            "session.timeout.ms for it to be restarted, a watchdog's does not. Remove one of them",
        )
    if values.given_value("oauth_cb") is not None:
        raise ConfigurationError(
            watchdog,
            f"{watchdog} can't be had with oauth_cb: a process of its own can't call it. Use "
            "sasl.oauthbearer.method=oidc, or remove one of them",
        )


def _sizes(values: Values) -> None:
    least, most = _FETCH_MIN_BYTES
    minimum = "fetch.min.bytes"
    if not least <= values.integer(minimum) <= most:
        raise ConfigurationError(
            minimum, f"{values.shown(minimum)} is refused: it must be from {least} to {most}"
        )
    if values.given("fetch.max.bytes"):
        _not_less(values, "fetch.max.bytes", "message.max.bytes")
    received = "receive.message.max.bytes"
    if values.given(received) and values.integer(received) < _fetch_max_bytes(values) + _FRAMING:
        raise ConfigurationError(
            received,
            f"{values.shown(received)} must be at least {_FRAMING} more than fetch.max.bytes, "
            f"which is {_fetch_max_bytes(values)}: set both",
        )


def _fetch_max_bytes(values: Values) -> int:
    """What librdkafka makes of ``fetch.max.bytes`` where it is not given."""
    size = values.integer("fetch.max.bytes")
    if values.given("fetch.max.bytes"):
        return size
    queue = values.integer("queued.max.messages.kbytes") * 1024
    return max(min(size, queue), values.integer("message.max.bytes"))


def _files(values: Values) -> None:
    keystore, password = "ssl.keystore.location", "ssl.keystore.password"
    if values.text(keystore) and not values.text(password):
        raise ConfigurationError(password, f"{keystore} needs {password}: set it too")
    if values.text("https.ca.location") and values.text("https.ca.pem"):
        raise ConfigurationError(
            "https.ca.pem", "https.ca.location and https.ca.pem exclude one another: remove one"
        )


def _not_less(values: Values, greater: str, lesser: str) -> None:
    if values.integer(greater) >= values.integer(lesser):
        return
    blamed = greater if values.given(greater) else lesser
    raise ConfigurationError(
        values.name_of(blamed),
        f"{values.shown(greater)} must be at least {values.shown(lesser)}: "
        "raise the one or lower the other",
    )
