"""Whom a watchdog watches over, as it is told through its pipe."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_coop.config import ConnectionSettings
from kafka_coop.protocol.messages import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """A member, and how to reach its group.

    Attributes:
        member_id: Empty: in no group, so that there is nothing to leave.
        coordinator: The last one known; None: to be found.
    """

    settings: ConnectionSettings = field(repr=False)
    group_id: str = ""
    member_id: str = ""
    coordinator: Node | None = None
