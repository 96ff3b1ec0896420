"""The capacity planner: a group through a deploy, a loss, a scale-out, client by client.

    kafka-coop simulate run FILE [--out DIRECTORY] [--no-plot]

Prints a table, and writes beside each other NAME.json (everything) and NAME.png (the timeline:
one row a member, time across), NAME being the scenario file's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from kafka_coop.simulation.planner.group import CoarseGroup
from kafka_coop.simulation.planner.incidents import fates
from kafka_coop.simulation.planner.picture import PlottingUnavailableError, draw
from kafka_coop.simulation.planner.report import Result, as_json, result_of, table
from kafka_coop.simulation.planner.scenario import Plan, ScenarioError, load


def simulate(plan: Plan) -> tuple[list[CoarseGroup], list[Result]]:
    """Runs the scenario once for each kind of client. The same plan gives the same results."""
    groups = [CoarseGroup(plan, client, fates(plan)) for client in plan.compare]
    for group in groups:
        group.run()
    return groups, [result_of(group) for group in groups]


def main(argv: Iterable[str] | None = None) -> int:
    """The command. Returns its exit status: 2 where the file can't be used."""
    parser = argparse.ArgumentParser(prog="kafka-coop simulate run", description=__doc__)
    parser.add_argument("file", type=Path, help="the scenario: .yaml, .yml or .toml")
    parser.add_argument("--out", type=Path, default=Path(), help="where to write (default: here)")
    parser.add_argument("--no-plot", action="store_true", help="write no timeline plot")
    args = parser.parse_args(None if argv is None else list(argv))
    try:
        plan = load(args.file)
        groups, results = _simulated(plan, args.file)
        print(table(results))  # noqa: T201
        _write(plan, groups, results, args.out / args.file.stem, plot=not args.no_plot)
    except (ScenarioError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _simulated(plan: Plan, file: Path) -> tuple[list[CoarseGroup], list[Result]]:
    try:
        return simulate(plan)
    except ScenarioError as error:
        raise ScenarioError(f"{file}: {error}") from None


def _write(
    plan: Plan, groups: list[CoarseGroup], results: list[Result], stem: Path, *, plot: bool
) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = stem.with_name(stem.name + ".json")
    written.write_text(json.dumps(as_json(plan, groups, results)), encoding="utf-8")
    print(f"wrote {written}")  # noqa: T201
    if not plot:
        return
    picture = stem.with_name(stem.name + ".png")
    try:
        draw(plan, groups, picture)
    except PlottingUnavailableError as error:
        print(error, file=sys.stderr)  # noqa: T201
    else:
        print(f"wrote {picture}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
