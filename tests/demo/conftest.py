"""The flights, read once."""

from __future__ import annotations

import pytest

from kafka_coop.demo import flights


@pytest.fixture(scope="session")
def rows() -> list[bytes]:
    return flights.load()
