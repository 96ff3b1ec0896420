"""Judges a finished run anew: from its journals and its result.

    python -m kafka_coop.testing.trial.judge_again --journals FOLDER [--result FILE] [--out FILE]

What results of earlier versions do not record is derived: from a fault's text whom it befell and
for how long; from the journals who was killed and how much was produced. Ends with status 1 as
`run.py` does.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kafka_coop.testing.trial.assess import assess
from kafka_coop.testing.trial.journal import Event, read_journal
from kafka_coop.testing.trial.outcome import KILL, NANO, RESULT, Injected, Result

_MEMBER: Final = re.compile(r"(m\d+) (?:killed|left|drained|stopped)")
_SECONDS: Final = re.compile(r" for ([\d.]+) s$")
_ROUNDED: Final = 0.1  # a text's seconds have one decimal
_DOWN: Final = {"broker restarted": 2.0, "broker killed": 5.0, "broker out of disk": 5.0}
_RENAMED: Final = {"leaders and coordinator moved": "preferred leaders elected, if not yet"}
"""It often moved nothing, and said so nowhere."""


def completed(values: Mapping[str, Any], journals: Mapping[str, Sequence[Event]]) -> Result:
    """A result, with what an earlier version did not record."""
    result = Result.from_dict(values)
    if "ends" not in values:
        result.faults = _derived(result.faults, journals)
        result.killed = _never_closed(result.faults, journals)
        result.ends = _ends(journals)
        missing = int(values["produced"]) - sum(result.ends.values())
        if missing and not result.plan["transactions"]:
            result.failed.append(f"{missing} records at the partitions' ends are in no journal")
    return result


def _derived(faults: Sequence[Injected], journals: Mapping[str, Sequence[Event]]) -> list[Injected]:
    last = max((events[-1].at for events in journals.values() if events), default=0)
    found = []
    for fault in faults:
        member, seconds = _MEMBER.search(fault.what), _SECONDS.search(fault.what)
        lasting = float(seconds[1]) - _ROUNDED if seconds else _DOWN.get(fault.name, 0.0)
        until = fault.at + int(lasting * NANO)
        if fault.name in _DOWN:
            # Nothing else was done until the broker served again.
            until = min((f.at for f in faults if f.at >= until), default=last)
        found.append(
            replace(
                fault,
                name=_RENAMED.get(fault.name, fault.name),
                member=member[1] if member else "",
                lasting=lasting,
                until=until,
            )
        )
    return found


def _never_closed(
    faults: Sequence[Injected], journals: Mapping[str, Sequence[Event]]
) -> dict[str, int]:
    """Who wrote no last line was killed, or ended by itself."""
    told = {fault.member: fault.at for fault in faults if fault.name == KILL}
    return {
        name: max(told.get(name, 0), events[-1].at if events else 0)
        for name, events in journals.items()
        if not events or events[-1].kind != "X"
    }


def _ends(journals: Mapping[str, Sequence[Event]]) -> dict[int, int]:
    """Behind the last record that anyone processed."""
    ends: dict[int, int] = {}
    for events in journals.values():
        for event in events:
            if event.kind == "R":
                (partition,) = event.partitions
                ends[partition] = max(ends.get(partition, 0), event.offset + 1)
    return ends


def _read(file: Path) -> Mapping[str, Any]:
    """Raises OSError and ValueError: that is no run's result."""
    values = json.loads(file.read_text())
    needed = {"plan", "faults", "ends"}, {"plan", "faults", "produced"}  # the latter: of old
    if not isinstance(values, dict) or not any(keys <= values.keys() for keys in needed):
        raise ValueError("it is no run's result")
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Judges. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="kafka_coop.testing.trial.judge_again")
    parser.add_argument("--journals", type=Path, required=True, help="the run's journals")
    parser.add_argument("--result", type=Path, help=f"what the run wrote (default: {RESULT} there)")
    parser.add_argument("--out", type=Path, help="write the new result, as JSON")
    given = parser.parse_args(arguments)
    journals = {path.stem: read_journal(path) for path in given.journals.glob("*.journal")}
    if not journals:
        parser.error(f"no journals in {given.journals}")
    file = given.result or given.journals / RESULT
    try:
        values = _read(file)
    except (OSError, ValueError) as error:
        parser.error(f"--result {file}: {error}: give the file that the run wrote")
    result = completed(values, journals)
    assess(result, journals)
    return result.hand_in(given.out)


if __name__ == "__main__":
    sys.exit(main())
