"""Tells the operator when a coordinator's silence keeps records from being delivered."""

from __future__ import annotations

import logging
from typing import Final

from kafka_coop.errors import RequestFailedError
from kafka_coop.protocol.messages import Node

_NOWHERE: Final = "its coordinator is looked for"

_IN_VAIN: Final = 3
"""Attempts to join in a row that failed, each after a longer pause, before that is told: of a
coordinator that moves one fails, or two."""


class Silence:
    """One member's. The membership thread's alone.

    A coordinator that acknowledges no heartbeat (too few of its replicas are in sync, say) ends the
    lease: `poll` delivers nothing, and raises nothing, for the member may be in the group still.
    Nor does it where the coordinator can't be reached to join, at an address that the brokers
    advertise and this machine can't connect to: that may pass.

    Args:
        group_id: Whose coordinator.
        logger: Gets a warning once an outage, and its end.
    """

    def __init__(self, group_id: str, logger: logging.Logger) -> None:
        self._group = group_id
        self._log = logger
        self._told = False
        self._in_vain = 0

    def joined(self, why_not: RequestFailedError | None, coordinator: Node | None) -> None:
        """JoinGroup was answered, or failed on its way.

        Args:
            why_not: How it failed; None: it was answered, whatever with.
            coordinator: Whom it went to.
        """
        if why_not is None:
            if self._in_vain >= _IN_VAIN:
                self._log.info("group %s: its coordinator can be reached again", self._group)
            self._in_vain = 0
            return
        self._in_vain += 1
        if self._in_vain == _IN_VAIN:
            self._log.warning(
                "group %s can't be joined at its coordinator (%s), it is tried again and again: %s",
                self._group,
                _where(coordinator),
                why_not,
            )

    def look(self, now: float, *, lease_until: float, owns: bool, coordinator: Node | None) -> None:
        """Looks whether there is news.

        Args:
            now: On `kafka_coop.backend.clock`.
            lease_until: The same; minus infinity: there is no lease, which the user hears of.
            owns: Whether the group has given this member anything.
            coordinator: Who should acknowledge; None: it is not known.
        """
        if now < lease_until:
            if self._told:
                self._told = False
                self._log.info("group %s: heartbeats are acknowledged again", self._group)
            return
        if lease_until == float("-inf"):
            self._told = False
        elif owns and not self._told:
            self._told = True
            self._log.warning(
                "group %s: no heartbeat was acknowledged in time (%s): what this member owns is"
                " not delivered until one is, for others may have it by now",
                self._group,
                _where(coordinator),
            )


def _where(coordinator: Node | None) -> str:
    return _NOWHERE if coordinator is None else coordinator.address
