"""The play: three members share the work, a fourth joins, the leader is killed, all go home."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kafka_coop.demo.check import Killed, end_offsets
from kafka_coop.demo.crew import Crew, Ended, News
from kafka_coop.demo.group import Group, State
from kafka_coop.demo.narration import describe
from kafka_coop.demo.publisher import Publisher
from kafka_coop.demo.screen import Screen, Standing

PATIENCE: Final = 100.0
"""Seconds after which something must be wrong, beside what publishing is to take; a run with
that of 20 takes about 30."""

# Parts of the flights. Publishing goes on while the group rebalances, up to where the next
# scene must have begun.
_THREE_MEMBERS: Final = 0.25
_BEFORE_FOURTH_SHARES: Final = 0.55
_FOUR_MEMBERS: Final = 0.60
_BEFORE_KILL: Final = 0.70


class PlayFailedError(RuntimeError):
    """The play did not come to its end. Says where it stopped."""


class Scenario:
    """Directs the crew and the publisher, and takes in what the members tell.

    Attributes:
        killed: The member that was killed, once its process is over.
    """

    def __init__(
        self, crew: Crew, publisher: Publisher, group: Group, screen: Screen, *, began: float
    ) -> None:
        self.killed: Killed | None = None
        self._victim: str | None = None
        self._bereft: frozenset[int] = frozenset()
        self._crew = crew
        self._publisher = publisher
        self._group = group
        self._screen = screen
        self._began = began
        self._patience = PATIENCE + publisher.duration.total_seconds()

    def play(self) -> None:
        """Plays all scenes.

        Raises:
            PlayFailedError: A member died, or the group did not get where it should.
            PublishingError: The broker refused a flight.
        """
        self._three_members()
        self._a_fourth_joins()
        self._the_leader_is_killed()
        self._the_rest_is_processed()
        self._all_leave()

    def _three_members(self) -> None:
        self._screen.say("Three members start, and publishing with them.")
        for name in ("member-1", "member-2", "member-3"):
            self._start(name)
        self._publisher.allow(_THREE_MEMBERS)
        self._until(lambda: self._group.settled(3), "three members to share the partitions")
        self._until_published(_THREE_MEMBERS)

    def _a_fourth_joins(self) -> None:
        self._screen.say(
            "A fourth joins. Round one: the others give up one partition each, and keep reading"
            " the rest; round two, announced by the leader: the fourth gets them."
        )
        self._publisher.allow(_BEFORE_FOURTH_SHARES)
        self._start("member-4")
        self._until(lambda: self._group.settled(4), "the fourth member to get its share")
        self._publisher.allow(_BEFORE_KILL)
        self._until_published(_FOUR_MEMBERS)

    def _the_leader_is_killed(self) -> None:
        self._until(lambda: self._group.leader() is not None, "a leader")
        victim = self._group.leader()
        assert victim is not None
        member = self._group.members[victim]
        self._victim, self._bereft = victim, member.owned
        self._crew.kill(victim)
        self._group.ended(victim, State.KILLED)
        self._publisher.allow(1.0)
        owned = ", ".join(map(str, sorted(self._bereft)))
        self._screen.say(
            f"SIGKILL for {victim} (process {member.pid}), the group's leader, owner of {owned}."
            " It can't say goodbye: its session has to end first."
        )
        self._until(lambda: self._group.settled(3), "the other members to take over")

    def _the_rest_is_processed(self) -> None:
        self._screen.say("The three go on until every flight is processed and committed.")
        self._until(lambda: self._publisher.done, "all flights to be published")
        ends = end_offsets(self._publisher.positions)
        self._until(lambda: self._group.has_committed(ends), "the group to commit all flights")

    def _all_leave(self) -> None:
        self._screen.say("All done: the members leave the group.")
        self._crew.dismiss()
        self._until(
            lambda: not any(member.alive for member in self._group.members.values()),
            "the members to leave",
        )

    def _start(self, name: str) -> None:
        self._group.started(name, self._crew.start(name))

    def _until_published(self, fraction: float) -> None:
        enough = int(self._publisher.total * fraction)
        self._until(
            lambda: self._publisher.published >= enough, f"{enough:,} flights to be published"
        )

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Listens to the members and shows the group until the condition holds."""
        while not condition():
            now = time.monotonic()
            if now - self._began > self._patience:
                raise PlayFailedError(f"gave up after {self._patience:.0f} s, waiting for {what}")
            for name, news in self._crew.hear(0.1):
                self._take(name, news)
            standing = Standing(
                elapsed=self._elapsed(),
                published=self._publisher.published,
                total=self._publisher.total,
            )
            self._screen.show(self._group, standing)

    def _take(self, name: str, news: News) -> None:
        if isinstance(news, Ended):
            self._farewell(name, news)
            return
        self._group.heard(name, news, time.monotonic())
        line = describe(news)
        if line is not None:
            number = self._group.members[name].number
            self._screen.tell(self._elapsed(), number, name, line)

    def _farewell(self, name: str, end: Ended) -> None:
        how = f"exit status {end.status}" if end.status >= 0 else f"signal {-end.status}"
        if name == self._victim:
            # All it said has been heard, and nobody has its partitions yet: its session runs on.
            committed = self._group.committed_offsets(self._bereft)
            self.killed = Killed(name=name, committed=committed)
        elif end.expected and end.status == 0:
            self._group.ended(name, State.LEFT)
        else:
            words = f": {end.last_words}" if end.last_words else ""
            raise PlayFailedError(f"{name} died unexpectedly ({how}){words}")
        number = self._group.members[name].number
        self._screen.tell(self._elapsed(), number, name, f"is gone    {how}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began
