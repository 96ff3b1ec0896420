"""Which keys there are, and which of them are refused.

Known are librdkafka's properties, whosever role: a producer's among a consumer's keys are
accepted, as confluent-kafka accepts them (librdkafka logs a warning), since applications share
one dict between the two. Then confluent-kafka's own, and ours (``coop.``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from kafka_coop.config.librdkafka_keys import GLOBAL, TOPIC
from kafka_coop.config.properties import Kind, Property, Role
from kafka_coop.errors import ConfigurationError

OWN_PREFIX = "coop."

OWN = (
    Property("coop.poll.prefetch", Role.CONSUMER, Kind.INTEGER, "500", limits=(0, 10_000)),
    Property("coop.watchdog", Role.CONSUMER, Kind.BOOLEAN, "false", choices=("true", "false")),
)

CLASSIC_OWN = tuple(p.name for p in OWN)
"""Those of ours that say how *our* member works; with KIP-848, librdkafka is the member."""

CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit")

CONFLUENT = (
    *(Property(name, Role.CONSUMER, Kind.CALLABLE) for name in CALLBACKS),
    Property("logger", Role.CONSUMER, Kind.OBJECT),
)

# Where a name has two scopes, rd_kafka_conf_set takes the global one: so the later here wins.
KNOWN: Mapping[str, Property] = {p.name: p for p in (*TOPIC, *GLOBAL, *CONFLUENT, *OWN)}

REFUSED: Mapping[str, str] = {
    "ssl.truststore.location": (
        "Java's trust stores cannot be read: export the certificates as PEM "
        "(`keytool -exportcert -rfc`) and set ssl.ca.location"
    ),
    "ssl.truststore.password": "it is of Java's trust stores: remove it (ssl.ca.location has none)",
    "ssl.truststore.type": "it is of Java's trust stores: remove it, and set ssl.ca.location (PEM)",
    "ssl.truststore.certificates": "Java's name for it: set ssl.ca.pem instead",
    "ssl.keystore.certificate.chain": "Java's name for it: set ssl.certificate.pem instead",
    "ssl.keystore.key": "Java's name for it: set ssl.key.pem instead",
    "ssl.keystore.type": "it is Java's: remove it (a keystore here is PKCS#12)",
    "sasl.jaas.config": (
        "JAAS is Java's: set sasl.mechanisms, sasl.username and sasl.password instead"
    ),
    "send.buffer.bytes": "Java's name for it: set socket.send.buffer.bytes instead",
    "receive.buffer.bytes": "Java's name for it: set socket.receive.buffer.bytes instead",
    "max.request.size": "Java's name for it: set message.max.bytes instead",
    "buffer.memory": "Java's, in bytes: set queue.buffering.max.kbytes instead, in units of 1024",
    "max.block.ms": (
        "Java's, and librdkafka has no such limit: remove it (delivery.timeout.ms says how long a "
        "record may take)"
    ),
    "partitioner.class": (
        "it names a class of Java's: set partitioner instead (murmur2_random is Java's default)"
    ),
    **dict.fromkeys(
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        "Java's name for it: set compression.level instead",
    ),
    "test.mock.num.brokers": (
        "librdkafka's mock cluster can be reached by librdkafka alone, not by the group "
        "membership: use kafka_coop.testing.EmbeddedKafka and its bootstrap_servers"
    ),
    "topic.blacklist": (
        "the group's leader, which may be another client, or the broker would still assign these "
        "topics, and nobody would read them: exclude them in the subscription instead, say "
        "'^(?!secret-).*'; with group.protocol=consumer, which knows no lookahead, list the others"
    ),
}
"""Keys that are refused whatever their value, with the remedy. Of Java's, those that its users set
often and that have another name here, whosever role."""


def property_of(key: str) -> Property:
    """The property that a key names, through aliases.

    Raises:
        ConfigurationError: There is none, or no configuration may hold it. Its value, maybe a
            secret under a misspelt key, is not told.
    """
    if remedy := REFUSED.get(key):
        raise ConfigurationError(key, f"{key} is refused: {remedy}")
    prop = KNOWN.get(key)
    if prop is None:
        raise ConfigurationError(key, f"{key!r} is not a configuration key: {_suggestion(key)}")
    if prop.kind is Kind.DEDICATED:
        raise ConfigurationError(
            key,
            f"{key} is set in C, by a function of its own: remove it (a configuration can hold "
            f"the callbacks {', '.join(CALLBACKS)})",
        )
    return prop if prop.alias_of is None else KNOWN[prop.alias_of]


def closest(word: str, candidates: Iterable[str]) -> list[str]:
    """At most three candidates that resemble a word, the likeliest first."""
    return difflib.get_close_matches(word, sorted(candidates), n=3)


def _suggestion(key: str) -> str:
    candidates = (
        p.name for p in KNOWN.values() if p.kind is not Kind.DEDICATED and p.name not in REFUSED
    )
    if alike := closest(key.lower(), candidates):
        return f"did you mean {' or '.join(alike)}?"
    return "remove it (docs/CONFIGURATION.md lists the keys)"
