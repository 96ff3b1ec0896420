"""Whether a change has made rebalances slower: two versions of kafka_coop, in turns.

    python -m benchmarks.versions BEFORE [AFTER] [--rounds 4] [--cycles 5] [--kafka 4.1.0]
        [--variants drain,watchdog]

BEFORE and AFTER are checkouts of the repository (``git worktree add ../before COMMIT``); AFTER is
the one that this runs in where it isn't named. Members are this benchmark's, with the `kafka_coop`
of the one or the other. In each round four members of the one, then four of the other, share the
load of `benchmarks.rebalance`, and a fifth joins and leaves again, as often as ``--cycles`` says,
each time a new process that had loaded its modules before. Which is first changes from round to
round; the first one warms up the broker, has one cycle, and is not measured. So both have the same
machine, and its bad moments, and an hour of it has more joins and leaves than one of
`benchmarks.rebalance`, whose one of each takes two minutes. With ``--variants`` the members are
that benchmark's *+drain*, *+watchdog* or both.

The columns: of all that moved in a join or a leave, the median gap is the event's (see
`benchmarks.rebalance_cost`), of what stayed the longest silence; of all events each the quartiles.
*By chance*: where the events' gaps are dealt to the two versions at random, how often their medians
lie as far apart as they do, AFTER's above BEFORE's. The exit status is 1 where that is less often
than once in a hundred: then it is slower.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.group import MEMBERS, OUR_CODE, VARIANTS, Group, names_among, under_load
from benchmarks.rebalance_cost import Cost
from kafka_coop.testing.ending import end_in_order_at_sigterm
from kafka_coop.testing.local import DEFAULT_VERSION

EVENTS = ("join", "leave")
REST = 2.0
"""Seconds from the end of what an event has brought about to that of its window."""
FEWEST = 4
"""Events that there have to be of each kind."""
DEALS = 10_000
UNLIKELY = 0.01
"""How often chance may bring about what is called slower."""

Costs = Mapping[tuple[str, str], Sequence[Cost]]
"""Of each event, and either version: *before* and *after*."""


def measure(group: Group, cycles: int) -> Iterator[tuple[str, Cost]]:
    """One group's joins and leaves, each event with its cost."""
    windows: list[tuple[str, float, float]] = []
    try:
        group.start_all(*[()] * MEMBERS)
        group.settle(rest=REST)
        for cycle in range(cycles):
            fifth = group.start(wait=True, stay=True)
            group.settle(rest=REST)
            for event in EVENTS:
                time.sleep(cycle / cycles)  # elsewhere between two records, and two commits
                began = time.time()
                if event == "join":
                    group.go(fifth)
                else:
                    group.terminate(fifth)
                group.settle(rest=REST)
                windows.append((event, began, time.time()))
            group.end(fifth)
    finally:
        group.stop()
    history = group.history()
    for event, began, ended in windows:
        yield event, history.cost(began, ended)


def gap(cost: Cost) -> float:
    """An event's gap: the median of what moved, ms."""
    return statistics.median(cost.gaps)


def by_chance(before: Sequence[float], after: Sequence[float], seed: int = 0) -> float:
    """How often the median after exceeds the one before by as much where both are dealt at random.

    Args:
        before, after: One figure for each event.
        seed: Of the deals.

    Returns:
        A share, above 0: what was measured counts as one deal.
    """
    rng = random.Random(seed)
    both = [*before, *after]

    def apart() -> float:
        return statistics.median(both[len(before) :]) - statistics.median(both[: len(before)])

    found, as_far = apart(), 1
    for _ in range(DEALS):
        rng.shuffle(both)
        as_far += apart() >= found
    return as_far / (DEALS + 1)


def report(costs: Costs) -> int:
    """Prints a table, and returns the exit status."""
    print(
        "| event | version | events | gap ms: quartiles | kept silent ms: quartiles | missing "
        "| by chance |"
    )
    print("|---|---|---|---|---|---|---|")
    slower = False
    for event in EVENTS:
        gaps = {version: [gap(c) for c in costs[event, version]] for version in ("before", "after")}
        chance = by_chance(gaps["before"], gaps["after"])
        slower = slower or chance < UNLIKELY
        for version, all_ in gaps.items():
            found = costs[event, version]
            silent = [max(c.silences) for c in found]
            judged = f"{chance:.3f}" if version == "after" else ""
            print(
                f"| {event} | {version} | {len(found)} | {_quartiles(all_)} "
                f"| {_quartiles(silent)} | {sum(c.missing for c in found)} | {judged} |"
            )
    return int(slower)


def _quartiles(figures: Sequence[float]) -> str:
    return ", ".join(f"{q:,.0f}" for q in statistics.quantiles(figures, n=4, method="inclusive"))


def checkout(text: str) -> Path:
    """A folder that has a `kafka_coop`, for argparse."""
    folder = Path(text).resolve()
    if not (folder / "kafka_coop" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no checkout: it has no kafka_coop/")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("before", type=checkout)
    parser.add_argument("after", type=checkout, nargs="?", default=OUR_CODE)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument(
        "--variants", type=names_among(VARIANTS), default=[], help="comma-separated"
    )
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="the broker's version")
    options = parser.parse_args()
    if min(options.rounds, options.cycles) < 1 or options.rounds * options.cycles < FEWEST:
        parser.error(
            f"--rounds times --cycles has to be {FEWEST} or more: quartiles are of as many"
        )
    end_in_order_at_sigterm()
    client = "+".join(["kafka_coop", *options.variants])
    versions = [("before", options.before), ("after", options.after)]
    costs: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    with under_load(options.kafka) as place:
        for number in range(options.rounds + 1):
            for version, code in versions[:: 1 if number % 2 else -1]:
                group = Group(client, *place, code)
                for event, cost in measure(group, options.cycles if number else 1):
                    if number:
                        costs[event, version].append(cost)
    return report(costs)


if __name__ == "__main__":
    sys.exit(main())
