"""One run of a streaming query's source, in the reader's process: what each call of Spark does.

docs/SPARK.md has the order of the calls and the rules of hand-over and replay.
"""

from __future__ import annotations

import functools
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaException

from kafka_coop.config import parse
from kafka_coop.spark.admission import Delay, limit_offsets
from kafka_coop.spark.available_now import wait_for_group
from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.extents import Extents
from kafka_coop.spark.gone import (
    refuse_another_cluster,
    refuse_deleted_since,
    refuse_deleted_topics,
    refuse_other_topics,
)
from kafka_coop.spark.holdings import Committed, Hold, Holdings
from kafka_coop.spark.identities import Identities
from kafka_coop.spark.loss import position_within
from kafka_coop.spark.member import Member
from kafka_coop.spark.neighbours import Neighbours
from kafka_coop.spark.offsets import Range, SourceOffset, TakenOver, parse_offset, taken_of, without
from kafka_coop.spark.option_values import EARLIEST, Boundary
from kafka_coop.spark.options import StreamOptions, canonical
from kafka_coop.spark.reading import RangeTask, tasks_of
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.replay import replay
from kafka_coop.spark.serving import serve_metrics
from kafka_coop.spark.soundness import (
    refuse_competition,
    refuse_moved_state,
    refuse_shared_state,
    refuse_taken_state,
)
from kafka_coop.spark.starting import (
    answering,
    horizon_start,
    logs_of,
    refuse_others,
    resolve,
    wanted_partitions,
    wanted_topics,
)
from kafka_coop.spark.tickets import TicketOffice, open_office
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_CALM_PAUSE = 0.1
_PAUSES = ((10.0, 0.5), (1.0, _CALM_PAUSE), (0.0, 0.01))
"""Seconds without a batch, and then between two questions for the logs' ends.

Spark asks for the latest offset a hundred times a second; a call that finds nothing waits for
something to come before it says so. What an idle query costs is the number of such calls.
"""


class Session:
    """From the first call that needs the group, to `close`. One thread calls.

    Args:
        options: The source's.
        near: Whether the tasks run on this host.

    Raises:
        OptionError: librdkafka does not take a property.
    """

    def __init__(self, options: StreamOptions, *, near: bool = False) -> None:
        self._options = options
        self._near = near
        self._office: TicketOffice | None = None
        self._fetching = parse(options.kafka).fetcher
        self._logs = logs_of(options)
        self._member: Member | None = None
        self._stop_serving: Callable[[], None] | None = None
        self._id = ""
        self._topics: Mapping[str, int] = {}
        self._taken = TakenOver()
        self._delay = Delay(least=options.min_offsets, longest=options.max_delay)
        self._created = time.monotonic()
        self._last_batch: float | None = None
        self._targets: dict[TopicPartition, int] | None = None
        self._drained = False
        self._warned = ""
        self._has_been_assigned = False
        self._identities = Identities(self._logs, {})
        self._neighbours = Neighbours(self._logs.admin, options.group)
        self._extents = Extents(self._logs, read_committed=options.read_committed)
        self._rebalances = 0
        self._gone: Collection[str] = ()

    # --- what Spark calls ------------------------------------------------------------------

    def aim_at_what_is_there(self) -> None:
        """``Trigger.AvailableNow``: what is in the logs now is to be read, and no more."""
        # Whether one that is not there was deleted, is told when the checkpoint is known.
        counts = wanted_topics(self._options, self._logs, may_lack=self._options.topics)
        with answering(self._options):
            self._targets = self._logs.all_ends(wanted_partitions(self._options, counts))

    def latest(self, start: Mapping[str, Any], *, limited: bool) -> Mapping[str, Any]:
        """The end of the next batch, and the safe moment of the last one.

        Args:
            start: The end of the last batch, which is durable.
            limited: Whether the options' limits count; not for ``Trigger.Once``.

        Returns:
            ``start`` itself where there is nothing to read; of a checkpoint that has nothing yet,
            where all that is held begins.

        Raises:
            CheckpointError, DataLossError, MembershipError, OptionError, KafkaException
        """
        member = self._joined(start, durable=True)
        if self._drained:
            return self._goes_no_further(start)
        member.raise_failure()
        # Before the last batch counts, if the driver's listener was quick enough: it lacked what
        # others have, and who reads it again must find it.
        its = Rendezvous(self._id)
        refuse_competition(its, self._options.group)
        self._taken = taken_of(start)
        refuse_taken_state(self._taken, its, self._options)
        with member.changed:
            mistaken = member.moved & member.holdings.reading.keys()
        refuse_moved_state(mistaken, its, self._options)
        self._settle(member, start)
        if self._drains(member):
            return start
        self._refuse_deleted_topics(member)
        if not self._has_been_assigned or self._targets is not None:
            # Later what is held goes on while something new is being taken in.
            member.wait_for_assignment(self._options.patience, its.is_asked)
            self._has_been_assigned = True
            if self._drains(member):
                return start
        refuse_moved_state(member.moved, its, self._options)
        self._refuse_shared(member, its)
        found = self._wait_for_data(member, limited=limited)
        if found is None and self._targets is not None:
            self._commit(member)  # the run ends with this call, if nothing comes to us any more
            plan = functools.partial(self._plan, member, limited=True)
            found = wait_for_group(member, self._targets, self._options, plan, its.is_asked)
            if found is None and self._drains(member):
                return start
        if found is not None:
            return found
        return start or self._plan_of_nothing(member)

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RangeTask]:
        """The tasks of the batch between the two.

        A batch that this process has not planned was logged by an earlier one that died.

        Raises:
            CheckpointError, DataLossError, MembershipError, OptionError, KafkaException
        """
        if canonical(start) == canonical(end):
            return []
        planned = parse_offset(end, group=self._options.group)
        if planned is None:
            return []
        member = self._joined(end, durable=False)
        planned = without(planned, self._gone)
        with member.changed:
            known = member.holdings.is_under_way(end)
            # Spark asks once for each branch of the query: all of them are to read the same, and
            # of a batch that is replayed others may have a part.
            ranges = member.holdings.begun
        if not known:
            ranges = replay(member, planned, end, self._options, self._logs)
            self._refuse_loss(ranges)
        return tasks_of(ranges, self._options, self._office)

    def report(self) -> dict[str, Any] | None:
        """For ``progress.sources[].latestOffset``: the logs' ends, and the membership."""
        member = self._member
        if member is None:
            return None
        with member.changed:
            held = sorted(member.holdings.held)
            leaving = len(member.holdings.leaving)
        return {
            "id": self._id,
            "group": self._options.group,
            "cluster": self._logs.cluster,
            "member": member.member_id,
            "topics": sorted(
                topic
                for topic in self._topics.keys() | {of.topic for of in held}
                if self._options.asks_for(topic)
            ),
            "tps": {f"{of.topic}:{of.partition}": self._extents.ends.get(of) for of in held},
            "leaving": leaving,
            "rebalances": member.rebalances,
            "lost": len(member.lost_ones),
            "lastRebalanceMs": member.last_rebalance // timedelta(milliseconds=1),
            "lastHandoverMs": member.last_handover // timedelta(milliseconds=1),
        }

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """Partitions that were not handed over, but lost."""
        return frozenset() if self._member is None else self._member.lost_ones

    def close(self) -> None:
        """Leaves the group."""
        if self._stop_serving is not None:  # first: whoever comes next may want the port at once
            self._stop_serving()
            self._stop_serving = None
        try:
            if self._office is not None:
                self._office.close()
        finally:
            if self._member is not None:
                self._member.close()

    # --- joining ---------------------------------------------------------------------------

    def _joined(self, last: Mapping[str, Any], *, durable: bool) -> Member:
        """The member; made with the first call, when the checkpoint's last offset is known."""
        if self._member is not None:
            return self._member
        options = self._options
        checkpoint = parse_offset(last, group=options.group)
        known = frozenset[str]() if checkpoint is None else checkpoint.known_topics
        counts = wanted_topics(options, self._logs, may_lack=known)
        if checkpoint is not None:
            refuse_another_cluster(checkpoint, self._logs.cluster)
            with answering(options):
                refuse_deleted_since(checkpoint, counts, self._logs, options)
        self._aim_at_late_ones(counts)
        self._identities = Identities(self._logs, checkpoint.ids if checkpoint else {})
        self._gone = self._made_anew(counts)
        if checkpoint is None:
            refuse_others(options.starting, wanted_partitions(options, counts))
            self._id, self._topics = _token(), counts
            holdings = Holdings(_token())
        else:
            checkpoint = without(checkpoint, self._gone)
            self._id, self._topics = checkpoint.id, checkpoint.topics
            holdings = Holdings(_token(), checkpoint.run)
            holdings.remember(checkpoint, durable=durable)
            self._taken = checkpoint.taken
        its = Rendezvous(self._id)
        its.clear()
        refuse_taken_state(self._taken, its, options)
        if options.metrics_port is not None:
            self._stop_serving = serve_metrics(options.metrics_port)
        if self._near:
            self._office = open_office(its)
        self._member = Member(
            options,
            holdings,
            instance_id=f"kafka_coop-{self._id}" if options.static else None,
            begin=self._begin,
        )
        return self._member

    def _aim_at_late_ones(self, counts: Mapping[str, int]) -> None:
        """A broker that has just started may know a topic that it did not when the run began."""
        if self._targets is None:
            return
        known = {of.topic for of in self._targets}
        late = {t: counts[t] for t in self._options.topics if t in counts and t not in known}
        if late:
            with answering(self._options):
                self._targets |= self._logs.all_ends(wanted_partitions(self._options, late))

    def _made_anew(self, topics: Collection[str], *, at_once: bool = False) -> Collection[str]:
        """Those of the topics that are others than they were, and may be gone on with."""
        made_anew = self._identities.made_anew(topics, at_once=at_once)
        refuse_other_topics(made_anew, self._options)
        return made_anew

    def _begin(self, came: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
        """Where to begin partitions that others have read, or nobody yet. Member's thread.

        What was not there when the checkpoint was begun is read from its beginning, as the
        built-in source does: else the records between a partition's creation and its discovery
        would be skipped.
        """
        options = self._options
        positions = {of: c.offset for of, c in came.items() if c.offset is not None}
        if options.horizon is not None:
            positions |= {
                of: horizon_start(
                    of,
                    offset,
                    options.horizon,
                    logs=self._logs,
                    config=self._fetching,
                    patience=options.poll_timeout,
                    doubt=options.doubt,
                )
                for of, offset in positions.items()
                if came[of].has_been_read
            }
        fresh = [of for of in came if of not in positions]
        new = [of for of in fresh if of.partition >= self._topics.get(of.topic, 0)]
        old = [of for of in fresh if of not in new]
        earliest = Boundary(option="startingOffsets", offset=EARLIEST)
        solve = functools.partial(resolve, logs=self._logs, latest_if_none=options.latest_if_none)
        begins = solve(options.starting, old)
        return positions | solve(earliest, new) | begins | self._within_the_logs(begins)

    def _within_the_logs(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """An offset of startingOffsets that the log does not have is told before it is claimed.

        Once committed it would go before the option, however that is corrected, and records would
        be skipped as soon as the log has grown to there.
        """
        named = self._options.starting.offsets or {}
        given = {of: at for of, at in begins.items() if named.get(of) == at}
        if not given:
            return {}
        first, last = self._logs.all_beginnings(given), self._logs.all_ends(given)
        if beyond := {of: at for of, at in given.items() if at > last[of]}:
            # By the first answer; a broker that is back from a crash tells another later.
            last |= self._logs.ends(beyond, known=beyond)
        reached = self._extents.reached_in_transactions(given, last)
        found = {}
        for of, at in given.items():
            log = Range(first[of], max(first[of], at if of in reached else last[of]))
            found[of] = position_within(of, at, log, self._options)
        return found

    # --- the safe moment -------------------------------------------------------------------

    def _settle(self, member: Member, start: Mapping[str, Any]) -> None:
        """The last batch is durable: positions move on, revocations that waited for it go on."""
        with member.changed:
            if member.holdings.is_under_way(start):
                member.holdings.finish()
            else:
                member.holdings.forget()  # it was planned and never run
            member.changed.notify_all()
            member.commit_later()

    @staticmethod
    def _commit(member: Member) -> None:
        """Commits, and fails where the group takes no commits of ours."""
        member.commit_now()
        member.raise_failure()

    def _drains(self, member: Member) -> bool:
        """Whether the driver asked us to hand everything over; does it, if so.

        What could not be committed is tried again with the next call, and not left to be read
        twice.
        """
        rendezvous = Rendezvous(self._id)
        if not rendezvous.is_asked():
            return False
        self._commit(member)
        if self._targets is not None:  # there is no next call: the run ends with this one
            wait_for_group(member, {}, self._options, lambda: None, lambda: False)
        with member.changed:
            if member.holdings.news():
                return True
        member.close(for_good=True)
        self._drained = True
        rendezvous.answer()
        _LOG.info("group %s: drained", self._options.group)
        return True

    def _goes_no_further(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drained, it is no member any more, and waits for the driver to stop the query.

        A driver that had given up waiting, while we were leaving, would have a query that runs
        and reads nothing. Should it ask again, it is answered.
        """
        rendezvous = Rendezvous(self._id)
        if not rendezvous.is_asked():
            raise MembershipError(
                f"the query has left the group {self._options.group!r}: it was drained, when the "
                "driver had already stopped waiting for it. All its work is committed: start it "
                "again, and let drain's timeout be longer"
            )
        rendezvous.answer()
        time.sleep(_CALM_PAUSE)
        return start

    def _refuse_shared(self, member: Member, its: Rendezvous) -> None:
        options = self._options
        if options.partitions or not its.is_stateful():
            return  # without a group, or without anything to lose
        shared = self._neighbours.look(
            options.asks_for, member=member.member_id, rebalances=member.rebalances
        )
        refuse_shared_state(shared, its, options)

    # --- topics that are gone ----------------------------------------------------------------

    def _refuse_deleted_topics(self, member: Member) -> None:
        with member.changed:
            went = member.went
        if refuse_deleted_topics(went, self._logs, self._options):
            with member.changed:
                member.went -= went

    def _start_over(self, member: Member) -> None:
        """What is held of topics that were made anew is read from their beginnings."""
        with member.changed:
            topics = {of.topic for of in member.holdings.held}
            rebalances = member.rebalances
        # A topic that goes and comes takes its partitions along, where the group notices.
        made_anew = self._made_anew(topics, at_once=rebalances != self._rebalances)
        self._rebalances = rebalances
        if not made_anew:
            return
        self._topics = {t: count for t, count in self._topics.items() if t not in made_anew}
        if self._targets is not None:  # what is new since the run began is not read in it
            for of in [of for of in self._targets if of.topic in made_anew]:
                del self._targets[of]
        self._extents.forget()
        with member.changed:
            member.holdings.start_over(made_anew)

    # --- planning --------------------------------------------------------------------------

    def _wait_for_data(self, member: Member, *, limited: bool) -> Mapping[str, Any] | None:
        """Plans a batch; waits a moment for records where there are none."""
        began = time.monotonic()
        since = began - (self._last_batch or self._created)
        pause = next(pause for quiet, pause in _PAUSES if since >= quiet)
        until = began + max(pause, _CALM_PAUSE)
        while True:
            found = self._plan(member, limited=limited)
            if found is not None or self._targets is not None or not limited:
                return found
            left = until - time.monotonic()
            if left <= 0:
                return None
            with member.changed:
                member.changed.wait(min(pause, left))

    def _plan(self, member: Member, *, limited: bool) -> Mapping[str, Any] | None:
        """The next batch; None: there is nothing to read, or not enough yet."""
        self._start_over(member)
        with member.changed:
            holds = {
                of: replace(hold)
                for of, hold in member.holdings.held.items()
                if of not in member.holdings.leaving
            }
        available = self._available(member, holds, limited=limited)
        offsets = sum(span.size for span in available.values())
        if offsets == 0 or (limited and self._holds_back(offsets)):
            return None
        if member.is_fenced:
            why = (
                "there is something to read, but the group's coordinator has not answered for a "
                "session's time"
            )
            self._refuse_to_end(why, limited=limited)
            return None
        with member.changed:
            claims = (
                member.holdings.renew() or not available.keys() <= member.holdings.ready().keys()
            )
        if claims:
            self._commit(member)
        most = self._options.max_offsets if limited else None
        with member.changed:
            ready = member.holdings.ready()
            chosen = limit_offsets(
                {of: span for of, span in available.items() if ready.get(of) == span.start}, most
            )
            if not chosen:
                there = member.holdings.held.keys() - member.holdings.leaving
                if available.keys() & there - ready.keys():
                    why = (
                        "there is something to read, but the group has not taken what we claim "
                        f"({member.last_error})"
                    )
                    self._refuse_to_end(why, limited=limited)
                return None
            end = self._begin_batch(member, chosen)
        self._last_batch = time.monotonic()
        return end

    def _plan_of_nothing(self, member: Member) -> Mapping[str, Any]:
        """A checkpoint's first batch, which Spark logs and runs although there is nothing to read.

        From here on the checkpoint knows its name, and which partitions there were: a query that is
        started again without it would take those that came meanwhile for old ones.
        """
        with member.changed:
            return self._begin_batch(member, {})

    def _begin_batch(
        self, member: Member, chosen: Mapping[TopicPartition, Range]
    ) -> Mapping[str, Any]:
        """The end of the batch that reads these, from now on under way. Holds `changed`.

        What was taken in since the call began, which may have waited for long, is in the batch,
        or in its end: there it would pass for the checkpoint's own.

        Raises:
            MembershipError: The query keeps state, which is not to be had with it.
        """
        refuse_moved_state(member.moved, Rendezvous(self._id), self._options)
        end = self._end(member, chosen).to_json()
        member.holdings.begin(end, chosen)
        return end

    @staticmethod
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

    def _available(
        self, member: Member, holds: Mapping[TopicPartition, Hold], *, limited: bool
    ) -> dict[TopicPartition, Range]:
        most = self._options.max_offsets if limited else None
        try:
            logs = self._extents.look(holds, targets=self._targets, most=most)
        except KafkaException as error:
            why = f"the logs' ends can't be had: {error}"
            self._refuse_to_end(why, limited=limited)
            self._warn_once(why)
            return {}
        self._warned = ""
        available = {}
        for of, log in logs.items():
            position = self._position_within(member, of, holds[of], log)
            end = self._extents.ends[of]
            if self._targets is not None:
                end = self._target(of, position, end)
            available[of] = Range(position, max(position, end))
        return available

    def _target(self, of: TopicPartition, position: int, end: int) -> int:
        """Up to where this run reads a log that ends at ``end``."""
        assert self._targets is not None, "only a run that ends has targets"
        target = self._targets.get(of, position)  # what is new since it began is not read
        if end < target:  # it has become shorter, and won't reach to where it ended
            target = self._targets[of] = end
        return max(position, target)

    def _warn_once(self, text: str) -> None:
        """Spark asks ten times a second: what goes on being so is told once."""
        if text != self._warned:
            _LOG.warning("group %s: %s", self._options.group, text)
        self._warned = text

    def _position_within(self, member: Member, of: TopicPartition, known: Hold, log: Range) -> int:
        """Where to go on in a log from which records may be gone."""
        is_shorter = known.reached > log.stop
        position = position_within(
            of, known.reached if is_shorter else known.position, log, self._options
        )
        if is_shorter:
            position = max(log.start, min(known.position, position))
        elif position == known.position:
            return position
        with member.changed:
            hold = member.holdings.held.get(of)
            if hold is not None and hold.position == known.position:  # else it was away meanwhile
                if is_shorter:
                    member.holdings.shorten(of, log.stop)
                member.holdings.move(of, position)
        return position

    def _refuse_loss(self, ranges: Mapping[TopicPartition, Range]) -> None:
        """What is to be replayed and is in the logs no more: told before its tasks start."""
        if not self._options.fail_on_data_loss:
            return  # the tasks skip it
        stops = {of: span.stop for of, span in ranges.items()}
        with answering(self._options):
            begins = self._logs.beginnings(ranges)
            ends = self._logs.ends(ranges, known=stops)
            reached = self._extents.reached_in_transactions(stops, ends)
        for of, span in ranges.items():
            end = span.stop if of in reached else ends.get(of, span.stop)
            log = Range(begins.get(of, 0), end)
            for offset in span:
                position_within(of, offset, log, self._options)

    def _holds_back(self, offsets: int) -> bool:
        if self._targets is not None:
            return False
        last = self._last_batch
        since = None if last is None else timedelta(seconds=time.monotonic() - last)
        return self._delay.holds_back(offsets, since)

    def _end(self, member: Member, chosen: Mapping[TopicPartition, Range]) -> SourceOffset:
        """Holds `changed`."""
        holdings, replays = member.holdings, self._options.horizon is not None
        standing = {of: Range(hold.position, hold.position) for of, hold in holdings.held.items()}
        came = not member.taken_over.isdisjoint(standing)
        return SourceOffset(
            group=self._options.group,
            id=self._id,
            run=holdings.run,
            cluster=self._logs.cluster,
            topics=self._topics,
            ids=self._identities.known,
            ranges={**standing, **chosen},
            taken=TakenOver(
                bare=self._taken.bare or (came and not replays),
                replayed=self._taken.replayed or (came and replays),
            ),
        )


def _token() -> str:
    """A name that nobody else makes up."""
    return secrets.token_hex(8)
