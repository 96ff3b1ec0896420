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

from typing import TYPE_CHECKING

from kafka_coop.errors import ConfigurationError
from kafka_coop.first_use import imported_on_first_use
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
    "ConstrainedCooperativeSticky": "kafka_coop.assignors.constrained",
    "CooperativeSticky": "kafka_coop.assignors.cooperative_sticky",
    "FairestSticky": "kafka_coop.assignors.fairest_sticky",
    "LoadAwareSticky": "kafka_coop.assignors.load_aware",
    "Range": "kafka_coop.assignors.range",
    "RoundRobin": "kafka_coop.assignors.roundrobin",
    "Sticky": "kafka_coop.assignors.sticky",
    "StreamJoinSticky": "kafka_coop.assignors.stream_join",
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

_imported = imported_on_first_use(__name__, _HOMES)

if not TYPE_CHECKING:
    __getattr__ = _imported


def __dir__() -> list[str]:
    return sorted(__all__)


def known_names() -> tuple[str, ...]:
    """The built-in strategies' names on the wire, sorted."""
    return tuple(_CLASSES)


def is_built_in(assignor: Assignor) -> bool:
    """Whether it is of a class of this package, and not of one derived from it."""
    kind = type(assignor)
    home = _HOMES.get(kind.__name__)
    return home is not None and kind.__module__ == home


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
    strategy: Assignor = _imported(class_name)()
    return strategy
