"""A pytest within a test: of the working directory's tests, with the plugins that are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def inner_run(*words: str) -> subprocess.CompletedProcess[str]:
    """How it ended, and what it printed. It loads no other plugin: they take seconds to load."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        text=True,
        timeout=120,
    )
