"""Which rounds a member took part in since the one that it owns its partitions by."""

from __future__ import annotations

from kafka_coop.protocol.messages import GroupJoined
from kafka_coop.types import NO_GENERATION, Generation, MemberId


class Attendance:
    """The rounds joined, applied or not; those that were missed tell by their generation."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Out of the group."""
        self._last: Generation = NO_GENERATION
        self._led_by: tuple[MemberId, ...] | None = None
        """Who led each round since what we own was applied; None: we may have missed one."""

    def joined(self, answer: GroupJoined) -> None:
        """JoinGroup was answered."""
        if answer.generation == self._last:  # the same round once more: SyncGroup had failed
            return
        if self._led_by is not None and answer.generation == self._last + 1:
            self._led_by += (answer.leader,)
        else:
            self._led_by = None
        self._last = answer.generation

    def applied(self) -> None:
        """What we own is claimed with the generation of the round joined last."""
        self._led_by = ()

    def skips(self, generation: Generation) -> bool:
        """Whether rounds lie between this one and the last that was joined."""
        return generation > self._last + 1

    def was_heard(self, *, by_ours: bool) -> bool:
        """Whether what we owned before the last round was nobody else's to begin with in it.

        It was not in a round that heard from us with the newest generation. If the round before was
        cut short, by a newcomer that came between JoinGroup and SyncGroup, say, others may have
        applied it, and our claim is older. Then it depends on who leads. Ours let old claims stand
        that nobody contests, and nobody can: the first round that we did not apply had us with the
        newest, and the rest had the same leader. Others look at the newest claims alone (Java
        before KAFKA-14639): what those gave away may have begun.

        Args:
            by_ours: The last round's leader was one of ours.
        """
        if not self._led_by:
            return False
        _, *later = self._led_by
        return not later or (by_ours and len({*later}) == 1)
