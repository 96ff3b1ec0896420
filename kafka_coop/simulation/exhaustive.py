"""All interleavings of a small group, up to a depth: who gets to see what first.

    python -m kafka_coop.simulation.exhaustive [--members 2] [--partitions 2] [--depth 8]

The box's schedules are chance; here every order is tried. Real machines, the real coordinator's
model, and what is on its way between them make up a state. It begins with a stable group that
one more member is about to join. What may happen next:

- a broker takes in the first request on one of a member's connections;
- a member reads the first answer on one of them, or hears from its assignor;
- a member's user carries out the next step, whole;
- time passes up to the next deadline of anybody's; a user asks for a round or closes, a process
  dies: these as often as the bounds allow.

Two orders that lead to the same state are followed once: states are told apart by a hash of all
they consist of. Invariants 1 and 2 are checked in each. From the deepest states, or one in every
so many of them, all that is on its way is let through in turn, until the group is stable and
every partition has one owner (3). Commits, and faults of the network, are left to the box.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from kafka_coop.assignors import resolve
from kafka_coop.leader import lead
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.member import Member
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.simulation.cluster import SimulatedCluster
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.group import GroupState, RequestToken
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.types import TopicPartition

GROUP = "group"
TOPIC = "alpha"

Move: TypeAlias = tuple[str, int, str]
"""What happens, to which member, on which of its connections."""

_ANSWERS: dict[type[Any], tuple[str, type[Any]]] = {
    ef.SendHeartbeat: ("main", ev.HeartbeatAnswered),
    ef.SendLeave: ("main", ev.LeaveAnswered),
    ef.SendJoin: ("join", ev.JoinAnswered),
    ef.SendSync: ("join", ev.SyncAnswered),
    ef.SendFindCoordinator: ("any", ev.CoordinatorAnswered),
    ef.SendMetadata: ("any", ev.MetadataAnswered),
}
_LANES = ("main", "join", "any")
_MOST_MOVES = 5000
"""In which a group has settled that nothing disturbs."""


@dataclass(slots=True)
class Lane:
    """One connection: requests on their way, the one that is parked, answers on their way."""

    requests: deque[tuple[RequestToken, Any]] = field(default_factory=deque)
    parked: RequestToken | None = None
    answers: deque[Any] = field(default_factory=deque)


@dataclass(slots=True)
class Site:
    """One member, its user, and its connections."""

    member: Member
    lanes: dict[str, Lane] = field(default_factory=lambda: {lane: Lane() for lane in _LANES})
    awaited: dict[RequestToken, tuple[type[Any], int]] = field(default_factory=dict)
    plans: deque[ev.AssignmentComputed] = field(default_factory=deque)
    steps: deque[ef.Step] = field(default_factory=deque)
    owned: set[TopicPartition] = field(default_factory=set)
    lease: float = float("-inf")
    alive: bool = True
    closing: bool = False
    sent: int = 0


@dataclass(slots=True)
class Small:
    """One state of the whole group.

    Attributes:
        left: How often what may still happen that nobody needs.
    """

    cluster: SimulatedCluster
    sites: list[Site]
    left: dict[str, int]
    now: float = 0.0

    # --- what may happen -------------------------------------------------------------------

    def moves(self) -> Iterator[Move]:
        """Everything that may happen next."""
        yield from self.pending()
        if self.left["tick"] and self._deadline() is not None:
            yield "tick", 0, ""
        for number, site in enumerate(self.sites):
            if not site.alive or site.closing:
                continue
            for what in ("enforce", "close", "crash"):
                if self.left[what]:
                    yield what, number, ""

    def pending(self) -> Iterator[Move]:
        """What is on its way."""
        for number, site in enumerate(self.sites):
            for name, lane in site.lanes.items():
                if lane.requests and lane.parked is None:
                    yield "broker", number, name
                if lane.answers and site.alive:
                    yield "answer", number, name
            if site.alive and site.plans:
                yield "plan", number, ""
            if site.alive and site.steps:
                yield "step", number, ""

    def make(self, move: Move, coverage: Coverage) -> None:
        """Lets it happen.

        Raises:
            InvariantViolated: An invariant does not hold any more.
        """
        what, number, lane = move
        site = self.sites[number]
        match what:
            case "broker":
                self._serve(site.lanes[lane])
            case "answer":
                self._give(site, site.lanes[lane].answers.popleft(), coverage)
            case "plan":
                self._give(site, site.plans.popleft(), coverage)
            case "step":
                self._carry_out(site, site.steps.popleft(), coverage)
            case "tick":
                self._pass_time(coverage)
            case "enforce":
                self._give(site, ev.EnforceRebalance(reason="the user asked for one"), coverage)
            case "close":
                site.closing = True
                self._give(site, ev.Close(), coverage)
            case _:
                site.alive = False
                site.owned.clear()
        if what in self.left:
            self.left[what] -= 1
        self._check_owners()

    # --- brokers and time ------------------------------------------------------------------

    def _serve(self, lane: Lane) -> None:
        token, request = lane.requests.popleft()
        lane.parked = token
        self._deliver(self.cluster.handle(1, request, client=Client(), token=token, now=self.now))

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
        self.now = max(self.now, deadline)
        self._deliver(self.cluster.advance(self.now))
        for site in self.sites:
            due = site.member.next_deadline()
            if site.alive and due is not None and due <= self.now:
                self._give(site, ev.Polled(at=self.now), coverage)
                self._give(site, ev.Tick(), coverage)

    # --- members ---------------------------------------------------------------------------

    def start(self, number: int, coverage: Coverage) -> None:
        """The member subscribes."""
        self._give(self.sites[number], ev.Subscribe(topics=(TOPIC,)), coverage)

    def _give(self, site: Site, event: ev.Event, coverage: Coverage) -> None:
        before = site.member.state
        effects = site.member.handle(event, self.now)
        coverage.cells.add((before, type(event)))
        for effect in effects:
            self._begin(site, effect, coverage)

    def _begin(self, site: Site, effect: ef.Effect, coverage: Coverage) -> None:
        match effect:
            case ef.OfferStep(step=step):
                site.steps.append(step)
            case ef.WithdrawStep(step_id=step_id):
                kept = deque(s for s in site.steps if s.step_id != step_id)
                if len(kept) < len(site.steps):
                    site.steps = kept
                    self._give(site, ev.StepWithdrawn(step_id=step_id), coverage)
            case ef.ExtendLease(until=until):
                site.lease = until
            case ef.EndLease():
                site.lease = float("-inf")
            case ef.AbortJoin(token=token):
                site.awaited = {t: w for t, w in site.awaited.items() if w[1] != token}
                site.lanes["join"].parked = None
            case ef.RunAssignor():
                outcome = lead(
                    effect.protocol_name,
                    effect.cluster,
                    effect.members,
                    instance_ids=effect.instance_ids,
                )
                plan = dict(outcome.assignments)
                site.plans.append(ev.AssignmentComputed(token=effect.token, assignments=plan))
            case _ if type(effect) in _ANSWERS:
                self._send(site, effect)
            case _:
                pass

    def _send(self, site: Site, effect: Any) -> None:
        if isinstance(effect, ef.SendJoin):
            said = decode_subscription(effect.request.protocols[0][1])
            if kept := site.owned - set(said.owned):
                raise InvariantViolated("2", f"joins without {sorted(kept)}, which it owns")
        if isinstance(effect, ef.SendLeave) and site.owned:
            raise InvariantViolated("2", f"leaves and owns {sorted(site.owned)}")
        # Numbered by member: what two of them send one after the other is the same in any order.
        token = RequestToken(self.sites.index(site) * 10_000 + site.sent)
        site.sent += 1
        lane, _ = _ANSWERS[type(effect)]
        site.awaited[token] = type(effect), effect.token
        site.lanes[lane].requests.append((token, effect.request))

    def _carry_out(self, site: Site, step: ef.Step, coverage: Coverage) -> None:
        for action in step.actions:
            match action:
                case ef.Release(partitions=partitions):
                    site.owned -= set(partitions)
                case ef.Own(partitions=partitions):
                    site.owned |= set(partitions)
                case _:
                    pass
        self._give(site, ev.StepDone(step_id=step.step_id), coverage)

    # --- invariants ------------------------------------------------------------------------

    def _check_owners(self) -> None:
        owners: dict[TopicPartition, int] = {}
        for number, site in enumerate(self.sites):
            if self.now >= site.lease:
                continue
            for partition in site.owned:
                if partition in owners:
                    text = f"members {owners[partition]} and {number} may both deliver {partition}"
                    raise InvariantViolated("1", text)
                owners[partition] = number

    def settle(self, coverage: Coverage) -> None:
        """Lets everything through, in turn, until the group is stable.

        Raises:
            InvariantViolated: It does not become so (3).
        """
        for _ in range(_MOST_MOVES):
            waiting = list(self.pending())
            for move in waiting or [("tick", 0, "")]:
                if move in self.pending() or move[0] == "tick":
                    self.make(move, coverage)
            if not waiting and self.settled():
                return
        raise InvariantViolated("3", f"not settled after {_MOST_MOVES} rounds of all that waits")

    def settled(self) -> bool:
        """Whether every partition has one owner, in a stable group."""
        wanting = [s for s in self.sites if s.alive and not s.closing]
        wanting = [s for s in wanting if s.member.state is not State.UNSUBSCRIBED]
        if any(s.member.state is not State.STABLE for s in wanting):
            return False
        if any(s.owned != set(s.member.owned) or self.now >= s.lease for s in wanting):
            return False
        if any(s.closing and s.alive and s.member.state is not State.CLOSED for s in self.sites):
            return False
        owned = sorted(p for s in self.sites for p in s.owned)
        count = self.cluster.topics.partitions(TOPIC)
        stable = self.cluster.coordinator.state(GROUP) in {GroupState.STABLE, GroupState.EMPTY}
        return stable and (not wanting or owned == [TopicPartition(TOPIC, i) for i in range(count)])

    def fingerprint(self) -> bytes:
        """Tells states apart."""
        said = (
            pickle.dumps(self.sites),
            repr(self.cluster.coordinator.group(GROUP)).encode(),
            repr(self.cluster.coordinator.deadlines()).encode(),
            repr((self.now, sorted(self.left.items()))).encode(),
        )
        return hashlib.blake2b(b"\0".join(said), digest_size=16).digest()


class _Edges(Member):
    """A member whose edges are noted, for all states of an exploration."""

    seen: set[tuple[State, State]] = set()  # noqa: RUF012  # shared on purpose: states are copies

    def _enter(self, state: State) -> None:
        if state is not self.state:
            self.seen.add((self.state, state))
        super()._enter(state)


@dataclass(slots=True)
class Explored:
    """What an exploration came to.

    Attributes:
        states, moves: Different states that were reached; ways from one to the next.
        settled: Of the deepest, from how many the group was let settle.
    """

    states: int = 0
    moves: int = 0
    settled: int = 0
    coverage: Coverage = field(default_factory=Coverage)


def beginning(members: int, partitions: int, bounds: dict[str, int]) -> Small:
    """A stable group of all members but the last, which has just subscribed."""
    settings = CoordinatorSettings(
        initial_rebalance_delay=timedelta(0), min_session_timeout=timedelta(0)
    )
    cluster = SimulatedCluster(settings=settings)
    cluster.topics.create(TOPIC, partitions)
    sites = [Site(_Edges(_settings(number))) for number in range(members)]
    small = Small(cluster, sites, {"tick": 0, "enforce": 0, "close": 0, "crash": 0})
    nothing = Coverage()
    for number in range(members - 1):
        small.start(number, nothing)
        small.settle(nothing)
    small.left = dict(bounds)
    small.start(members - 1, nothing)
    return small


def _settings(number: int) -> MemberSettings:
    return MemberSettings(
        group_id=GROUP,
        assignors=(resolve("cooperative-sticky"),),
        client_id=f"m{number}",
        session_timeout=timedelta(seconds=3),
        rebalance_timeout=timedelta(seconds=6),
        request_timeout=timedelta(seconds=2),
        heartbeat_interval=timedelta(seconds=1),
        seed=number,
    )


def explore(first: Small, depth: int, *, settle_every: int = 20) -> Explored:
    """Visits every state within so many moves of the first.

    Raises:
        InvariantViolated: With the moves that lead to it in its text.
    """
    found = Explored()
    _Edges.seen = found.coverage.edges
    seen = {first.fingerprint()}
    frontier: list[tuple[bytes, tuple[Move, ...]]] = [(pickle.dumps(first), ())]
    for _ in range(depth):
        deeper: list[tuple[bytes, tuple[Move, ...]]] = []
        for packed, path in frontier:
            for move in list(pickle.loads(packed).moves()):  # noqa: S301  # our own bytes
                after: Small = pickle.loads(packed)  # noqa: S301
                _try(after, move, path, found.coverage)
                found.moves += 1
                fingerprint = after.fingerprint()
                if fingerprint not in seen:
                    seen.add(fingerprint)
                    deeper.append((pickle.dumps(after), (*path, move)))
        frontier = deeper
    found.states = len(seen)
    for packed, path in frontier[::settle_every]:
        small: Small = pickle.loads(packed)  # noqa: S301
        try:
            small.settle(found.coverage)
        except InvariantViolated as violated:
            raise InvariantViolated(violated.invariant, f"{violated} after {path}") from violated
        found.settled += 1
    return found


def _try(state: Small, move: Move, path: tuple[Move, ...], coverage: Coverage) -> None:
    try:
        state.make(move, coverage)
    except InvariantViolated as violated:
        raise InvariantViolated(
            violated.invariant, f"{violated} after {path}, {move}"
        ) from violated
    except Exception as error:
        raise InvariantViolated("M", f"{error!r} after {path}, {move}") from error


def main(argv: Iterable[str] | None = None) -> int:
    """The command. Returns its exit status: 1 where an invariant is violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--depth", type=int, default=8)
    for name, most in (("tick", 2), ("enforce", 1), ("close", 1), ("crash", 1)):
        parser.add_argument(f"--{name}", type=int, default=most, help="how often at most")
    args = parser.parse_args(None if argv is None else list(argv))
    bounds = {name: getattr(args, name) for name in ("tick", "enforce", "close", "crash")}
    try:
        found = explore(beginning(args.members, args.partitions, bounds), args.depth)
    except InvariantViolated as violated:
        print(violated)  # noqa: T201
        return 1
    said = f"{found.states} states, {found.moves} moves, settled from {found.settled}"
    print(*found.coverage.report(), said, sep="\n")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
