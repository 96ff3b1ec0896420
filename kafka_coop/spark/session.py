"""One run of a streaming query's source, in the reader's process: what each call of Spark does.

docs/SPARK.md has the order of the calls and the rules of hand-over and replay.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

from kafka_coop.spark.available_now import wait_for_group
from kafka_coop.spark.beginnings import Beginnings
from kafka_coop.spark.errors import MembershipError, name_of
from kafka_coop.spark.extents import Extents
from kafka_coop.spark.gone import (
    refuse_another_cluster,
    refuse_deleted_since,
    refuse_deleted_topics,
    refuse_other_topics,
)
from kafka_coop.spark.holdings import Holdings
from kafka_coop.spark.identities import Identities
from kafka_coop.spark.member import Member
from kafka_coop.spark.neighbours import Neighbours
from kafka_coop.spark.offsets import (
    SourceOffset,
    TakenOver,
    parse_offset,
    taken_of,
    without,
    without_positions,
)
from kafka_coop.spark.options import StreamOptions, canonical
from kafka_coop.spark.planning import CALM_PAUSE, Planner
from kafka_coop.spark.reading import RangeTask, tasks_of
from kafka_coop.spark.remembered import Remembered
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.replay import refuse_loss, replay
from kafka_coop.spark.serving import serve_metrics
from kafka_coop.spark.soundness import (
    refuse_competition,
    refuse_moved_state,
    refuse_shared_state,
    refuse_taken_state,
)
from kafka_coop.spark.starting import (
    answering,
    logs_of,
    refuse_others,
    wanted_partitions,
    wanted_topics,
)
from kafka_coop.spark.tickets import TicketOffice, open_office
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")


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
        self._logs = logs_of(options)
        self._planner: Planner | None = None
        self._stop_serving: Callable[[], None] | None = None
        self._targets: dict[TopicPartition, int] | None = None
        self._drained = False
        self._has_been_assigned = False
        self._neighbours = Neighbours(self._logs.admin, options.group)
        self._extents = Extents(self._logs, read_committed=options.read_committed)
        self._gone: Collection[str] = ()

    # --- what Spark calls ------------------------------------------------------------------

    def aim_at_what_is_there(self) -> None:
        """``Trigger.AvailableNow``: what is in the logs now is to be read, and no more."""
        # Whether one that is not there was deleted, is told when the checkpoint is known.
        counts = wanted_topics(self._options, self._logs, may_lack=self._options.topics)
        with answering(self._options):
            self._targets = self._logs.all_ends(wanted_partitions(self._options, counts))
        if self._planner is not None:
            self._planner.targets = self._targets

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
        planner = self._joined(start, durable=True)
        member, remembered = planner.member, planner.remembered
        if self._drained:
            return self._goes_no_further(start)
        member.raise_failure()
        # Before the last batch counts, if the driver's listener was quick enough: it lacked what
        # others have, and who reads it again must find it.
        its = Rendezvous(self._id)
        refuse_competition(its, self._options.group)
        remembered.taken = taken_of(start)
        refuse_taken_state(remembered.taken, its, self._options)
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
        found = planner.wait_for_data(limited=limited)
        if found is None and self._targets is not None:
            member.commit_or_fail()  # the run ends with this call, if nothing comes to us any more
            found = wait_for_group(member, self._targets, self._options, planner.plan, its.is_asked)
            if found is None and self._drains(member):
                return start
        if found is not None:
            return found
        return start or planner.plan_of_nothing()

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
        planner = self._joined(end, durable=False)
        member = planner.member
        planned = without(planned, self._gone)
        with member.changed:
            known = member.holdings.is_under_way(end)
            # Spark asks once for each branch of the query: all of them are to read the same, and
            # of a batch that is replayed others may have a part.
            ranges = member.holdings.begun
        if not known:
            ranges = replay(member, planned, end, self._options, self._logs)
            refuse_loss(ranges, self._options, self._logs, self._extents)
        ids = planner.remembered.identities.known
        return tasks_of(ranges, self._options, self._office, ids=ids)

    def report(self) -> dict[str, Any] | None:
        """For ``progress.sources[].latestOffset``: the logs' ends, and the membership."""
        if self._planner is None:
            return None
        member, known = self._planner.member, self._planner.remembered.topics.keys()
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
                for topic in known | {of.topic for of in held}
                if self._options.asks_for(topic)
            ),
            "tps": {name_of(of): self._extents.ends.get(of) for of in held},
            "leaving": leaving,
            "rebalances": member.rebalances,
            "lost": len(member.lost_ones),
            "lastRebalanceMs": member.last_rebalance // timedelta(milliseconds=1),
            "lastHandoverMs": member.last_handover // timedelta(milliseconds=1),
        }

    @property
    def _member(self) -> Member | None:
        return None if self._planner is None else self._planner.member

    @property
    def _id(self) -> str:
        return "" if self._planner is None else self._planner.remembered.id

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

    def _joined(self, last: Mapping[str, Any], *, durable: bool) -> Planner:
        """A member from the first call on, when the checkpoint's last offset is known."""
        if self._planner is None:
            checkpoint, counts = self._read(last)
            remembered, holdings = self._recall(checkpoint, counts, durable=durable)
            self._planner = self._join(remembered, holdings)
        return self._planner

    def _read(self, last: Mapping[str, Any]) -> tuple[SourceOffset | None, Mapping[str, int]]:
        """The checkpoint's last offset, if it has one; and how many partitions topics have now."""
        options = self._options
        checkpoint = parse_offset(last, group=options.group)
        known = frozenset[str]() if checkpoint is None else checkpoint.known_topics
        counts = wanted_topics(options, self._logs, may_lack=known)
        if checkpoint is not None:
            refuse_another_cluster(checkpoint, self._logs.cluster)
            with answering(options):
                deleted = refuse_deleted_since(checkpoint, counts, self._logs, options)
            checkpoint = without_positions(checkpoint, deleted)
        self._aim_at_late_ones(counts)
        return checkpoint, counts

    def _recall(
        self, checkpoint: SourceOffset | None, counts: Mapping[str, int], *, durable: bool
    ) -> tuple[Remembered, Holdings]:
        """What the checkpoint knows, and its word on positions; or the beginning of a new one."""
        identities = Identities(self._logs, checkpoint.ids if checkpoint else {})
        self._gone = identities.made_anew(counts)
        refuse_other_topics(self._gone, self._options)
        if checkpoint is None:
            refuse_others(self._options.starting, wanted_partitions(self._options, counts))
            name, topics, taken = _token(), counts, TakenOver()
            holdings = Holdings(_token())
        else:
            checkpoint = without(checkpoint, self._gone)
            name, topics, taken = checkpoint.id, checkpoint.topics, checkpoint.taken
            holdings = Holdings(_token(), checkpoint.run)
            holdings.remember(checkpoint, durable=durable)
        remembered = Remembered(
            group=self._options.group,
            cluster=self._logs.cluster,
            id=name,
            topics=topics,
            identities=identities,
            taken=taken,
        )
        return remembered, holdings

    def _join(self, remembered: Remembered, holdings: Holdings) -> Planner:
        options = self._options
        its = Rendezvous(remembered.id)
        its.clear()
        refuse_taken_state(remembered.taken, its, options)
        if options.metrics_port is not None:
            self._stop_serving = serve_metrics(options.metrics_port)
        if self._near:
            self._office = open_office(its)
        member = Member(
            options,
            holdings,
            instance_id=f"kafka_coop-{remembered.id}" if options.static else None,
            begin=Beginnings(options, self._logs, self._extents, remembered),
            gone=self._gone,
        )
        return Planner(
            options,
            member=member,
            remembered=remembered,
            extents=self._extents,
            targets=self._targets,
        )

    def _aim_at_late_ones(self, counts: Mapping[str, int]) -> None:
        """A broker that has just started may know a topic that it did not when the run began."""
        if self._targets is None:
            return
        known = {of.topic for of in self._targets}
        late = {t: counts[t] for t in self._options.topics if t in counts and t not in known}
        if late:
            with answering(self._options):
                self._targets |= self._logs.all_ends(wanted_partitions(self._options, late))

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

    def _drains(self, member: Member) -> bool:
        """Whether the driver asked us to hand everything over; does it, if so.

        What could not be committed is tried again with the next call, and not left to be read
        twice.
        """
        rendezvous = Rendezvous(self._id)
        if not rendezvous.is_asked():
            return False
        member.commit_or_fail()
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
        time.sleep(CALM_PAUSE)
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


def _token() -> str:
    """A name that nobody else makes up."""
    return secrets.token_hex(8)
