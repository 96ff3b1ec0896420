"""What the user's thread is told to do, and in which order: the contract of KIP-429.

on_revoke returns, then its commit is done or given up, then ownership ends; a member that joins
before that claims what it has still to give up. on_lost says that ownership has ended already:
nothing is committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_coop.membership.effects import (
    Action,
    CallAssigned,
    CallLost,
    CallRevoked,
    CommitPositions,
    Own,
    Release,
)
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, RebalanceProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GivingUp:
    """Actions that end the ownership of some partitions."""

    actions: tuple[Action, ...] = ()
    revoked: Partitions = NO_PARTITIONS
    lost: Partitions = NO_PARTITIONS

    @property
    def released(self) -> Partitions:
        """All that is owned no more once the actions are done."""
        return self.revoked | self.lost


def lose(owned: Partitions) -> GivingUp:
    """The group went on without us. Silent if nothing was owned."""
    if not owned:
        return GivingUp()
    actions = (CallLost(partitions=owned), Release(partitions=owned))
    return GivingUp(actions=actions, lost=owned)


def revoke(partitions: Partitions, *, auto_commit: bool, even_if_empty: bool = False) -> GivingUp:
    """An orderly end of ownership."""
    if not partitions and not even_if_empty:
        return GivingUp()
    actions: list[Action] = [CallRevoked(partitions=partitions)]
    if partitions and auto_commit:
        actions.append(CommitPositions(partitions=partitions))
    if partitions:
        actions.append(Release(partitions=partitions))
    return GivingUp(actions=tuple(actions), revoked=partitions)


def prepare(
    *,
    protocol: RebalanceProtocol,
    owned: Partitions,
    unsubscribed: Partitions,
    vanished: Partitions,
    auto_commit: bool,
) -> GivingUp:
    """Before a join by a member in good standing.

    EAGER gives up everything, and says so even where that is nothing (the user's sign that a
    rebalance begins). COOPERATIVE gives up what it no longer wants, and loses what no longer
    exists: there is nothing left to commit to.
    """
    if protocol is RebalanceProtocol.EAGER:
        return revoke(owned, auto_commit=auto_commit, even_if_empty=True)
    lost = lose(owned & vanished)
    rest = revoke((owned & unsubscribed) - vanished, auto_commit=auto_commit)
    return GivingUp(actions=lost.actions + rest.actions, revoked=rest.revoked, lost=lost.lost)


def gain(added: Partitions, generation: Generation) -> tuple[Action, ...]:
    """After the round: always says what was added, even if nothing was."""
    owning: tuple[Action, ...] = (Own(partitions=added, generation=generation),) if added else ()
    return (*owning, CallAssigned(partitions=added))
