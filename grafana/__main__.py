"""Writes the dashboards' JSON; with ``--check`` says whether it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.dashboards import DASHBOARDS

FOLDER = Path(__file__).parent / "dashboards"


def generated() -> dict[Path, str]:
    """Each file and what it is to hold."""
    return {
        FOLDER / f"{name}.json": JSONEncoder(sort_keys=True, indent=2).encode(make().build()) + "\n"
        for name, make in DASHBOARDS.items()
    }


def main(arguments: Sequence[str]) -> int:
    """Writes, or checks. Returns the exit status: 1 where a file is out of date."""
    files = generated()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path} is out of date: python -m grafana")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path, text in files.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
