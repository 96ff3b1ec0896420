"""Whom a watchdog watches over, as it is told through its pipe."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_coop.protocol.messages import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """A member, and where its group's coordinator is. Small: it changes with each rebalance.

    How to reach brokers, whole certificates among it, is told once.

    Attributes:
        member_id: Empty: in no group, so that there is nothing to leave.
        coordinator: The last one known; None: to be found.
    """

    group_id: str = ""
    member_id: str = ""
    coordinator: Node | None = None
