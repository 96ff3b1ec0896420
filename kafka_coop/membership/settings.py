"""What a member needs to know of its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kafka_coop.errors import ConfigurationError
from kafka_coop.types import Assignor, RebalanceProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Fixed for a member's life.

    Attributes:
        heartbeat_interval: None: the leader's suggestion holds (`kafka_coop.leader`).
        rebalance_timeout: ``max.poll.interval.ms``: how long the user may take between two
            polls, and so how long the others wait for this member in a round.
        retry_backoff, retry_backoff_max: Between attempts of whatever failed.
        seed: Spreads the retries of different members apart; the machine itself is
            deterministic.
    """

    group_id: str
    assignors: tuple[Assignor, ...]
    client_id: str = "rdkafka"
    instance_id: str | None = None
    rack: str | None = None
    session_timeout: timedelta = timedelta(seconds=45)
    heartbeat_interval: timedelta | None = None
    rebalance_timeout: timedelta = timedelta(minutes=5)
    request_timeout: timedelta = timedelta(seconds=60)
    retry_backoff: timedelta = timedelta(milliseconds=100)
    retry_backoff_max: timedelta = timedelta(seconds=1)
    metadata_max_age: timedelta = timedelta(minutes=5)
    allow_auto_create_topics: bool = False
    auto_commit: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses strategies that share no rebalance protocol, or a name.

        Raises:
            ConfigurationError: Naming ``partition.assignment.strategy``.
        """
        names = [a.name for a in self.assignors]
        key = "partition.assignment.strategy"
        if not names:
            raise ConfigurationError(key, f"{key} names no strategy: give at least one")
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ConfigurationError(
                key, f"{key} has {', '.join(twice)} more than once: name each strategy once"
            )
        _common_protocols(self.assignors)

    @property
    def protocol(self) -> RebalanceProtocol:
        """The highest protocol that every strategy supports.

        So ``range,cooperative-sticky`` is EAGER and ``cooperative-sticky`` alone COOPERATIVE:
        the two rolling bounces of KIP-429's upgrade path.
        """
        return max(_common_protocols(self.assignors))


def _common_protocols(assignors: tuple[Assignor, ...]) -> frozenset[RebalanceProtocol]:
    common = frozenset(RebalanceProtocol).intersection(*(a.supported_protocols for a in assignors))
    if not common:
        listed = ", ".join(
            f"{a.name} ({'/'.join(sorted(p.name for p in a.supported_protocols)) or 'none'})"
            for a in assignors
        )
        key = "partition.assignment.strategy"
        raise ConfigurationError(
            key, f"{key}: no rebalance protocol is common to {listed}: remove one of them"
        )
    return common
