"""A coordinator that acknowledges nothing is told of, once."""

from __future__ import annotations

import logging

import pytest

from kafka_coop.backend.silence import Silence
from kafka_coop.errors import ConnectionFailedError
from kafka_coop.protocol.messages import Node

THERE = Node(node_id=1, host="broker", port=9092)
NEVER = float("-inf")


class Watched:
    """Looks at a lease, as the membership does after each event."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._silence = Silence("g", logging.getLogger("kafka_coop"))
        self._caplog = caplog
        caplog.set_level(logging.INFO, "kafka_coop")

    def look(
        self, now: float, lease_until: float, *, owns: bool = True, coordinator: Node | None = THERE
    ) -> list[str]:
        """The levels of what it says."""
        self._caplog.clear()
        self._silence.look(now, lease_until=lease_until, owns=owns, coordinator=coordinator)
        return [record.levelname for record in self._caplog.records]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(caplog)


def test_an_outage_is_told_once_and_its_end(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    assert watched.look(5, 10) == []
    assert watched.look(10, 10) == ["WARNING"]
    assert "group g: no heartbeat was acknowledged in time (broker:9092)" in caplog.text
    assert watched.look(11, 10) == []
    assert watched.look(12, 20) == ["INFO"]
    assert watched.look(13, 20) == []
    assert watched.look(20, 20, coordinator=None) == ["WARNING"]
    assert "its coordinator is looked for" in caplog.text


def test_a_coordinator_that_is_out_of_reach_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may be advertised at an address that is another network's; poll raises nothing of it."""
    caplog.set_level(logging.INFO, "kafka_coop")
    silence = Silence("g", logging.getLogger("kafka_coop"))
    failed = ConnectionFailedError("10.0.0.1:9092: refused")
    for outcome, told in [
        *((failed, 0), (failed, 0), (None, 0)),
        *((failed, 0), (failed, 0), (failed, 1), (failed, 0), (failed, 0), (None, 1), (None, 0)),
    ]:
        caplog.clear()
        silence.joined(outcome, THERE)
        assert len(caplog.records) == told
        if told and outcome is not None:
            assert "can't be joined at its coordinator (broker:9092)" in caplog.text
            assert "10.0.0.1:9092: refused" in caplog.text


def test_who_owns_nothing_misses_nothing(watched: Watched) -> None:
    assert watched.look(10, 10, owns=False) == []


def test_who_was_put_out_of_the_group_hears_of_that(watched: Watched) -> None:
    assert watched.look(10, NEVER) == []
    assert watched.look(10, 10) == ["WARNING"]
    assert watched.look(11, NEVER) == []
    assert watched.look(12, 20) == []
