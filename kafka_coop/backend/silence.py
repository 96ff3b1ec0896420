"""Tells the operator when a coordinator's silence keeps records from being delivered."""

from __future__ import annotations

import logging
from typing import Final

from kafka_coop.protocol.messages import Node

_NOWHERE: Final = "its coordinator is looked for"


class Silence:
    """One member's. The membership thread's alone.

    A coordinator that acknowledges no heartbeat (too few of its replicas are in sync, say) ends the
    lease: `poll` delivers nothing, and raises nothing, for the member may be in the group still.

    Args:
        group_id: Whose coordinator.
        logger: Gets a warning once an outage, and its end.
    """

    def __init__(self, group_id: str, logger: logging.Logger) -> None:
        self._group = group_id
        self._log = logger
        self._told = False

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
            where = _NOWHERE if coordinator is None else coordinator.address
            self._log.warning(
                "group %s: no heartbeat was acknowledged in time (%s): what this member owns is"
                " not delivered until one is, for others may have it by now",
                self._group,
                where,
            )
