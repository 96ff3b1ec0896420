"""All interleavings of a small group: who gets to see what first.

    python -m kafka_coop.simulation.exhaustive [--members 2] [--partitions 2] [--depth N]

The box's schedules are chance; here every order is tried. A stable group is about to have one more
member; `small_group` says what may happen then, and what need not be a move of its own. The
exploration goes on until the group has settled, whichever way it went: every member stable, every
partition with one owner, in a generation in which nothing more is to be given up. Where that is
too much for an evening, ``--depth`` bounds the moves; from the deepest states, or one in so many of
them, all that is under way is let through in turn then (`Small.settle`). Cells and edges that are
seen there are counted apart: it is one order of many.

Every invariant is the box's, looked at by the box's own watcher after every move. Liveness (3) is
stricter here: no path may use more virtual time than `time_to_settle` grants, nor end anywhere but
in a settled group.

Two orders that lead to the same state are followed once: states are told apart by a hash of all
they consist of. And of moves that commute one order is followed (partial-order reduction). A
member that has one answer, plan or step to take and nothing else under way takes it at once, where
no disturbance is left (`Small.by_itself`): whatever else may happen, now or later, happens at the
broker or in other members, neither reads nor changes anything of this one, and cannot take the
answer away, so each order that has the move later has a twin that has it first. A move after
which others' invariants could look different (who owns, delivers, holds a lease) is not invisible
to them and is tried in all orders nevertheless. No run goes in circles, since every move uses up a
token, a step or time; so no move is put off for ever.

Commits are made before a release and by nobody else; faults of the network are left to the box.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.small_group import DISTURBANCES, Move, Small, beginning
from kafka_coop.simulation.small_site import HEARTBEAT, REBALANCE, SESSION, Edges
from kafka_coop.types import Generation

NO_DEPTH = 1_000
"""Deeper than any group of this size goes before it has settled."""

Path = tuple[Move, ...]


@dataclass(slots=True)
class Explored:
    """What an exploration came to.

    Attributes:
        states, moves: Different states that were reached; ways from one to the next.
        depth: The most moves from the first.
        ends: Generation -> in how many settled states it was the group's.
        handed_over: In how many of these the newcomer owns something.
        slowest: The most virtual seconds it took to settle.
        cut_off: How many states were too deep to go on from; 0: there are no others.
        settled: Of those, from how many the group was let settle.
        coverage, settling: What was visited by exploring, and by settling.
    """

    states: int = 0
    moves: int = 0
    depth: int = 0
    ends: dict[Generation, int] = field(default_factory=dict)
    handed_over: int = 0
    slowest: float = 0.0
    cut_off: int = 0
    settled: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    settling: Coverage = field(default_factory=Coverage)

    def end(self, small: Small) -> None:
        """The group has settled here."""
        self.ends[small.generation] = self.ends.get(small.generation, 0) + 1
        self.handed_over += bool(small.sites[-1].user.owned)
        self.slowest = max(self.slowest, small.now - small.since)

    def report(self) -> list[str]:
        """What was visited, and how it ended."""
        ends = ", ".join(f"{n} in generation {g}" for g, n in sorted(self.ends.items()))
        lines = [
            "by exploring alone:",
            *self.coverage.report(),
            f"settled: {ends or 'nowhere'}",
            f"the newcomer owns in {self.handed_over} of these; {self.slowest:.2f} s at most",
        ]
        if self.cut_off:
            cells = len(self.settling.cells - self.coverage.cells)
            lines.append(
                f"{self.cut_off} states were too deep; settled from {self.settled} of them,"
                f" which visits {cells} cells more"
            )
        how = f"up to {self.depth} moves deep" if self.cut_off else "all there are"
        lines.append(f"{self.states} states, {self.moves} moves: {how}")
        return lines


def time_to_settle(small: Small) -> float:
    """How long it may take, in virtual seconds, with the disturbances that are still possible.

    Two heartbeats: the others hear of the newcomer, and of the follow-up round, which they begin,
    or wait for in a hurry. A user's disturbance costs one round more, a death a session and the
    rounds after it, time that passes too early at most what a lost deadline costs.
    """
    left = small.left
    rounds = 1 + left["enforce"] + left["drain"] + left["close"]
    deaths = left["crash"] * (SESSION + REBALANCE)
    return 2.0 * HEARTBEAT * rounds + deaths + left["tick"] * SESSION


def explore(first: Small, depth: int = NO_DEPTH, *, settle_every: int = 20) -> Explored:
    """Visits every state within so many moves of the first.

    Raises:
        InvariantViolated: With the moves that lead to it in its text.
    """
    found = Explored(states=1)
    Edges.seen = found.coverage.edges
    latest = first.now + time_to_settle(first)
    seen = {first.fingerprint()}
    frontier: list[tuple[bytes, Path]] = [(pickle.dumps(first), ())]
    while frontier and found.depth < depth:
        deeper: list[tuple[bytes, Path]] = []
        for packed, path in frontier:
            for move, after in _successors(packed, path, found):
                fingerprint = after.fingerprint()
                if fingerprint in seen:
                    continue
                seen.add(fingerprint)
                if after.settled():
                    found.end(after)
                    continue
                if after.now > latest:
                    text = f"not settled after {after.now - first.now:.2f} s"
                    raise InvariantViolated("3", f"{text} after {told((*path, move))}")
                deeper.append((pickle.dumps(after), (*path, move)))
        found.depth += 1
        frontier = deeper
    found.states = len(seen)
    found.cut_off = len(frontier)
    _let_settle(frontier[::settle_every], found)
    return found


def _successors(packed: bytes, path: Path, found: Explored) -> Iterator[tuple[Move, Small]]:
    """All that may come next; one move alone where that commutes with the others."""
    small: Small = pickle.loads(packed)  # noqa: S301  # our own bytes
    first = small.by_itself()
    if first is not None:
        moves = list(small.moves())
        seen_by_others = small.sites[first[1]].visible
        after = _after(small, first, path, found)
        yield first, after
        if after.sites[first[1]].visible == seen_by_others:
            return
        moves.remove(first)
    else:
        moves = list(small.moves())
    for move in moves:
        yield move, _after(pickle.loads(packed), move, path, found)  # noqa: S301


def _after(small: Small, move: Move, path: Path, found: Explored) -> Small:
    found.moves += 1
    try:
        small.make(move, found.coverage)
    except InvariantViolated as violated:
        text = f"{violated} after {told((*path, move))}"
        raise InvariantViolated(violated.invariant, text) from violated
    except Exception as error:
        raise InvariantViolated("M", f"{error!r} after {told((*path, move))}") from error
    return small


def _let_settle(deepest: list[tuple[bytes, Path]], found: Explored) -> None:
    Edges.seen = found.settling.edges
    for packed, path in deepest:
        small: Small = pickle.loads(packed)  # noqa: S301
        try:
            small.settle(found.settling)
        except InvariantViolated as violated:
            text = f"{violated} after {told(path)}"
            raise InvariantViolated(violated.invariant, text) from violated
        found.settled += 1


def told(path: Path) -> str:
    """The moves, to be read by a person."""
    return ", ".join(
        "time" if what == "tick" else f"m{number} {what}{' ' + lane if lane else ''}"
        for what, number, lane in path
    )


def main(argv: Iterable[str] | None = None) -> int:
    """The command. Returns its exit status: 1 where an invariant is violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--depth", type=int, default=NO_DEPTH, help="default: to the end")
    where = "the newcomer's first JoinGroup is on its way, or everybody's last one is"
    parser.add_argument("--at", choices=("first", "joining"), default="first", help=where)
    for name in DISTURBANCES:
        parser.add_argument(f"--{name}", type=int, default=0, help="how often at most (0)")
    args = parser.parse_args(None if argv is None else list(argv))
    bounds = {name: getattr(args, name) for name in DISTURBANCES}
    least = {"members": 1, "partitions": 1, "depth": 0, **dict.fromkeys(bounds, 0)}
    for name, at_least in least.items():
        if (given := getattr(args, name)) < at_least:
            parser.error(f"--{name} {given}: must be at least {at_least}")
    began = time.process_time()
    try:
        small = beginning(args.members, args.partitions, bounds, at=args.at)
        found = explore(small, args.depth)
    except InvariantViolated as violated:
        print(violated)  # noqa: T201
        return 1
    spent = f"{time.process_time() - began:.0f} s of CPU time"
    print(*found.report(), spent, sep="\n")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
