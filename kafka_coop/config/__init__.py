"""The configuration: librdkafka's keys in, typed settings out.

`parse` is the one way in. What the group's membership needs is taken out and typed; the rest
goes to librdkafka as it is (`ConsumerConfig.fetcher`), less every key that would make
librdkafka a member of the group or commit for it.

settings.py          what comes out
parsing.py           the one way in
values.py            keys and values as librdkafka reads them
known.py             which keys there are; which are refused, and why
contradictions.py    keys that exclude one another
bootstrap.py         ``bootstrap.servers``
strategies.py        ``partition.assignment.strategy``
security.py          ``security.protocol``, ``ssl.*``, ``sasl.*``
fetcher.py           what librdkafka is given
properties.py        what a property is
librdkafka_keys.py   librdkafka's properties (generated)
"""

from kafka_coop.config.parsing import parse
from kafka_coop.config.settings import (
    NEVER,
    Callbacks,
    ConnectionSettings,
    ConsumerConfig,
    OauthCallback,
    OffsetReset,
    OidcSettings,
    SaslSettings,
    TlsSettings,
)
from kafka_coop.config.strategies import validate_strategies

__all__ = [
    "NEVER",
    "Callbacks",
    "ConnectionSettings",
    "ConsumerConfig",
    "OauthCallback",
    "OffsetReset",
    "OidcSettings",
    "SaslSettings",
    "TlsSettings",
    "parse",
    "validate_strategies",
]
