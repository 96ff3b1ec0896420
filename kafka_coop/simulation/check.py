"""Runs random schedules and counts the violations.

python -m kafka_coop.simulation.check --seeds N --first K
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.trace import Trace
from kafka_coop.simulation.world import Scenario, World


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


def run(scenario: Scenario, *, trace: Trace | None = None) -> Verdict:
    """Runs a scenario to its end, or to the first violation.

    An exception of the machine is a violation, too (M).
    """
    world = World(scenario, trace=trace)
    try:
        world.run_until(scenario.quiet_at)
        settled_in, rounds = settle(world)
    except InvariantViolated as found:
        verdict = Verdict(violated=found.invariant, text=str(found), at=world.agenda.now)
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        verdict = Verdict(
            violated="M", text=f"{type(error).__name__}: {error}", at=world.agenda.now
        )
    else:
        verdict = Verdict(settled_in=settled_in, rounds=rounds, deliveries=world.watcher.deliveries)
    return verdict


def check_seed(seed: int) -> tuple[int, Verdict]:
    """Runs a seed's random scenario."""
    return seed, run(random_scenario(seed))


def main(argv: Iterable[str] | None = None) -> int:
    """The command. Returns its exit status: 1 where something was violated."""
    parser = argparse.ArgumentParser(prog="kafka-coop simulate check", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first violation")
    args = parser.parse_args(None if argv is None else list(argv))
    seeds = range(args.first, args.first + args.seeds)
    schedules = violations = 0
    for seed, verdict in _verdicts(seeds, args.jobs):
        schedules += 1
        if verdict.violated:
            violations += 1
            print(f"seed {seed}: at {verdict.at:.3f} s: {verdict.text}", flush=True)  # noqa: T201
            if args.fail_fast:
                break
    print(f"{schedules} schedules, {violations} violations")  # noqa: T201
    return 1 if violations else 0


def _verdicts(seeds: range, jobs: int) -> Iterable[tuple[int, Verdict]]:
    """In the order of the seeds, however many processes work on them."""
    if jobs <= 1:
        _prepare()
        yield from map(check_seed, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=_prepare) as pool:
        yield from pool.imap(check_seed, seeds, chunksize=20)


def _prepare() -> None:
    """A world is garbage all at once, when its run is over: looking for some before is a waste.

    It costs a tenth of the time at the default threshold.
    """
    gc.set_threshold(200_000)


if __name__ == "__main__":
    sys.exit(main())
