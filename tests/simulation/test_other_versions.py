"""Members of several versions of ours in one group: they lead each other, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from other_versions import (
    AHEAD,
    ASSIGNMENT,
    BUSY,
    DRAINING,
    FOLLOW_UP,
    INTERVAL,
    LEADS,
    REJOIN,
    SUBSCRIPTION,
    Version,
    before,
    newer,
    read,
    write,
)

from kafka_coop.leader import lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.check import run
from kafka_coop.simulation.dialects import DIALECTS
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import GROUP, MemberPlan, Scenario, Timing, World
from kafka_coop.types import Generation, Partitions, Subscription

VERSIONS = [before, newer]

JOINED_BEFORE = bytes.fromhex(
    "00000005"  # the generation, as Java's cooperative-sticky has it
    "01" "00000008" "0000000000000003"
    "02" "00000000"
    "00" "01" "01" "00000012" "12d0151b" "ab6b636fbc6f70ab"
)  # fmt: skip
SENT_BEFORE = bytes.fromhex(
    "00000000ffffffff"
    "10" "00000000"
    "11" "00000008" "00000000000186a0"
    "02" "02" "01" "00000012" "643c35bb" "ab6b636fbc6f70ab"
)  # fmt: skip
"""Both written by a version before that one, which did not yet tell who leads."""


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Version:
    """A version that members of a scenario may be of."""
    make: Callable[[], Version] = request.param
    made = make()
    monkeypatch.setitem(DIALECTS, made.name, made)
    return made


def scenario(*clients: str) -> Scenario:
    """The first one leads; later one starts, one closes and comes back, one crashes."""
    names = [f"m{i}" for i in range(len(clients))]
    incidents: list[tuple[float, ft.Fault]] = [
        *((0.05 * i, ft.Start(member=name)) for i, name in enumerate(names[:-1])),
        (3.0, ft.Start(member=names[-1])),
        (5.0, ft.Close(member=names[1])),
        (6.0, ft.Start(member=names[1])),
        (8.0, ft.Crash(member=names[2])),
    ]
    return Scenario(
        seed=1,
        topics={"alpha": 6},
        members={
            name: MemberPlan(topics=("alpha",), client=client, habits=UserHabits(poll_interval=0.2))
            for name, client in zip(names, clients, strict=True)
        },
        timing=Timing(session=2.0, rebalance=3.0),
        incidents=tuple(ft.Incident(at=at, fault=fault) for at, fault in incidents),
        quiet_at=9.0,
    )


@pytest.mark.parametrize("leads", [True, False])
def test_a_group_of_two_versions_loses_nothing(version: Version, leads: bool) -> None:
    """The world's invariants hold: one owner, revoked first, all owned, kept ones flow."""
    name = version.name
    world = World(scenario(*((name, "", name, "") if leads else ("", name, "", name))))
    world.run_until(9.0)
    settle(world)
    assert world.watcher.deliveries
    view = world.cluster.coordinator.group(GROUP)
    assert view is not None
    assert view.leader == world.processes["m0"].member.member_id
    assert bool(version.sent) == leads
    plans = version.sent if leads else version.heard
    assert any(FOLLOW_UP in fields for fields in plans), "a second round was called for"
    assert all(INTERVAL in fields for fields in plans)
    if leads:
        assert any(LEADS in fields for fields in plans)
    assert any(AHEAD in fields for fields in plans) == (not leads or AHEAD in version.knows)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_random_schedules_keep_every_invariant(version: Version, seed: int) -> None:
    drawn = random_scenario(seed)
    members = {
        name: replace(plan, client=("", version.name)[(i + seed) % 2])
        for i, (name, plan) in enumerate(drawn.members.items())
    }
    verdict = run(replace(drawn, members=members))
    assert not verdict.violated, verdict.text


# --- the leader, and what the bytes mean -----------------------------------------------------


def test_what_the_version_before_wrote_is_read() -> None:
    assert split_marks(JOINED_BEFORE) == (
        b"\0\0\0\5",
        SubscriptionMarks(rejoin=3, draining=True),
    )
    assert split_marks(SENT_BEFORE) == (
        b"",
        AssignmentMarks(follow_up=True, heartbeat_interval=timedelta(milliseconds=100)),
    )


def test_the_version_before_reads_what_we_write() -> None:
    joined = append_marks(b"\0\0\0\5", SubscriptionMarks(rejoin=3, draining=True, busy=True))
    before_us, known = read(JOINED_BEFORE)[:2], read(JOINED_BEFORE)[2]
    user_data, kind, fields = read(joined)
    assert (user_data, kind) == before_us
    assert fields == {**known, BUSY: b""}
    interval = timedelta(milliseconds=100)
    sent = append_marks(
        b"",
        AssignmentMarks(
            follow_up=True, ahead=True, heartbeat_interval=interval, leads=Generation(7)
        ),
    )
    user_data, kind, fields = read(sent)
    assert (user_data, kind) == (b"", ASSIGNMENT)
    known = read(SENT_BEFORE)[2]
    assert {t: fields[t] for t in known} == known
    assert fields.keys() - known.keys() == {AHEAD, LEADS}


@pytest.mark.parametrize("make", VERSIONS)
def test_a_member_of_another_version_that_drains_is_relieved(make: Callable[[], Version]) -> None:
    fields = {REJOIN: (1).to_bytes(8, "big"), DRAINING: b""}
    said = make().say(write(b"\0\0\0\1", SUBSCRIPTION, fields), SUBSCRIPTION)
    owned = Partitions({"t": [0, 1, 2, 3]})
    drains = Subscription(topics=("t",), owned=owned, generation=Generation(1), user_data=said)
    stays = Subscription(topics=("t",), user_data=append_marks(None, SubscriptionMarks()))
    outcome = lead(
        "cooperative-sticky",
        {"t": 4},
        {"a": encode_subscription(drains), "b": encode_subscription(stays)},
    )
    assert outcome.withheld == owned, "taken from the one, and the other waits (KIP-429)"
    _, _, told = read(decode_assignment(outcome.assignments["a"]).user_data)
    assert FOLLOW_UP in told
