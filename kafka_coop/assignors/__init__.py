"""Partition assignment strategies: pure functions of a snapshot.

| name on the wire | class | rebalance protocols |
|---|---|---|
| range | `Range` | eager |
| roundrobin | `RoundRobin` | eager |
| sticky | `Sticky` | eager |
| cooperative-sticky | `CooperativeSticky` | cooperative, eager |
| constrained-cooperative-sticky | `ConstrainedCooperativeSticky` | cooperative, eager |
| fairest-sticky | `FairestSticky` | cooperative, eager |
| stream-join-sticky | `StreamJoinSticky` | cooperative, eager |
| load-aware-sticky | `LoadAwareSticky` | cooperative, eager |

Names are imported on first use, so that a consumer pays for the strategy it runs alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kafka_coop.errors import ConfigurationError
from kafka_coop.types import Assignor

if TYPE_CHECKING:
    from kafka_coop.assignors.constrained import ConstrainedCooperativeSticky
    from kafka_coop.assignors.cooperative_sticky import CooperativeSticky
    from kafka_coop.assignors.fairest_sticky import FairestSticky
    from kafka_coop.assignors.load_aware import LoadAwareSticky
    from kafka_coop.assignors.range import Range
    from kafka_coop.assignors.roundrobin import RoundRobin
    from kafka_coop.assignors.sticky import Sticky
    from kafka_coop.assignors.stream_join import StreamJoinSticky

__all__ = [
    "Assignor",
    "ConstrainedCooperativeSticky",
    "CooperativeSticky",
    "FairestSticky",
    "LoadAwareSticky",
    "Range",
    "RoundRobin",
    "Sticky",
    "StreamJoinSticky",
    "is_built_in",
    "known_names",
    "resolve",
]

_HOMES = {
    "ConstrainedCooperativeSticky": "constrained",
    "CooperativeSticky": "cooperative_sticky",
    "FairestSticky": "fairest_sticky",
    "LoadAwareSticky": "load_aware",
    "Range": "range",
    "RoundRobin": "roundrobin",
    "Sticky": "sticky",
    "StreamJoinSticky": "stream_join",
}

_CLASSES = {
    "constrained-cooperative-sticky": "ConstrainedCooperativeSticky",
    "cooperative-sticky": "CooperativeSticky",
    "fairest-sticky": "FairestSticky",
    "load-aware-sticky": "LoadAwareSticky",
    "range": "Range",
    "roundrobin": "RoundRobin",
    "sticky": "Sticky",
    "stream-join-sticky": "StreamJoinSticky",
}


def __getattr__(name: str) -> object:
    """Imports a strategy the first time it is named (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    strategy = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = strategy
    return strategy


def __dir__() -> list[str]:
    return sorted(__all__)


def known_names() -> tuple[str, ...]:
    """The built-in strategies' names on the wire, sorted."""
    return tuple(_CLASSES)


def is_built_in(assignor: Assignor) -> bool:
    """Whether it is of a class of this package, and not of one derived from it."""
    kind = type(assignor)
    home = _HOMES.get(kind.__name__)
    return home is not None and kind.__module__ == f"{__name__}.{home}"


def resolve(name: str) -> Assignor:
    """Builds the strategy of that name.

    Returns:
        A new instance on every call: what it remembers of its member's assignments belongs to
        one consumer, and two consumers of one process must not share it.

    Raises:
        ConfigurationError: No built-in strategy has this name.
    """
    class_name = _CLASSES.get(name)
    if class_name is None:
        raise ConfigurationError(
            "partition.assignment.strategy",
            f"unknown strategy {name!r}; known: {', '.join(_CLASSES)}. "
            "A strategy of your own is passed as an instance: CoopConsumer(…, assignors=[…])",
        )
    strategy: Assignor = __getattr__(class_name)()  # type: ignore[operator]  # a class of ours
    return strategy
