"""The capacity planner: a group through a deploy, a loss, a scale-out, client by client.

    kafka-coop simulate run FILE [--out DIRECTORY] [--no-plot]

Prints a table, and writes beside each other NAME.json (everything) and NAME.png (the timeline:
one row a member, time across; of more members than `rows`, 200 unless the scenario says otherwise,
every n-th), NAME being the scenario file's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
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
        stem = _stem(args.out, args.file, plot=not args.no_plot)
        groups, results = _simulated(plan, args.file)
        print(table(results))  # noqa: T201
        _write(plan, groups, results, stem, plot=not args.no_plot)
    except ScenarioError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _stem(out: Path, file: Path, *, plot: bool) -> Path:
    """What is to be written, without its suffix. What can't be, is said before a run of minutes.

    Raises:
        ScenarioError: Nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ScenarioError(f"--out {out}: is no directory: name another") from None
    except OSError as error:
        raise ScenarioError(f"--out {out}: can't be made ({error}): name another") from None
    try:
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ScenarioError(f"--out {out}: can't be written ({error}): name another") from None
    stem = out / file.stem
    for written in (_beside(stem, ".json"), _beside(stem, ".png"))[: 1 + plot]:
        if written.exists() and not (written.is_file() and os.access(written, os.W_OK)):
            raise ScenarioError(f"--out {out}: {written} can't be written: name another")
    return stem


def _beside(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def _simulated(plan: Plan, file: Path) -> tuple[list[CoarseGroup], list[Result]]:
    try:
        return simulate(plan)
    except ScenarioError as error:
        raise ScenarioError(f"{file}: {error}") from None


def _write(
    plan: Plan, groups: list[CoarseGroup], results: list[Result], stem: Path, *, plot: bool
) -> None:
    written = _beside(stem, ".json")
    told = json.dumps(as_json(plan, groups, results))
    try:
        written.write_text(told, encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{written}: can't be written ({error}): name another --out") from None
    print(f"wrote {written}")  # noqa: T201
    if not plot:
        return
    picture = _beside(stem, ".png")
    try:
        draw(plan, groups, picture)
    except PlottingUnavailableError as error:
        print(error, file=sys.stderr)  # noqa: T201
    except OSError as error:
        raise ScenarioError(f"{picture}: can't be written ({error}): name another --out") from None
    else:
        print(f"wrote {picture}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
