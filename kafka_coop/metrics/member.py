"""What one consumer tells Prometheus about its membership."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.collector import collector_for
from kafka_coop.metrics.families import (
    CHANGES,
    COMMIT_FAILURES,
    MOVES,
    OTHER_REASON,
    PHASES,
    Change,
    EventFamilies,
    Phase,
)
from kafka_coop.metrics.librdkafka import LibrdkafkaStatistics
from kafka_coop.metrics.polls import PollClock
from kafka_coop.metrics.scrape import MemberLabels, MemberReading, MemberSnapshot
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions

_log: Final = logging.getLogger(__name__)
_ZERO: Final = timedelta(0)
_Metric = TypeVar("_Metric", bound=MetricWrapperBase)

Clock = Callable[[], float]
SnapshotProvider = Callable[[], MemberSnapshot]


class _Led(NamedTuple):
    """What a leader planned, when (by the monotonic clock), and for which generation."""

    plan: PlanFigures
    at: float
    generation: Generation


class MemberMetrics:
    """One consumer's series in a registry, from construction until `close`.

    Every method may be called from any thread and never blocks on another; what arrives after
    `close` is dropped. `polls` alone belongs to the thread that polls.

    Args:
        registry: None: prometheus_client's default one. Any number of consumers may share it.
        snapshot: Called at each scrape, in the thread that scrapes and while other threads go
            on: it must not block, nor call the user. None: no generation, no partition series.
        clock: Steady seconds, the clock of the ``now`` of `assignment` and of `polls`.
        wall_clock: Seconds since the epoch.

    Raises:
        ConfigurationError: Others' metrics have our names in the registry.
    """

    def __init__(
        self,
        *,
        group_id: str,
        client_id: str,
        registry: CollectorRegistry | None = None,
        snapshot: SnapshotProvider | None = None,
        max_poll_interval: timedelta | None = None,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        self.polls = PollClock()
        self._snapshot = snapshot
        self._poll_limit = max_poll_interval
        self._clock = clock
        self._wall_clock = wall_clock
        self._owned: tuple[Partitions, float | None] = (NO_PARTITIONS, None)
        self._last_rebalance: float | None = None
        self._last_heartbeat: float | None = None
        self._rounds = 0
        self._counted_as = ""
        """The member id that `_rounds` are of."""
        self._led: _Led | None = None
        self.librdkafka = LibrdkafkaStatistics()
        self._lock = threading.Lock()
        self._series: list[tuple[MetricWrapperBase, tuple[str, ...]]] = []
        self.registry: Final = REGISTRY if registry is None else registry
        self._collector = collector_for(registry)
        self.labels = MemberLabels(group_id, client_id)  # a scrape may come before claim() returns
        self.labels = self._collector.claim(group_id, client_id, self.read)
        self._bind(self._collector.events)

    def _bind(self, events: EventFamilies) -> None:
        """Looks every series up once: ``labels()`` costs more than the observation itself."""
        self._rebalance_latency = self._child(events.rebalance_latency)
        self._phases = {p: self._child(events.rebalance_phase, p) for p in PHASES}
        self._rebalance_rounds = self._child(events.rebalance_rounds)
        self._rebalance_failures = self._child(events.rebalance_failures)
        self._join_attempts = self._child(events.join_attempts)
        self._moved = {c: self._child(events.moved_partitions, c) for c in CHANGES}
        self._planned_moves = {k: self._child(events.planned_moves, k) for k in MOVES}
        self._unowned_seconds = self._child(events.unowned_seconds)
        self._join_latency = self._child(events.join_latency)
        self._sync_latency = self._child(events.sync_latency)
        self._heartbeat_latency = self._child(events.heartbeat_latency)
        self._heartbeat_failures = self._child(events.heartbeat_failures)
        self._commit_latency = self._child(events.commit_latency)
        self._commit_failures = {r: self._child(events.commit_failures, r) for r in COMMIT_FAILURES}
        self._callback_latency = {c: self._child(events.callback_latency, c) for c in CHANGES}
        self._callback_failures = {c: self._child(events.callback_failures, c) for c in CHANGES}

    def _child(self, family: _Metric, *values: str) -> _Metric:
        labels = (*self.labels, *values)
        self._series.append((family, labels))
        return family.labels(*labels)

    def heartbeat(self, latency: timedelta) -> None:
        """A heartbeat was acknowledged, just now."""
        seconds = latency.total_seconds()
        self._last_heartbeat = self._clock() - seconds
        self._heartbeat_latency.observe(seconds)

    def heartbeat_failed(self) -> None:
        """A heartbeat was refused, or got no answer."""
        self._heartbeat_failures.inc()

    def joined(self, latency: timedelta) -> None:
        """A JoinGroup was granted."""
        self._join_latency.observe(latency.total_seconds())

    def synced(self, latency: timedelta) -> None:
        """A SyncGroup was granted."""
        self._sync_latency.observe(latency.total_seconds())

    def committed(self, latency: timedelta) -> None:
        """An offset commit succeeded; the latency includes its retries."""
        self._commit_latency.observe(latency.total_seconds())

    def commit_failed(self, reason: str) -> None:
        """An offset commit was given up.

        Args:
            reason: One of `families.COMMIT_FAILURES`; anything else counts as ``other``, so
                that no text of a broker or a user can make series without end.
        """
        self._commit_failures.get(reason, self._commit_failures[OTHER_REASON]).inc()

    def callback(self, kind: Change, latency: timedelta, *, failed: bool = False) -> None:
        """A rebalance callback of the user returned, or raised, inside a round or outside."""
        self._callback_latency[kind].observe(latency.total_seconds())
        if failed:
            self._callback_failures[kind].inc()

    def rebalance(self, record: RebalanceRecord) -> None:
        """A round ended.

        One that failed counts as a failure and adds nothing to latency, phases or rounds, as
        in Java; the partitions it cost count all the same. An attempt answered with
        MEMBER_ID_REQUIRED is no failure, unlike in Java: it is the regular first step of every
        dynamic member (KIP-394), and shows in ``join_attempts_total`` only.
        """
        self._join_attempts.inc(record.attempts)
        self._moved["assigned"].inc(len(record.assigned))
        self._moved["revoked"].inc(len(record.revoked))
        self._moved["lost"].inc(len(record.lost))
        if record.error is not None:
            self._rebalance_failures.inc()
            return
        self._note_plan(record)
        self._last_rebalance = self._clock()
        self._rebalance_latency.observe(record.total.total_seconds())
        for phase, duration in phases_of(record).items():
            if duration > _ZERO:
                self._phases[phase].observe(duration.total_seconds())
        if record.attempts:  # else librdkafka is the member: it tells of callbacks, not of rounds
            self._count_round(record)

    def _note_plan(self, record: RebalanceRecord) -> None:
        """Counts what this member planned as the leader; as a follower it knows of no plan."""
        before, self._led = self._led, None
        if record.plan is None or record.planned_at is None:
            return
        self._led = _Led(record.plan, record.planned_at, record.generation)
        self._planned_moves["made"].inc(record.plan.moved)
        self._planned_moves["fewest"].inc(record.plan.fewest)
        if before is None or not before.plan.withheld:
            return
        since = record.generation if record.led_since is None else record.led_since
        if before.generation <= since <= before.generation + 1:
            # The round before withheld them, and this one gave them to their owners. Where others
            # led meanwhile, or this member was out of the group, they know how long it took.
            self._unowned_seconds.inc(before.plan.withheld * (record.planned_at - before.at))

    def _count_round(self, record: RebalanceRecord) -> None:
        # A leader without our marks announces nothing, but who revoked rejoins (KIP-429). Topics
        # unsubscribed from look the same, though nothing follows: two rebalances then count as one.
        goes_on = record.follow_up or (record.cooperative and len(record.revoked) > 0)
        with self._lock:
            # Who has left, or was evicted, amid a rebalance begins another with its next id.
            if record.member_id != self._counted_as:
                self._rounds, self._counted_as = 0, record.member_id
            self._rounds += 1
            settled_after = self._rounds
            if not goes_on:
                self._rounds = 0
        if not goes_on:
            self._rebalance_rounds.observe(settled_after)

    def assignment(self, partitions: Partitions, now: float) -> None:
        """The set of owned partitions became this one, at ``now``.

        From here on no scrape shows a series of any other partition, whatever the snapshot
        says. Call it where ownership changes: after on_revoke, before on_assign.
        """
        self._owned = (partitions, now)

    def read(self) -> MemberReading:
        """The values of this moment, for the collector."""
        snapshot = self._take_snapshot()
        now = self._clock()
        # The wall clock may have been set since: what is told is how long ago it was. Rounded,
        # since two readings of two clocks differ by microseconds, and so would every scrape.
        ahead = self._wall_clock() - now
        polls = self.polls.read(now)
        owned, since = self._owned

        def moment(at: float | None) -> float | None:
            return None if at is None else round(at + ahead, 3)

        return MemberReading(
            owned=owned,
            last_assignment=moment(since),
            last_rebalance=moment(self._last_rebalance),
            last_heartbeat=moment(self._last_heartbeat),
            last_poll=moment(polls.last),
            polls=polls,
            poll_limit=None if self._poll_limit is None else self._poll_limit.total_seconds(),
            snapshot=snapshot,
            plan=self._plan_of_the_group(snapshot),
            librdkafka=self.librdkafka.latest,
        )

    def _plan_of_the_group(self, snapshot: MemberSnapshot | None) -> PlanFigures | None:
        """Outside the group its last plan is nobody's: another leads there."""
        outside = snapshot is not None and snapshot.generation < 0
        return None if self._led is None or outside else self._led.plan

    def _take_snapshot(self) -> MemberSnapshot | None:
        if self._snapshot is None:
            return None
        try:
            return self._snapshot()
        except Exception:  # noqa: BLE001  # one member's error must not cost a process its scrape
            _log.warning("no snapshot of %s/%s for this scrape", *self.labels, exc_info=True)
            return None

    def close(self) -> None:
        """Removes every series of this consumer. Idempotent."""
        with self._lock:
            series, self._series = self._series, []
        if not series:
            return
        for family, labels in series:
            family.remove(*labels)
        # Last: a consumer that could claim the labels before would lose what it had just bound.
        self._collector.release(self.labels)


def phases_of(record: RebalanceRecord) -> dict[Phase, timedelta]:
    """The round's parts by name, in their order; zero where a part did not occur."""
    return {
        "prepare": record.prepare,
        "join": record.join,
        "assign": record.assign,
        "sync": record.sync,
        "revoke": record.revoke_callback,
        "commit": record.commit,
        "assigned": record.assigned_callback,
        "lost": record.lost_callback,
    }
