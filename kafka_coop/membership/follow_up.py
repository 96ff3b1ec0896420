"""The follow-up round that a leader has announced, and when who gives nothing up joins it.

Whoever gives something up would begin it, and heartbeats tell the others: half of the time between
two of them, a heartbeat's way and then JoinGroup's would be part of the gap of all that moves. So
they join before it has begun. Parked, a JoinGroup costs nothing: records flow, commits are taken.

Not if the round before announced one as well: whoever is to give up takes their time, and has said
so by joining with all that they own (`kafka_coop.membership.adopting`). Rounds in which nobody
gives anything up would follow one another for as long as a callback runs. Heartbeats tell then.
"""

from __future__ import annotations

GO_AHEAD_AFTER = 0.008
"""Seconds from the announcement to the JoinGroup of who gives nothing up. All have their SyncGroup
answered by then, and whoever revokes has a callback to run, and most often a commit to send, in
whose way the others' requests would be."""


class FollowUp:
    """What one member knows of it.

    Attributes:
        due: When to join it though nobody has begun it; None: not before somebody has. Who has
            something to give up does that first, and then joins in any case.
    """

    def __init__(self) -> None:
        self.due: float | None = None
        self._was_announced = False

    def round_over(self, now: float, *, announces: bool) -> None:
        """``announces``: with it the leader has announced another one."""
        again, self._was_announced = self._was_announced, announces
        self.due = now + GO_AHEAD_AFTER if announces and not again else None

    def begun(self) -> None:
        """We join, for whichever reason."""
        self.due = None

    def forget(self) -> None:
        """Out of the group."""
        self.due, self._was_announced = None, False
