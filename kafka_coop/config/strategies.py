"""``partition.assignment.strategy``: the names of strategies, most preferred first."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_coop.config.known import closest
from kafka_coop.errors import ConfigurationError

KEY = "partition.assignment.strategy"

DEFAULT = ("cooperative-sticky",)
"""librdkafka's is ``range,roundrobin``, which stops every partition in every rebalance."""

KNOWN_STRATEGIES = (
    "constrained-cooperative-sticky",
    "cooperative-sticky",
    "fairest-sticky",
    "load-aware-sticky",
    "range",
    "roundrobin",
    "sticky",
    "stream-join-sticky",
)
"""The names on the wire of the strategies in `kafka_coop.assignors`."""


def validate_strategies(names: Iterable[str]) -> tuple[str, ...]:
    """Checks names of strategies, surrounding white space aside.

    Returns:
        The names, in their order.

    Raises:
        ConfigurationError: There is none, one is there twice, or one is not built in.
    """
    stripped = tuple(name.strip() for name in names)
    if not any(stripped):
        raise ConfigurationError(
            KEY, f"{KEY} names no strategy: remove the key for {','.join(DEFAULT)}"
        )
    for name in stripped:
        if not name:
            raise ConfigurationError(KEY, f"{KEY} has an empty name in it: remove a comma")
        if name not in KNOWN_STRATEGIES:
            raise ConfigurationError(KEY, f"{KEY}: {name!r} is unknown: {_remedy(name)}")
    if twice := sorted({name for name in stripped if stripped.count(name) > 1}):
        raise ConfigurationError(
            KEY, f"{KEY} has {', '.join(twice)} more than once: name each strategy once"
        )
    return stripped


def _remedy(name: str) -> str:
    # Java names its strategies by class: org.apache.kafka.clients.consumer.RangeAssignor.
    plain = name.rpartition(".")[2].removesuffix("Assignor").lower()
    alike = closest(plain, KNOWN_STRATEGIES)
    meant = f"did you mean {' or '.join(alike)}?" if alike else _all()
    return f"{meant} A strategy of your own is passed as an instance: assignors=[...]"


def _all() -> str:
    return f"known are {', '.join(KNOWN_STRATEGIES)}."
