"""What the next batch reads, of what is held and what the logs have: `Planner`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaException

from kafka_coop.spark.admission import Delay, limit_offsets
from kafka_coop.spark.errors import MembershipError, names_of
from kafka_coop.spark.extents import Extents
from kafka_coop.spark.gone import refuse_other_topics
from kafka_coop.spark.holdings import Hold
from kafka_coop.spark.loss import position_within
from kafka_coop.spark.member import Member
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import StreamOptions
from kafka_coop.spark.remembered import Remembered
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.soundness import refuse_moved_state
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

CALM_PAUSE: Final = 0.1
"""Seconds that a query which has nothing to do lets pass."""

_PAUSES: Final = ((10.0, 0.5), (1.0, CALM_PAUSE), (0.0, 0.01))
"""Seconds without a batch, and then between two questions for the logs' ends.

Spark asks for the latest offset a hundred times a second; a call that finds nothing waits for
something to come before it says so. What an idle query costs is the number of such calls.
"""


class Planner:
    """Of one run of a query, from its first join on. One thread plans.

    Args:
        options: The source's.
        member: What it holds is read.
        remembered: What the batches' ends say besides.
        extents: How far the logs reach.
        targets: Up to where this run reads, of each partition; None: it goes on for ever. What
            is not in it any more, or has become shorter, is taken out, or back.

    Attributes:
        member, remembered, targets: As above.
    """

    def __init__(
        self,
        options: StreamOptions,
        *,
        member: Member,
        remembered: Remembered,
        extents: Extents,
        targets: dict[TopicPartition, int] | None,
    ) -> None:
        self.member = member
        self.remembered = remembered
        self.targets = targets
        self._options = options
        self._extents = extents
        self._delay = Delay(least=options.min_offsets, longest=options.max_delay)
        self._created = time.monotonic()
        self._last_batch: float | None = None
        self._rebalances = 0
        self._warned = ""

    def wait_for_data(self, *, limited: bool) -> Mapping[str, Any] | None:
        """Plans a batch; waits a moment for records where there are none.

        Args:
            limited: Whether the options' limits count; not for ``Trigger.Once``.

        Returns:
            The batch's end; None: there is nothing to read, or not enough yet.

        Raises:
            DataLossError, MembershipError
        """
        began = time.monotonic()
        since = began - (self._last_batch or self._created)
        pause = next(pause for quiet, pause in _PAUSES if since >= quiet)
        until = began + max(pause, CALM_PAUSE)
        while True:
            found = self.plan(limited=limited)
            if found is not None or self.targets is not None or not limited:
                return found
            left = until - time.monotonic()
            if left <= 0:
                return None
            with self.member.changed:
                self.member.changed.wait(min(pause, left))

    def plan(self, *, limited: bool = True) -> Mapping[str, Any] | None:
        """The next batch, as `wait_for_data`, without waiting."""
        member = self.member
        self._start_over()
        with member.changed:
            holds = {
                of: replace(hold)
                for of, hold in member.holdings.held.items()
                if of not in member.holdings.leaving
            }
        available = self._available(holds, limited=limited)
        offsets = sum(span.size for span in available.values())
        if offsets == 0 or (limited and self._holds_back(offsets)):
            return None
        if member.is_fenced:
            why = (
                "there is something to read, but the group's coordinator has not answered for a "
                "session's time"
            )
            _refuse_to_end(why, limited=limited)
            return None
        with member.changed:
            claims = (
                member.holdings.renew() or not available.keys() <= member.holdings.ready().keys()
            )
        if claims:
            member.commit_or_fail()
        end = self._choose(available, limited=limited)
        if end is not None:
            self._last_batch = time.monotonic()
        return end

    def plan_of_nothing(self) -> Mapping[str, Any]:
        """A checkpoint's first batch, which Spark logs and runs although there is nothing to read.

        From here on the checkpoint knows its name, and which partitions there were: a query that is
        started again without it would take those that came meanwhile for old ones.
        """
        with self.member.changed:
            return self._begin_batch({})

    def _choose(
        self, available: Mapping[TopicPartition, Range], *, limited: bool
    ) -> Mapping[str, Any] | None:
        """Begins a batch of what is claimed, as much as the options let."""
        member = self.member
        most = self._options.max_offsets if limited else None
        with member.changed:
            ready = member.holdings.ready()
            chosen = limit_offsets(
                {of: span for of, span in available.items() if ready.get(of) == span.start}, most
            )
            if chosen:
                return self._begin_batch(chosen)
            there = member.holdings.held.keys() - member.holdings.leaving
            if available.keys() & there - ready.keys():
                why = (
                    "there is something to read, but the group has not taken what we claim "
                    f"({member.last_error})"
                )
                _refuse_to_end(why, limited=limited)
            return None

    def _begin_batch(self, chosen: Mapping[TopicPartition, Range]) -> Mapping[str, Any]:
        """The end of the batch that reads these, from now on under way. Holds `changed`.

        What was taken in since the call began, which may have waited for long, is in the batch,
        or in its end: there it would pass for the checkpoint's own.

        Raises:
            MembershipError: The query keeps state, which is not to be had with it.
        """
        member = self.member
        refuse_moved_state(member.moved, Rendezvous(self.remembered.id), self._options)
        end = self.remembered.end(
            member.holdings,
            chosen,
            taken_over=member.taken_over,
            replays=self._options.horizon is not None,
        ).to_json()
        member.holdings.begin(end, chosen)
        return end

    def _start_over(self) -> None:
        """What is held of topics that were made anew is read from their beginnings."""
        member = self.member
        with member.changed:
            topics = {of.topic for of in member.holdings.held}
            rebalances = member.rebalances
        # A topic that goes and comes takes its partitions along, where the group notices.
        at_once = rebalances != self._rebalances
        made_anew = self.remembered.identities.made_anew(topics, at_once=at_once)
        refuse_other_topics(made_anew, self._options)
        self._rebalances = rebalances
        if not made_anew:
            return
        self.remembered.start_over(made_anew)
        if self.targets is not None:  # what is new since the run began is not read in it
            for of in [of for of in self.targets if of.topic in made_anew]:
                del self.targets[of]
        self._extents.forget()
        with member.changed:
            member.holdings.start_over(made_anew)

    # --- what there is to read ---------------------------------------------------------------

    def _available(
        self, holds: Mapping[TopicPartition, Hold], *, limited: bool
    ) -> dict[TopicPartition, Range]:
        most = self._options.max_offsets if limited else None
        try:
            logs = self._extents.look(holds, targets=self.targets, most=most)
        except KafkaException as error:
            why = f"the logs' ends can't be had: {error}"
            _refuse_to_end(why, limited=limited)
            self._warn_once(why)
            return {}
        if untold := holds.keys() - self._extents.ends.keys():
            self._warn_once(
                f"the ends of {names_of(untold)} can't be had, and nothing is read there until "
                "they can: have their partitions leaders?"
            )
        else:
            self._warned = ""
        available = {}
        for of, log in logs.items():
            position = self._position_within(of, holds[of], log)
            end = self._extents.ends[of]
            if self.targets is not None:
                end = self._target(of, position, end)
            available[of] = Range(position, max(position, end))
        return available

    def _target(self, of: TopicPartition, position: int, end: int) -> int:
        """Up to where this run reads a log that ends at ``end``."""
        assert self.targets is not None, "only a run that ends has targets"
        target = self.targets.get(of, position)  # what is new since it began is not read
        if end < target:  # it has become shorter, and won't reach to where it ended
            target = self.targets[of] = end
        return max(position, target)

    def _position_within(self, of: TopicPartition, known: Hold, log: Range) -> int:
        """Where to go on in a log from which records may be gone."""
        is_shorter = known.reached > log.stop
        position = position_within(
            of, known.reached if is_shorter else known.position, log, self._options
        )
        if is_shorter:
            position = max(log.start, min(known.position, position))
        elif position == known.position:
            return position
        holdings = self.member.holdings
        with self.member.changed:
            hold = holdings.held.get(of)
            if hold is not None and hold.position == known.position:  # else it was away meanwhile
                if is_shorter:
                    holdings.shorten(of, log.stop)
                holdings.move(of, position)
        return position

    def _holds_back(self, offsets: int) -> bool:
        if self.targets is not None:
            return False
        last = self._last_batch
        since = None if last is None else timedelta(seconds=time.monotonic() - last)
        return self._delay.holds_back(offsets, since)

    def _warn_once(self, text: str) -> None:
        """Spark asks ten times a second: what goes on being so is told once."""
        if text != self._warned:
            _LOG.warning("group %s: %s", self._options.group, text)
        self._warned = text


def _refuse_to_end(why: str, *, limited: bool) -> None:
    """What there is can't be had, or read, yet. Trigger.Once does not ask again.

    Raises:
        MembershipError: It would end as if nothing were there.
    """
    if not limited:
        raise MembershipError(
            f"{why}. Trigger.Once asks once, and would end as if nothing were there: start the "
            "query again"
        ) from None
