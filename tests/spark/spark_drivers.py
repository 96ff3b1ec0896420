"""Scripts that are drivers of their own, each in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spark_priority import first_in_line

_HERE = Path(__file__).parent


def environment(**more: str) -> dict[str, str]:
    """Of every process of Spark's that a test starts."""
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **own, **more}


def command(script: str, *arguments: str) -> dict[str, Any]:
    """For `subprocess`: a script of this folder, which finds the package."""
    return {
        "args": [sys.executable, str(_HERE / script), *arguments],
        "env": environment(PYTHONPATH=str(_HERE.parents[1])),
    }


def run(script: str, *arguments: str) -> tuple[Any, str]:
    """What it prints last, which is JSON; and all that it says on standard error."""
    with first_in_line():
        done = subprocess.run(
            **command(script, *arguments),
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr
