"""A group of any size as a sequence of rounds: coarser than the box, and as fast as its assignor.

The box (`kafka_coop.simulation.world`) carries every request of every member. Here one round is
a few operations on columns, one entry a member: when each hears of it, when its JoinGroup
arrives, when the last one has. The plans are the real strategies'. What the model knows of the
protocol:

- A member hears of a round by its next heartbeat; who began it knows. An eager one gives
  everything up before it joins, a cooperative one joins at once.
- The join phase ends with the last JoinGroup of all known members, or without those whose
  sessions have run out, or after the rebalance timeout without those that did not come.
- The coordinator takes the group's requests one by one, at a given rate.
- Whoever comes or goes between the join phase and the leader's SyncGroup begins it anew.
- Who drains joins at once, is planned for as if it wanted nothing, and closes when it has given
  everything up; its successor starts when it would have without that.
- After a cooperative round those who have to give up partitions do so, in their users' thread,
  then join again, in the next round. The others hear of it by a heartbeat, after a whole
  interval, if their timers begin anew with each SyncGroup (Java, librdkafka), and begin it
  themselves where it was announced to them (ours).

Left out: failovers, lost requests, slow networks, stalled processes, static members, commits
and metadata refreshes outside of rounds, and other groups' load.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from kafka_coop.assignors import resolve
from kafka_coop.assignors.plan import Plan as AssignedColumns
from kafka_coop.assignors.snapshot import Snapshot, SnapshotGroup
from kafka_coop.membership.joining import BUSY_AFTER
from kafka_coop.membership.pulse import FOLLOW_UP_AFTER, calm
from kafka_coop.protocol.assignment import encode_assignments
from kafka_coop.simulation.planner.incidents import Fates, Incident, Kind
from kafka_coop.simulation.planner.ownership import NOBODY, Flags, Floats, Ints, Ownership
from kafka_coop.simulation.planner.pace import hurried_beats, suggested_interval
from kafka_coop.simulation.planner.scenario import Client, Plan, ScenarioError
from kafka_coop.simulation.planner.timeline import Phase, Timeline
from kafka_coop.simulation.planner.traffic import Traffic
from kafka_coop.types import Cluster, Generation, PartitionColumns, Partitions, Subscription

_NEVER = float("inf")

_MOST_ROUNDS = 100
"""That a group may take one after the other without anything of the scenario happening, and one
more for ten members: a few are enough, unless members miss the rebalance timeout and come back. A
group of hundreds that hardly make it in time does come to rest, after dozens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTaken:
    """One generation.

    Attributes:
        opened, joined, assigned: When the join phase began and ended, and when the members had
            their assignments. Virtual seconds.
        reason: What began it.
        stopped, gained: Partitions that its plan took away, and gave, at once.
        interrupted: Somebody came or went before the leader was done: nobody was assigned.
    """

    opened: float
    joined: float
    assigned: float
    reason: str
    members: int
    stopped: int = 0
    gained: int = 0
    interrupted: bool = False


class CoarseGroup:
    """One group of one kind of client, through a scenario.

    Attributes:
        rounds: Those that were taken.
        ownership: Who owns what, and who did not.
        record_bytes: Of the group's record in the log, at its largest.
        ends: When the last thing happened.
    """

    def __init__(self, plan: Plan, client: Client, fates: Fates) -> None:
        self.plan = plan
        self.client = client
        self.rounds: list[RoundTaken] = []
        self.traffic = Traffic()
        self.timeline = Timeline(fates.row_of, plan.rows)
        self.ends = 0.0
        self.record_bytes = 0
        self._dice = np.random.default_rng(plan.seed + 1)
        self._hop = plan.round_trip / 2
        self._strategy = resolve(client.strategy)
        self._cluster = Cluster(partitions=plan.partitions())
        self._topics = tuple(self._cluster.partitions)
        self._row_of = fates.row_of
        later = range(plan.members, int(fates.row_of.max()) + 1)
        self._down_since: dict[int, float] = dict.fromkeys(later, 0.0)
        self._incidents = list(fates.incidents)
        heapq.heapify(self._incidents)
        size = fates.row_of.size
        self._ids = tuple(f"member-{i:0{len(str(size))}}" for i in range(size))
        # Per process.
        self._known: Flags = np.arange(size) < plan.members
        self._alive: Flags = self._known.copy()
        self._wishes: Floats = np.full(size, _NEVER)
        """When it sends a JoinGroup by its own wish."""
        self._draining: Flags = np.zeros(size, np.bool_)
        self._busy: Floats = np.zeros(size)
        """Until when its user's thread is giving partitions up."""
        self._expires: Floats = np.full(size, _NEVER)
        """When the session of one that has died is over."""
        self._hurrying_since: Floats = np.full(size, _NEVER)
        self._announced = False
        """The last plan announced a follow-up round."""
        self._latest = 0.0
        """When something last happened, whether or not it began a round."""
        self._in_vain = 0
        """Rounds since anything happened but members coming back that had missed one."""
        self._interval = self._pace(plan.members)
        self._beats_from: Floats = -self._interval * self._dice.random(size)
        self._hurried = np.array(hurried_beats(self._interval, plan.session_timeout, 1.0))
        self.ownership = Ownership(self._first_plan())
        self.traffic.beating(plan.members, self._interval, 0.0)

    def run(self) -> None:
        """Goes through the whole scenario, until the group rests.

        Raises:
            ScenarioError: It never does. The text names the fields, but no file.
        """
        while True:
            incident = self._incidents[0].at if self._incidents else _NEVER
            wish = float(self._wishes.min()) + self._hop
            if min(incident, wish) == _NEVER:
                break
            if wish < incident:
                self._take_round(wish, "partitions are to be given up")
            else:
                self._meet(self._next_incident())
        self.ends = max([r.assigned for r in self.rounds], default=0.0)
        self.ownership.end(max(self.ends, self._latest))
        for row, since in self._down_since.items():
            process = np.flatnonzero(self._row_of == row)[:1]
            self.timeline.add(process, Phase.DOWN, since, self.ends + 60.0)

    def _next_incident(self) -> Incident:
        incident = heapq.heappop(self._incidents)
        self._latest = incident.at
        if not incident.comes_back:
            self._in_vain = 0
        return incident

    # --- incidents -------------------------------------------------------------------------

    def _meet(self, incident: Incident) -> None:
        """Something happens while no round runs."""
        if self._befall(incident):
            self._take_round(incident.at, incident.kind.value)

    def _befall(self, incident: Incident) -> bool:
        """Changes what is known. Returns whether the group needs a round for it."""
        process, at = incident.process, incident.at
        one = np.array([process])
        match incident.kind:
            case Kind.START:
                # The first JoinGroup only earns an id (KIP-394).
                self.traffic.sent([at, at + 2 * self._hop])
                since = self._down_since.pop(self._row(process), at)
                self.timeline.add(one, Phase.DOWN, since, at)
                self._known[process] = self._alive[process] = True
                self._wishes[process] = at
                return True
            case Kind.CLOSE if self._drains_first(process):
                self._draining[process] = True
                self._wishes[process] = at
                return True
            case Kind.CLOSE:
                self._end(one, at)
                self._known[process] = False
                self.traffic.sent([at])
                return True
            case Kind.CRASH:
                self._end(one, at)
                beats = (at - self._beats_from[process]) // self._interval
                heard = self._beats_from[process] + max(beats, 0.0) * self._interval
                expires = max(float(heard), self._last_answer(at)) + self.plan.session_timeout
                self._expires[process] = expires
                self._push(Incident(at=expires, process=process, kind=Kind.EXPIRE))
                return False
            case Kind.EXPIRE:
                was_known = bool(self._known[process])
                self._known[process] = False
                return was_known

    def _drains_first(self, process: int) -> bool:
        """Whether it has something to hand over, and has not done so."""
        if not self.client.drains or self._draining[process] or not self._known[process]:
            return False
        return bool(np.any(self.ownership.owner == process))

    def _last_answer(self, at: float) -> float:
        """A parked request's answer begins a session anew."""
        before = [r.assigned for r in self.rounds[-1:] if r.assigned <= at]
        return before[-1] if before else -_NEVER

    def _end(self, processes: Ints, at: float) -> None:
        mask = np.zeros(self._alive.size, np.bool_)
        mask[processes] = True
        lost = self.ownership.of(mask)
        self.ownership.lose(lost, at)
        self._alive[processes] = False
        self._wishes[processes] = _NEVER
        for process in processes.tolist():
            self._down_since[self._row(process)] = at

    def _row(self, process: int) -> int:
        return int(self._row_of[process])

    def _push(self, incident: Incident) -> None:
        heapq.heappush(self._incidents, incident)

    # --- a round ---------------------------------------------------------------------------

    def _take_round(self, opened: float, reason: str) -> None:
        self._go_on(opened)
        ready = self._arrivals(opened)
        limit = opened + self.plan.rebalance_timeout
        while True:
            known = np.flatnonzero(self._known)
            if not known.size:
                return
            coming = np.minimum(ready[known], self._expires[known])
            joined = min(self._served(coming), limit)
            if not self._absorb(joined, ready):
                break
        self._drop_missing(known[coming > joined], joined)
        members = known[ready[known] <= joined]
        if not members.size:
            return
        self.traffic.sent(ready[members])
        self._wishes[members] = _NEVER
        self._hurrying_since[members] = _NEVER
        self.timeline.add(members, Phase.WAITING, ready[members] - self._hop, joined + self._hop)
        self._sync(opened, joined, reason, members)

    def _go_on(self, opened: float) -> None:
        """One more round; not for ever, if each only brings about the next."""
        self._in_vain += 1
        plan = self.plan
        most = _MOST_ROUNDS + plan.members // 10
        if self._in_vain <= most:
            return
        raise ScenarioError(
            f"{self.client.name}: no rest at {opened:.0f} s, after {most} rounds in which "
            f"nothing else happened: members miss rebalance_timeout = {plan.rebalance_timeout:g}: "
            f"raise it, or lower the heartbeat ({self._interval:g}), poll = {plan.poll:g}, "
            f"callback = {plan.callback:g}, commit = {plan.commit:g}, "
            f"round_trip = {plan.round_trip:g}, or the members for coordinator = "
            f"{plan.coordinator:g}"
        )

    def _served(self, arrivals: Floats) -> float:
        """When the coordinator, which takes them one by one, is done with the last of these."""
        each = 1.0 / self.plan.coordinator
        turn = np.arange(arrivals.size) * each
        return float((np.sort(arrivals) - turn).max() + turn[-1])

    def _absorb(self, until: float, ready: Floats) -> bool:
        """Who comes and goes during the join phase. Returns whether its end has moved."""
        changed = False
        while self._incidents and self._incidents[0].at <= until:
            incident = self._next_incident()
            changed |= self._befall(incident)
            if incident.kind is Kind.CLOSE and self._alive[incident.process]:
                ready[incident.process] = min(
                    ready[incident.process], incident.at + self._hop
                )  # it drains: it joins at once
                self._wishes[incident.process] = _NEVER
            elif incident.kind is Kind.START:
                ready[incident.process] = incident.at + 3 * self._hop
                self._wishes[incident.process] = _NEVER
            elif incident.kind is Kind.CRASH and ready[incident.process] > incident.at:
                ready[incident.process] = _NEVER
                changed = True
            if incident.kind in (Kind.CLOSE, Kind.CRASH):
                break  # the phase may end sooner for it: before the next one comes
        return changed

    def _arrivals(self, opened: float) -> Floats:
        """When the JoinGroup of each known member reaches the coordinator."""
        ready: Floats = np.full(self._alive.size, _NEVER)
        able = np.flatnonzero(self._known & self._alive)
        told = self._beats_after(opened - self._hop, able) + 2 * self._hop
        if self.client.protocol == "eager":
            told = self._give_everything_up(able, np.minimum(told, self._wishes[able]))
        sent = np.minimum(np.maximum(told, self._busy[able]), self._wishes[able])
        ready[able] = np.maximum(sent + self._hop, opened)
        return ready

    def _beats_after(self, time: float, processes: Ints) -> Floats:
        """Each one's first heartbeat that is sent no earlier."""
        begun = self._beats_from[processes]
        count = np.ceil((time - begun) / self._interval)
        beats: Floats = begun + np.maximum(count, 0) * self._interval
        since = self._hurrying_since[processes]
        hurries = np.isfinite(since)
        if hurries.any():
            waited = np.maximum(time - since[hurries], 0.0)
            if float(waited.max()) > self._hurried[-1]:
                until = float(waited.max())
                self._hurried = np.array(
                    hurried_beats(self._interval, self.plan.session_timeout, until)
                )
            at = np.searchsorted(self._hurried, waited)
            beats[hurries] = np.minimum(beats[hurries], since[hurries] + self._hurried[at])
            for number, one in zip(at.tolist(), since[hurries].tolist(), strict=True):
                self.traffic.sent(one + self._hurried[: number + 1])
        return beats

    def _give_everything_up(self, able: Ints, told: Floats) -> Floats:
        """Before an eager join. Returns when each is done with it."""
        done = told.copy()
        owns = np.zeros(self._alive.size, np.bool_)
        owns[self.ownership.owner[self.ownership.owner >= 0]] = True
        giving = owns[able]
        done[giving] = self._given_up(able[giving], told[giving])
        ends: Floats = np.zeros(self._alive.size)
        ends[able] = done
        lost = self.ownership.of(self._alive)
        self.ownership.lose(lost, ends[self.ownership.owner[lost]])
        return done

    def _given_up(self, processes: Ints, begun: Floats) -> Floats:
        """Their users poll, on_revoke returns, the commit is done. Returns when."""
        polled = begun + self.plan.poll * self._dice.random(processes.size)
        done: Floats = polled + self.plan.callback + self.plan.commit
        self.traffic.sent(done)
        self._busy[processes] = done
        self.timeline.add(processes, Phase.GIVING_UP, polled, done)
        return done

    def _drop_missing(self, missing: Ints, at: float) -> None:
        """Who did not join in time is out, hears of it, and comes back."""
        for process in missing.tolist():
            self._known[process] = False
            if self._alive[process]:
                back = max(at, float(self._busy[process]))
                self._push(Incident(at=back, process=process, comes_back=True))
        if missing.size:
            alive = missing[self._alive[missing]]
            mask = np.zeros(self._alive.size, np.bool_)
            mask[alive] = True
            self.ownership.lose(self.ownership.of(mask), at)

    def _sync(self, opened: float, joined: float, reason: str, members: Ints) -> None:
        synced = joined + 2 * self._hop + members.size / self.plan.coordinator
        planned = max(joined + 2 * self._hop + self.plan.leader, synced)
        self.traffic.sent(np.full(members.size, joined + 2 * self._hop))
        if self.client.beats_from_sync:
            self._beats_from[members] = joined + self._hop
        interrupted = self._interruption(planned)
        assigned = (planned if interrupted is None else interrupted) + self._hop
        self.timeline.add(members, Phase.SYNCING, joined + self._hop, assigned)
        stopped = gained = 0
        if interrupted is None:
            stopped, gained = self._assign(members, assigned)
            interval = self._pace(members.size)
            if interval != self._interval:
                self._beats_from = assigned - self._interval * self._dice.random(self._alive.size)
                self._interval = interval
                self._hurried = np.array(hurried_beats(interval, self.plan.session_timeout, 1.0))
            self.traffic.beating(members.size, interval, assigned)
        else:
            again = members[self._alive[members]]
            self._wishes[again] = np.maximum(assigned, joined + 3 * self._hop)
        self.rounds.append(
            RoundTaken(
                opened=opened,
                joined=joined,
                assigned=assigned,
                reason=reason,
                members=int(members.size),
                stopped=stopped,
                gained=gained,
                interrupted=interrupted is not None,
            )
        )

    def _interruption(self, planned: float) -> float | None:
        """When somebody comes or goes before the leader's plan is there."""
        while self._incidents and self._incidents[0].at < planned:
            incident = self._next_incident()
            if self._befall(incident):
                return incident.at
        return None

    # --- plans -----------------------------------------------------------------------------

    def _assign(self, members: Ints, at: float) -> tuple[int, int]:
        """Carries the strategy's plan out. Returns how many partitions it took and gave."""
        ownership = self.ownership
        if self.client.beats_from_sync:
            self._beats_from[members] = at
        target = self._planned(members)
        moving = (ownership.owner >= 0) & (target != ownership.owner)
        again, self._announced = self._announced, bool(moving.any())
        free = np.flatnonzero(ownership.owner < 0)
        living = free[self._alive[target[free]]]
        ownership.gain(living, target[living], at)
        if not moving.any():
            ownership.settle(members[self._alive[members]])
            self._count_starts(target[living], at)
            return 0, int(living.size)
        positions = np.flatnonzero(moving)
        owners = ownership.owner[positions]
        givers = np.unique(owners)
        done: Floats = np.zeros(self._alive.size)
        done[givers] = self._given_up(givers, np.full(givers.size, at))
        ownership.lose(positions, done[owners])
        self._wishes[givers] = done[givers]
        self._let_go(givers[self._draining[givers]], done)
        if self.client.hurries:
            others = members[~np.isin(members, givers) & self._alive[members]]
            if again or living.size or self.plan.poll > BUSY_AFTER:
                self._hurrying_since[others] = at
            else:
                self._wishes[others] = at + FOLLOW_UP_AFTER
        self._count_starts(target[living], at)
        return int(positions.size), int(living.size)

    def _let_go(self, drained: Ints, done: Floats) -> None:
        """Who has handed everything over closes, instead of joining again."""
        self._wishes[drained] = _NEVER
        for process in drained.tolist():
            self._push(Incident(at=float(done[process]), process=process, kind=Kind.CLOSE))

    def _count_starts(self, owners: Ints, at: float) -> None:
        """Who gained something asks for its committed offsets."""
        self.traffic.sent(np.full(np.unique(owners).size, at))

    def _first_plan(self) -> Ints:
        self.ownership = Ownership(np.full(sum(self._cluster.partitions.values()), NOBODY))
        return self._planned(np.arange(self.plan.members))

    def _planned(self, members: Ints) -> Ints:
        """The strategy's plan: each partition's owner to be, by number."""
        owned = self._claims(members)
        relieved = self._draining[members] & ~self._draining[members].all()
        subscriptions = {
            self._ids[m]: Subscription(
                topics=() if nothing else self._topics,
                owned=claimed,
                generation=Generation(1 if claimed else -1),
            )
            for m, claimed, nothing in zip(members.tolist(), owned, relieved.tolist(), strict=True)
        }
        snapshot = Snapshot(self._cluster, subscriptions)
        plan = self._strategy.assign(self._cluster, SnapshotGroup(snapshot, {}))
        assert isinstance(plan, AssignedColumns), "built-in strategies answer with columns"
        topics = len(self._topics) * (len(self._topics[0]) + 2)
        self.record_bytes = max(
            self.record_bytes,
            sum(map(len, encode_assignments(plan.sets(), [b""] * members.size))) * 2
            + topics * members.size,
        )
        target: Ints = members[plan.owner]
        return target

    def _claims(self, members: Ints) -> list[Partitions]:
        """What each member says it owns."""
        owner = self.ownership.owner
        held = np.flatnonzero(owner >= 0)
        order = held[np.argsort(owner[held], kind="stable")]
        counts = np.array(tuple(self._cluster.partitions.values()), np.int64)
        begins = np.concatenate(([0], np.cumsum(counts)))
        topic = np.searchsorted(begins, order, "right") - 1
        number = (order - begins[topic]).astype(np.int32)
        first = np.searchsorted(owner[order], members)
        last = np.searchsorted(owner[order], members, "right")
        claims = []
        for a, b in zip(first.tolist(), last.tolist(), strict=True):
            topics, sizes = np.unique(topic[a:b], return_counts=True)
            names = tuple(self._topics[t] for t in topics.tolist())
            claims.append(
                Partitions.from_columns(
                    PartitionColumns(names, sizes.astype(np.int64), number[a:b])
                )
            )
        return claims

    @property
    def resting_load(self) -> float:
        """Requests a second of the group as it stands at the end, a minute after its last round."""
        interval = self._interval
        if self.client.heartbeat is None:
            interval = calm(interval, self.plan.session_timeout)
        return float(np.count_nonzero(self._known)) / interval

    def _pace(self, members: int) -> float:
        if self.client.heartbeat is not None:
            return self.client.heartbeat
        return suggested_interval(members, self.plan.session_timeout)
