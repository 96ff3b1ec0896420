"""Which code a result was taken from, beside which brokers, and when."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
_CODE: Final = "kafka_coop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a result comes from.

    Attributes:
        commit: Git's, of the code; empty: it lies in no clone.
        clean: The code is that commit's, with no file changed, added or away.
        kafka: The brokers' release.
        date: When the run began, UTC, as ISO 8601 has it.
    """

    commit: str
    clean: bool
    kafka: str
    date: str


def origin_now(kafka: str, root: Path = _ROOT) -> Origin:
    """Of a run that begins now. What does not lie in `kafka_coop` changes no result.

    Args:
        kafka: The brokers' release.
        root: The folder that `kafka_coop` lies in.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    # Code that is installed may lie within a clone of something else.
    at_home = bool(top) and Path(top).resolve() == root.resolve()
    commit = _git(root, "rev-parse", "HEAD") if at_home else ""
    return Origin(
        commit=commit,
        clean=bool(commit) and not _git(root, "status", "--porcelain", "--", _CODE),
        kafka=kafka,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _git(root: Path, *arguments: str) -> str:
    """What it says; nothing where there is no git, or it fails."""
    try:
        done = subprocess.run(  # noqa: S603  # arguments of ours
            ["git", "-C", str(root), *arguments],  # noqa: S607  # whichever is in the path
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
