"""What a watchdog says once its member's process has died, and for how long it tries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from kafka_coop.config import parse
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.watchdog.supervisor import leave
from kafka_coop.watchdog.ward import Ward

GROUP = "group"
FAILOVER = 40.0
"""Seconds: until the controller misses a broker, and its successor has loaded the group."""


@dataclass
class Time:
    """Passes while it is slept, and not else."""

    now: float = 1000.0
    pauses: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def leave_for(member_id: str, kafka: EmbeddedKafka, time: Time) -> None:
    config = parse({"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP})
    ward = Ward(group_id=GROUP, member_id=member_id)
    asyncio.run(leave(ward, config.connection, clock=time.clock, sleep=time.sleep))


def leaves(kafka: EmbeddedKafka) -> int:
    return sum(1 for request in kafka.requests() if request.api == "LeaveGroup")


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    ],
)
def test_it_outlasts_a_failover(
    embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str], error: ErrorCode
) -> None:
    time = Time()
    refusals = int(FAILOVER)
    embedded.fail("LeaveGroup", *[int(error)] * refusals)
    embedded.track_requests()
    leave_for("dead", embedded, time)
    assert leaves(embedded) == refusals + 1, "the last one was answered"
    assert FAILOVER - 5 < sum(time.pauses) < FAILOVER
    assert not capsys.readouterr().err


def test_a_coordinator_that_only_moved_is_asked_again_soon_and_never_in_haste(
    embedded: EmbeddedKafka,
) -> None:
    time = Time()
    embedded.fail("LeaveGroup", *[int(ErrorCode.not_coordinator)] * 10)
    leave_for("dead", embedded, time)
    assert time.pauses == [0.1, 0.2, 0.4, 0.8, *[1.0] * 6]


def test_it_gives_up_when_a_session_would_be_over_and_says_so(
    embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    time = Time()
    embedded.fail("LeaveGroup", *[int(ErrorCode.coordinator_load_in_progress)] * 200)
    leave_for("dead", embedded, time)
    assert 45 <= sum(time.pauses) <= 62
    said = capsys.readouterr().err
    assert "could not leave" in said
    assert "COORDINATOR_LOAD_IN_PROGRESS" in said


def test_a_member_that_the_group_does_not_know_is_no_reason_to_go_on(
    embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    time = Time()
    embedded.fail("LeaveGroup", int(ErrorCode.unknown_member_id))
    leave_for("dropped", embedded, time)
    assert not time.pauses
    assert not capsys.readouterr().err
