"""What a watchdog says once its member's process has died, and for how long it tries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from watchdog_support import leaves

from kafka_coop.config import parse
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.watchdog import supervisor
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


def leave_for(member_id: str, servers: str, time: Time, **tls: str) -> list[str]:
    """Returns what it said."""
    config = parse({"bootstrap.servers": servers, "group.id": GROUP, **tls})
    ward = Ward(group_id=GROUP, member_id=member_id)
    said: list[str] = []
    asyncio.run(leave(ward, config.connection, say=said.append, clock=time.clock, sleep=time.sleep))
    return said


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    ],
)
def test_it_outlasts_a_failover_and_says_soon_that_it_may_take_a_while(
    embedded: EmbeddedKafka, error: ErrorCode
) -> None:
    time = Time()
    refusals = int(FAILOVER)
    embedded.fail("LeaveGroup", *[int(error)] * refusals)
    embedded.track_requests()
    said = leave_for("dead", embedded.bootstrap_servers, time)
    assert leaves(embedded) == refusals + 1, "the last one was answered"
    assert FAILOVER - 5 < sum(time.pauses) < FAILOVER
    assert len(said) == 1, "once"
    assert error.name.upper() in said[0]


def test_a_coordinator_that_only_moved_is_asked_again_soon_and_never_in_haste(
    embedded: EmbeddedKafka,
) -> None:
    time = Time()
    embedded.fail("LeaveGroup", *[int(ErrorCode.not_coordinator)] * 10)
    leave_for("dead", embedded.bootstrap_servers, time)
    assert time.pauses == [0.1, 0.2, 0.4, 0.8, *[1.0] * 6]


def test_what_is_over_soon_is_not_told(embedded: EmbeddedKafka) -> None:
    time = Time()
    embedded.fail("LeaveGroup", *[int(ErrorCode.not_coordinator)] * 4)
    assert not leave_for("dead", embedded.bootstrap_servers, time)
    assert len(time.pauses) == 4


def test_it_gives_up_when_a_session_would_be_over_and_has_said_so(embedded: EmbeddedKafka) -> None:
    time = Time()
    embedded.fail("LeaveGroup", *[int(ErrorCode.coordinator_load_in_progress)] * 200)
    (said,) = leave_for("dead", embedded.bootstrap_servers, time)
    assert 45 <= sum(time.pauses) <= 62
    assert "could not leave" in said
    assert "COORDINATOR_LOAD_IN_PROGRESS" in said


def test_a_member_that_the_group_does_not_know_is_no_reason_to_go_on(
    embedded: EmbeddedKafka,
) -> None:
    time = Time()
    embedded.fail("LeaveGroup", int(ErrorCode.unknown_member_id))
    assert not leave_for("dropped", embedded.bootstrap_servers, time)
    assert not time.pauses


def test_a_certificate_that_is_gone_is_told_by_its_key(tmp_path: Path) -> None:
    """Files are read when the member has died, long after it read them itself."""
    time = Time()
    gone = str(tmp_path / "ca.pem")
    tls = {"security.protocol": "ssl", "ssl.ca.location": gone}
    (said,) = leave_for("dead", "127.0.0.1:1", time, **tls)
    assert "could not leave" in said
    assert "ssl.ca.location" in said
    assert gone in said
    assert 45 <= sum(time.pauses) <= 62, "it may come back"


def test_a_key_whose_certificate_is_still_the_old_one_is_told(tmp_path: Path) -> None:
    old, new = (trustme.CA().issue_cert("client.example") for _ in range(2))
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in old.cert_chain_pems))
    key.write_bytes(new.private_key_pem.bytes())
    pair = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    (said,) = leave_for("dead", "127.0.0.1:1", Time(), **{"security.protocol": "ssl"}, **pair)
    assert "could not leave" in said
    assert "ssl.certificate.location" in said


@pytest.mark.parametrize("dies_after", [None, 100.0])
def test_a_process_that_outlives_its_member_is_not_watched_for_ever(
    monkeypatch: pytest.MonkeyPatch, dies_after: float | None
) -> None:
    """It has called `exec`: the group has dropped the member by then."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def parent() -> int:
        return 1 if dies_after is not None and now[0] >= dies_after else 4711

    monkeypatch.setattr("kafka_coop.watchdog.supervisor.time.sleep", sleep)
    monkeypatch.setattr("kafka_coop.watchdog.supervisor.time.monotonic", lambda: now[0])
    monkeypatch.setattr("kafka_coop.watchdog.supervisor.os.getppid", parent)
    assert supervisor._has_ended(4711, within=1800) is (dies_after is not None)
    assert now[0] == pytest.approx(dies_after or 1800, abs=supervisor._LONGEST_LOOK)
