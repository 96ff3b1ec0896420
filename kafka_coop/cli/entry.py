"""The script `kafka-coop`: imports the rest, or says what to install."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Sequence
from typing import Final

from kafka_coop.cli.exits import Exit

_NEEDED: Final = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(  # noqa: T201  # there is nothing else to print with
            f"kafka-coop needs {' and '.join(missing)}: pip install 'kafka-coop[cli]'",
            file=sys.stderr,
        )
        return Exit.UNAVAILABLE
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where it has no … or →, say
    try:
        from kafka_coop.cli.app import run  # noqa: PLC0415  # needs what was looked for

        return run(arguments)
    except KeyboardInterrupt:  # as a rule amid the import, which takes half a second
        return Exit.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
