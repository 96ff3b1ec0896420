"""Runs random schedules and counts the violations.

    kafka-coop simulate check --seeds N --first K [--coverage] [--explain]

The last line is `N schedules, V violations`, of those run so far if Ctrl-C ends it; the exit
status is 1 where V is not 0, and where --coverage of 20,000 schedules or more misses a cell without
a reason. A seed is one schedule, always the same one, on any machine and in however many processes.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.shrink import shrink
from kafka_coop.simulation.trace import Trace
from kafka_coop.simulation.undisturbed import one_thing_at_a_time
from kafka_coop.simulation.unvisited import ENOUGH
from kafka_coop.simulation.world import Scenario, World
from kafka_coop.simulation.written import written

_AGAIN = "kafka-coop simulate check"

_BLOCK = 50
"""Schedules that a process runs before it reports, and frees their memory: some megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a run ended.

    Attributes:
        violated: The invariant's name in `invariants`; empty: all hold.
        text: What happened.
        settled_in, rounds: What the group took to settle, seconds and generations.
        deliveries: How often a partition's records were handed out.
    """

    violated: str = ""
    text: str = ""
    at: float = 0.0
    settled_in: float = 0.0
    rounds: int = 0
    deliveries: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of some schedules.

    Attributes:
        schedules: How many were run.
        violations: Seed -> its verdict, where an invariant was violated.
        slowest, most_rounds: The most that a group took to settle, seconds and generations.
    """

    schedules: int = 0
    violations: dict[int, Verdict] = field(default_factory=dict)
    slowest: float = 0.0
    most_rounds: int = 0
    coverage: Coverage = field(default_factory=Coverage)

    def take(self, seed: int, verdict: Verdict) -> None:
        """One more schedule was run."""
        self.schedules += 1
        if verdict.violated:
            self.violations[seed] = verdict
        self.slowest = max(self.slowest, verdict.settled_in)
        self.most_rounds = max(self.most_rounds, verdict.rounds)

    def add(self, other: Outcome) -> None:
        """More schedules were run."""
        self.schedules += other.schedules
        self.violations |= other.violations
        self.slowest = max(self.slowest, other.slowest)
        self.most_rounds = max(self.most_rounds, other.most_rounds)
        self.coverage.add(other.coverage)

    def summary(self) -> str:
        """The command's last line."""
        return f"{self.schedules} schedules, {len(self.violations)} violations"


def run(
    scenario: Scenario, *, trace: Trace | None = None, coverage: Coverage | None = None
) -> Verdict:
    """Runs a scenario to its end, or to the first violation.

    An exception of the machine is a violation, too (M).

    Args:
        scenario: What to run.
        trace: Where to write down what happens.
        coverage: Takes in what is visited.
    """
    world = World(scenario, trace=trace)
    try:
        world.run_until(scenario.quiet_at)
        settled_in, rounds = settle(world)
        one_thing_at_a_time(world)
    except InvariantViolated as found:
        verdict = Verdict(violated=found.invariant, text=str(found), at=world.agenda.now)
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        verdict = Verdict(
            violated="M", text=f"{type(error).__name__}: {error}", at=world.agenda.now
        )
    else:
        verdict = Verdict(settled_in=settled_in, rounds=rounds, deliveries=world.watcher.deliveries)
    if coverage is not None:
        coverage.add(world.watcher.coverage)
    return verdict


def check(
    seeds: int,
    first: int = 0,
    *,
    jobs: int = 1,
    fail_fast: bool = False,
    on_violation: Callable[[int, Verdict], None] = lambda _seed, _verdict: None,
    total: Outcome | None = None,
) -> Outcome:
    """Runs the schedules of the seeds ``first`` … ``first + seeds - 1``.

    Args:
        seeds: How many.
        first: The first one.
        jobs: Processes to run them in. They are started anew, so that a script which calls this
            with more than one needs its ``if __name__ == "__main__"``.
        fail_fast: Stop at the first violation.
        on_violation: Told of each violation at once, in the order of the seeds.
        total: What is added to, and returned: a caller that is interrupted has it so far.
    """
    total = Outcome() if total is None else total
    blocks = (
        range(at, min(at + _BLOCK, first + seeds)) for at in range(first, first + seeds, _BLOCK)
    )
    for outcome in _outcomes(blocks, jobs):
        total.add(outcome)
        for seed, verdict in outcome.violations.items():
            on_violation(seed, verdict)
        if fail_fast and total.violations:
            break
    return total


def explain(scenario: Scenario) -> str:
    """Shortens a scenario that violates an invariant, and tells what happens in it.

    Returns:
        The short scenario, as a test would have it, and its trace, a line for each thing that
        happens.

    Raises:
        ValueError: It violates none.
    """
    violated = run(scenario).violated
    if not violated:
        raise ValueError(f"the scenario of seed {scenario.seed} violates no invariant")
    short = shrink(scenario, lambda candidate: run(candidate).violated == violated)
    trace = Trace()
    verdict = run(short, trace=trace)
    return f"{written(short)}\n{trace}\n{verdict.at:9.4f}  {verdict.text}"


def _outcomes(blocks: Iterable[range], jobs: int) -> Iterator[Outcome]:
    """In the order of the blocks, however many processes work on them."""
    if jobs <= 1:
        yield from map(_run_block, blocks)
        return
    context = multiprocessing.get_context("spawn")
    with _left_alone():
        pool = context.Pool(jobs, initializer=_prepare)
    with pool:
        yield from pool.imap(_run_block, blocks)


@contextmanager
def _left_alone() -> Iterator[None]:
    """A terminal's Ctrl-C is for all processes: those that start in here leave it to this one."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's alone
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_block(seeds: range) -> Outcome:
    """A world is garbage all at once, when its run is over: looking for some before is a waste."""
    outcome = Outcome()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for seed in seeds:
            outcome.take(seed, run(random_scenario(seed), coverage=outcome.coverage))
    finally:
        gc.collect()
        if was_enabled:
            gc.enable()
    return outcome


def _prepare() -> None:
    """What is there by now stays, and need not be looked through at all."""
    gc.freeze()


def main(argv: Iterable[str] | None = None) -> int:
    """The command. Returns its exit status: 1 where something was violated, or left unvisited."""
    parser = argparse.ArgumentParser(prog=_AGAIN, description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first violation")
    parser.add_argument("--coverage", action="store_true", help="tell which cells were visited")
    parser.add_argument("--explain", action="store_true", help="shorten the first violation")
    args = parser.parse_args(None if argv is None else list(argv))
    if args.seeds < 1:
        parser.error(f"--seeds {args.seeds}: at least one schedule must be run")
    if args.first < 0:
        parser.error(f"--first {args.first}: seeds begin at 0")
    if args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: at least one process is needed")
    if args.jobs <= 1:
        _prepare()

    def tell(seed: int, verdict: Verdict) -> None:
        print(f"seed {seed}: at {verdict.at:.3f} s: {verdict.text}", flush=True)  # noqa: T201

    outcome = Outcome()
    try:
        check(
            args.seeds,
            args.first,
            jobs=args.jobs,
            fail_fast=args.fail_fast,
            on_violation=tell,
            total=outcome,
        )
        print(end=_explained(outcome, explaining=args.explain), flush=True)  # noqa: T201
    except KeyboardInterrupt:
        print(*_report(outcome, coverage=args.coverage), sep="\n", flush=True)  # noqa: T201
        raise
    print(*_report(outcome, coverage=args.coverage), sep="\n")  # noqa: T201
    return 1 if outcome.violations or (args.coverage and _gap(outcome)) else 0


def _explained(outcome: Outcome, *, explaining: bool) -> str:
    """The first violation, or how to have it explained."""
    if not outcome.violations:
        return "nothing to explain: no invariant is violated\n" if explaining else ""
    seed = min(outcome.violations)
    if explaining:
        return explain(random_scenario(seed)) + "\n"
    return f"made short, with its trace: {_AGAIN} --seeds 1 --first {seed} --explain\n"


def _report(outcome: Outcome, *, coverage: bool) -> list[str]:
    """The totals: the summary last."""
    lines: list[str] = []
    if coverage:
        lines += outcome.coverage.report()
        lines.append(
            f"settled within {outcome.slowest:.1f} s and {outcome.most_rounds} rounds at most"
        )
        if gap := _gap(outcome):
            lines += ["cells that schedules should visit (kafka_coop.simulation.unvisited):", *gap]
    return [*lines, outcome.summary()]


def _gap(outcome: Outcome) -> list[str]:
    """The cells that so many schedules should have visited."""
    return outcome.coverage.unexplained() if outcome.schedules >= ENOUGH else []


if __name__ == "__main__":
    sys.exit(f"the command is {_AGAIN}, or python -m kafka_coop.cli.entry simulate check")
