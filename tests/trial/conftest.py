"""What trials need of the machine beside brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_coop.testing.trial.wall_clock import find_library


@pytest.fixture(scope="session")
def faketime() -> Path:
    """Gives processes wall clocks of their own."""
    if (library := find_library()) is None:
        remedy = "libfaketime is not installed: apt-get install libfaketime"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)
    return library
