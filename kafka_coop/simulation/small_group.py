"""A small group as a value: all that may happen to it next, one thing at a time.

`exhaustive` copies it, lets each of them happen, and looks at what comes of it. The machines, the
coordinator's model and the watcher of the invariants are the box's own; network and users are
plainer than there.

What may happen (`Small.moves`): a broker takes in the first request on one of a member's
connections; a member reads the first answer on one of them, or its assignor's plan; a user begins
a step, or his commit is done and the step goes on; time passes. These are whatever members wait
for. Beside them, as often as the bounds allow, a *disturbance*: time passes although something
is under way, a user asks for a round, drains or closes, a process dies.

Not a move of its own, since its moment makes no difference, or only a better one:

- Time. While anything is under way it passes as a disturbance alone; when all wait it goes to the
  next deadline. Heartbeats are sent then and not otherwise: a beat between two deadlines tells
  nobody anything that the next one does not.
- Where the coordinator is, and which topics there are, does not change here: those answers come
  at once, whatever is under way.
- Where to start is read when the answer to SyncGroup is, the earliest moment there is. Any later
  one sees more commits; too few are what invariant L and the rewinds of 5 are about.
- A user in poll() delivers one record of each partition when he gets it, and is looked at after
  every move.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from kafka_coop.leader import lead
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.responses import COMMIT, Reaction
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
)
from kafka_coop.simulation.agenda import Agenda
from kafka_coop.simulation.cluster import SimulatedCluster
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.group import GroupState, RequestToken
from kafka_coop.simulation.invariants import InvariantViolated, Watcher
from kafka_coop.simulation.network import Call, Network
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.simulation.small_site import (
    GROUP,
    TOPIC,
    Edges,
    Lane,
    Owner,
    Site,
    plain,
    settings_of,
)
from kafka_coop.simulation.surroundings import Surroundings
from kafka_coop.simulation.user import UserHabits
from kafka_coop.types import Generation, Partitions, TopicPartition

if TYPE_CHECKING:
    pass

DISTURBANCES = ("tick", "enforce", "drain", "close", "crash")

Move: TypeAlias = tuple[str, int, str]
"""What happens, to which member, on which of its connections."""

_ANSWERS: dict[type[Any], tuple[str, type[Any]]] = {
    ef.SendHeartbeat: ("main", ev.HeartbeatAnswered),
    ef.SendLeave: ("main", ev.LeaveAnswered),
    ef.SendJoin: ("join", ev.JoinAnswered),
    ef.SendSync: ("join", ev.SyncAnswered),
}
_LOOK_UPS: dict[type[Any], type[Any]] = {
    ef.SendFindCoordinator: ev.CoordinatorAnswered,
    ef.SendMetadata: ev.MetadataAnswered,
}
_BROKER = 1
_MOST_MOVES = 5000
"""In which a group has settled that nothing disturbs."""


@dataclass(slots=True)
class Small:
    """One state of the whole group.

    Attributes:
        left: How often each disturbance may still happen.
        since: When the exploration began.
    """

    cluster: SimulatedCluster
    world: Surroundings
    sites: list[Site]
    left: dict[str, int]
    since: float = 0.0

    @property
    def now(self) -> float:
        """Virtual time."""
        return self.world.agenda.now

    # --- what may happen -------------------------------------------------------------------

    def moves(self) -> Iterator[Move]:
        """Everything that may happen next."""
        waited_for = list(self.pending())
        yield from waited_for
        if not waited_for or self.left["tick"]:
            yield "tick", 0, ""
        for number, site in enumerate(self.sites):
            if not site.alive or site.user.closing:
                continue
            for what in DISTURBANCES[1:]:
                if self.left[what]:
                    yield what, number, ""

    def pending(self) -> Iterator[Move]:
        """What is under way."""
        for number, site in enumerate(self.sites):
            for name, lane in site.lanes.items():
                if lane.requests and lane.parked is None:
                    yield "broker", number, name
                if lane.answers and site.alive:
                    yield "answer", number, name
            if site.alive and site.plans:
                yield "plan", number, ""
            if site.alive and site.doing is not None:
                yield "commit", number, ""
            elif site.alive and site.steps:
                yield "step", number, ""

    def by_itself(self) -> Move | None:
        """A move that commutes with all that may happen before it: it may as well come first.

        It is the only thing under way of its member's, it happens inside the member, and no
        disturbance is left: nothing can reach the member before it, and it reaches nobody.
        """
        if any(self.left.values()):
            return None
        for move in self.pending():
            if move[0] in ("answer", "plan", "step") and self.sites[move[1]].under_way == 1:
                return move
        return None

    def make(self, move: Move, coverage: Coverage) -> None:
        """Lets it happen.

        Raises:
            InvariantViolated: An invariant does not hold any more.
        """
        what, number, lane = move
        site = self.sites[number]
        if what == "tick":
            self.left["tick"] -= any(True for _ in self.pending())
        elif what in self.left:
            self.left[what] -= 1
        match what:
            case "broker":
                self._serve(site.lanes[lane])
            case "answer":
                self._give(site, site.lanes[lane].answers.popleft(), coverage)
            case "plan":
                self._give(site, site.plans.popleft(), coverage)
            case "step":
                self._begin_step(site, site.steps.popleft(), coverage)
            case "commit":
                self._commit(site, coverage)
            case "tick":
                self._pass_time(coverage)
            case _:
                self._disturb(site, what, coverage)
        for user in self.sites:
            self._poll(user)

    def _disturb(self, site: Site, what: str, coverage: Coverage) -> None:
        match what:
            case "enforce":
                asked = ev.EnforceRebalance(reason="the user asked for a rebalance")
                self._give(site, asked, coverage)
            case "drain":
                self._give(site, ev.Drain(), coverage)
            case "close":
                site.user.closing = True
                self._give(site, ev.Close(), coverage)
            case _:
                self._end(site)

    # --- brokers and time ------------------------------------------------------------------

    def _serve(self, lane: Lane) -> None:
        token, request = lane.requests.popleft()
        lane.parked = token
        self._deliver(self._ask(request, token))

    def _ask(self, request: Any, token: RequestToken) -> list[Any]:
        return self.cluster.handle(_BROKER, request, client=Client(), token=token, now=self.now)

    def _deliver(self, replies: Iterable[Any]) -> None:
        for reply in replies:
            for site in self.sites:
                for lane in site.lanes.values():
                    if lane.parked == reply.token:
                        lane.parked = None
                waits = site.awaited.pop(reply.token, None)
                if waits is not None:
                    name, token = waits
                    kind, event = _ANSWERS[name]
                    site.lanes[kind].answers.append(event(token=token, answer=reply.response))

    def _deadline(self) -> float | None:
        times = [s.member.next_deadline() for s in self.sites if s.alive]
        times.append(self.cluster.next_deadline())
        return min((t for t in times if t is not None), default=None)

    def _pass_time(self, coverage: Coverage) -> None:
        deadline = self._deadline()
        if deadline is None:
            return
        now = self.world.agenda.now = max(self.now, deadline)
        self._deliver(self.cluster.advance(now))
        for site in self.sites:
            if site.doing is None and not site.steps:
                site.polled_at = now
            due = site.member.next_deadline()
            if site.alive and due is not None and due <= now:
                self._give(site, ev.Polled(at=site.polled_at), coverage)
                self._give(site, ev.Tick(), coverage)

    # --- members ---------------------------------------------------------------------------

    def start(self, number: int, coverage: Coverage) -> None:
        """The member subscribes."""
        self._give(self.sites[number], ev.Subscribe(topics=(TOPIC,)), coverage)

    def _give(self, site: Site, event: ev.Event, coverage: Coverage) -> None:
        """Gives the member an event; what can be looked up is answered when it has acted."""
        looked_up: deque[ev.Event] = deque((event,))
        while looked_up:
            given = looked_up.popleft()
            self.world.watcher.handled(site.as_process, given)
            before = site.member.state
            effects = site.member.handle(given, self.now)
            coverage.cells.add((before, type(given)))
            for effect in effects:
                self.world.watcher.effect(site.as_process, effect)
                if (answered := _LOOK_UPS.get(type(effect))) is not None:
                    looked_up.append(answered(token=effect.token, answer=self._look_up(effect)))  # type: ignore[union-attr]  # what is looked up has a token
                elif type(effect) in _ANSWERS:
                    self._send(site, effect)
                else:
                    looked_up += self._begin(site, effect)

    def _look_up(self, effect: Any) -> Any:
        (reply,) = self._ask(effect.request, RequestToken(-1))
        return reply.response

    def _begin(self, site: Site, effect: ef.Effect) -> tuple[ev.Event, ...]:  # noqa: C901  # one case an effect
        """Carries an effect out. Returns what the member is to hear of at once."""
        match effect:
            case ef.OfferStep(step=step):
                site.steps.append(step)
            case ef.WithdrawStep(step_id=step_id):
                kept = deque(s for s in site.steps if s.step_id != step_id)
                if len(kept) < len(site.steps):
                    site.steps = kept
                    return (ev.StepWithdrawn(step_id=step_id),)
            case ef.ExtendLease(until=until):
                site.mailbox.lease_until = until
            case ef.EndLease():
                site.mailbox.lease_until = float("-inf")
            case ef.AbortParked(token=token):
                site.awaited = {t: w for t, w in site.awaited.items() if w[1] != token}
                site.lanes["join"].parked = None
            case ef.RunAssignor():
                self._lead(site, effect)
            case ef.IdentityChanged(metadata=metadata, commits_open=commits_open):
                site.identity, site.commits_open = metadata, commits_open
            case ef.PrefetchOffsets(partitions=partitions, generation=generation):
                self._find_starts(site, partitions, generation)
            case ef.Left():
                site.mailbox.left = True
                self.world.watcher.closed(site.as_process)
                self._end(site)
            case _:
                pass
        return ()

    def _end(self, site: Site) -> None:
        site.alive = False
        self.world.watcher.gone(site.as_process)
        site.user.owned.clear()
        site.user.positions.clear()

    def _lead(self, site: Site, effect: ef.RunAssignor) -> None:
        outcome = lead(
            effect.protocol_name,
            effect.cluster,
            effect.members,
            instance_ids=effect.instance_ids,
            leader=effect.leader,
            generation=effect.generation,
            recalled=effect.recalled,
            announced=effect.announced,
        )
        plan = dict(outcome.assignments)
        site.plans.append(ev.AssignmentComputed(token=effect.token, assignments=plan))

    def _send(self, site: Site, effect: Any) -> None:
        # Numbered by member: what two of them send one after the other is the same in any order.
        token = RequestToken(self.sites.index(site) * 10_000 + site.sent)
        site.sent += 1
        lane, _ = _ANSWERS[type(effect)]
        site.awaited[token] = type(effect), effect.token
        site.lanes[lane].requests.append((token, effect.request))

    # --- users -----------------------------------------------------------------------------

    def _begin_step(self, site: Site, step: ef.Step, coverage: Coverage) -> None:
        self.world.watcher.begun(site.as_process, step)
        site.doing = step, deque(step.actions)
        self._go_on(site, coverage)

    def _go_on(self, site: Site, coverage: Coverage) -> None:
        """Acts until the step is done, or waits for a commit."""
        assert site.doing is not None
        step, rest = site.doing
        while rest:
            if isinstance(action := rest[0], ef.CommitPositions):
                if self._to_commit(site, action.partitions):
                    return
                self.world.watcher.saved(site.as_process, action.partitions)
            else:
                self._act(site, action)
            rest.popleft()
        site.doing = None
        self._give(site, ev.StepDone(step_id=step.step_id), coverage)

    def _act(self, site: Site, action: ef.Action) -> None:
        process, watcher = site.as_process, self.world.watcher
        match action:
            case ef.CallRevoked(partitions=ps) | ef.CallLost(partitions=ps):
                watcher.calling(process, action, ps)
            case ef.CallAssigned(partitions=ps):
                watcher.calling(process, action, ps)
                for partition in ps:
                    _, offset = site.starts.pop(partition)
                    watcher.starting(process, partition, offset)
                    site.user.positions[partition] = offset
                    site.user.fresh.add(partition)
            case ef.Release(partitions=partitions):
                delivered = site.user.positions.keys() - site.user.fresh
                watcher.releasing(process, partitions, delivered & set(partitions))
                site.user.owned -= set(partitions)
                site.user.fresh -= set(partitions)
                for partition in partitions:
                    site.user.positions.pop(partition, None)
            case ef.Own(partitions=partitions, generation=generation):
                watcher.owning(process, partitions, generation)
                site.user.owned |= set(partitions)
            case ef.RaiseError(failure=failure):
                watcher.raised(process, failure)
            case _:
                raise AssertionError(f"a commit is no single act: {action}")

    def _poll(self, site: Site) -> None:
        """One record of what is new; of the rest, whether he may deliver it is looked at."""
        if not site.alive or site.doing is not None or self.now >= site.mailbox.lease_until:
            return
        for partition, position in site.user.positions.items():
            until = site.user.positions[partition] = position + (partition in site.user.fresh)
            self.world.watcher.delivering(site.as_process, partition, until)
        site.user.fresh.clear()

    # --- offsets ---------------------------------------------------------------------------

    def _find_starts(self, site: Site, partitions: Partitions, generation: Generation) -> None:
        request = OffsetFetch(group_id=GROUP, partitions=partitions)
        (reply,) = self._ask(request, RequestToken(-1))
        assert isinstance(reply.response, OffsetsFetched)
        for partition in partitions:
            found = reply.response.offsets.get(partition)
            offset = 0 if found is None else max(found.offset, 0)
            site.starts[partition] = generation, offset

    def _to_commit(self, site: Site, partitions: Partitions) -> dict[TopicPartition, int]:
        """What is owned in good standing and was delivered; the rest fails without a request."""
        return {
            p: site.user.positions[p]
            for p in partitions
            if p in site.user.positions and site.member.owns(p)
        }

    def _commit(self, site: Site, coverage: Coverage) -> None:
        """The broker takes the commit that the user waits for, and he goes on."""
        assert site.doing is not None
        action = site.doing[1].popleft()
        assert isinstance(action, ef.CommitPositions)
        offsets = self._to_commit(site, action.partitions)
        if offsets:
            self._send_commit(site, offsets, coverage)
        self.world.watcher.saved(site.as_process, action.partitions)
        self._go_on(site, coverage)

    def _send_commit(
        self, site: Site, offsets: dict[TopicPartition, int], coverage: Coverage
    ) -> None:
        me = site.identity
        request = OffsetCommit(
            group_id=GROUP,
            generation=me.generation,
            member_id=me.member_id,
            instance_id=None,
            offsets={p: OffsetAndMetadata(offset=o) for p, o in offsets.items()},
        )
        self.world.watcher.committing(site.as_process, request)
        (*others, reply) = self._ask(request, RequestToken(-1))
        self._deliver(others)
        assert isinstance(reply.response, OffsetsCommitted)
        call = Call(site.name, request, lambda _: None, cast("Any", None))
        self.world.watcher.answered(call, reply.response, site.as_process)
        refused = [e for e in reply.response.errors.values() if e is not ErrorCode.none]
        if refused and COMMIT[refused[0]] is not Reaction.IGNORE:
            event = ev.CommitRefused(
                error=int(refused[0]), generation=me.generation, member_id=me.member_id
            )
            self._give(site, event, coverage)

    # --- where it stands -------------------------------------------------------------------

    def settle(self, coverage: Coverage) -> None:
        """Lets everything through, in turn, until the group is stable.

        Raises:
            InvariantViolated: It does not become so (3).
        """
        for _ in range(_MOST_MOVES):
            if self.settled():
                return
            for move in list(self.pending()) or [("tick", 0, "")]:
                if move in self.pending() or move[0] == "tick":
                    self.make(move, coverage)
        raise InvariantViolated("3", f"not settled after {_MOST_MOVES} rounds of all that waits")

    def settled(self) -> bool:
        """Whether nothing is under way in a stable group, and every partition has one owner."""
        wanting = [s for s in self.sites if s.alive and not s.user.closing]
        wanting = [s for s in wanting if s.member.state is not State.UNSUBSCRIBED]
        if any(s.member.state is not State.STABLE or s.member.expecting for s in wanting):
            return False
        if any(s.user.owned != set(s.member.owned) for s in wanting):
            return False
        if any(self.now >= s.mailbox.lease_until for s in wanting):
            return False
        if any(s.alive and (s.user.closing or s.under_way) for s in self.sites):
            return False
        owned = sorted(p for s in wanting for p in s.user.owned)
        count = self.cluster.topics.partitions(TOPIC)
        stable = self.cluster.coordinator.state(GROUP) in {GroupState.STABLE, GroupState.EMPTY}
        return stable and (not wanting or owned == [TopicPartition(TOPIC, i) for i in range(count)])

    @property
    def generation(self) -> Generation:
        """The group's, at its coordinator."""
        view = self.cluster.coordinator.group(GROUP)
        assert view is not None
        return view.generation

    def fingerprint(self) -> bytes:
        """Tells states apart; the same for equal ones, however they came about.

        What the watcher knows beside is history, of which the members' state has what counts.
        """
        coordinator = self.cluster.coordinator
        said = (
            *(plain(site) for site in self.sites),
            repr(coordinator.group(GROUP)).encode(),
            repr(coordinator.deadlines()).encode(),
            repr(sorted(coordinator.committed(GROUP).items())).encode(),
            repr((self.now, sorted(self.left.items()))).encode(),
            repr(sorted(self.world.watcher.delivered.items())).encode(),
        )
        return hashlib.blake2b(b"\0".join(said), digest_size=16).digest()


def beginning(members: int, partitions: int, bounds: dict[str, int], *, at: str = "first") -> Small:
    """A stable group of all members but the last, which has just subscribed.

    Args:
        members: How many, the newcomer included.
        partitions: How many.
        bounds: How often each disturbance may happen; those that are not named never do.
        at: "first": the newcomer's first JoinGroup is on its way. "joining": it was taken in, the
            others have heard of it, and theirs are on their way.
    """
    settings = CoordinatorSettings(
        initial_rebalance_delay=timedelta(0), min_session_timeout=timedelta(0)
    )
    cluster = SimulatedCluster(settings=settings)
    cluster.topics.create(TOPIC, partitions)
    agenda, watcher = Agenda(), Watcher()
    world = Surroundings(
        agenda=agenda, network=cast("Network", None), watcher=watcher, nodes=(_BROKER,)
    )
    sites = [
        Site(f"m{n}", Edges(settings_of(n)), world, Owner(UserHabits())) for n in range(members)
    ]
    small = Small(cluster, world, sites, dict.fromkeys(DISTURBANCES, 0))
    nothing = Coverage()
    for number in range(members - 1):
        small.start(number, nothing)
        small.settle(nothing)
    small.start(members - 1, nothing)
    if at == "joining":
        _let_all_join(small, nothing)
    small.left |= bounds
    small.since = small.now
    return small


def _let_all_join(small: Small, coverage: Coverage) -> None:
    newcomer = len(small.sites) - 1
    while any(site.member.state is not State.JOINING for site in small.sites) or any(
        number == newcomer for _, number, _ in small.pending()
    ):
        waiting = [m for m in small.pending() if m[1] == newcomer or m[2] != "join"]
        for move in waiting or [("tick", 0, "")]:
            small.make(move, coverage)
