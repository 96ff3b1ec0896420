"""Every order of what can happen in a small group that one more member joins, to the end."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kafka_coop.assignors import withholding
from kafka_coop.membership import adopting
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.member import Member
from kafka_coop.membership.states import CELLS, State
from kafka_coop.membership.steps import GivingUp
from kafka_coop.simulation.coverage import Coverage
from kafka_coop.simulation.exhaustive import Explored, explore, main
from kafka_coop.simulation.invariants import InvariantViolated
from kafka_coop.simulation.small_group import DISTURBANCES, Small, beginning
from kafka_coop.types import Partitions

IN_A_ROUND = {
    (State.STABLE, ev.HeartbeatAnswered),
    (State.JOINING, ev.JoinAnswered),
    (State.LEADING, ev.AssignmentComputed),
    (State.SYNCING, ev.SyncAnswered),
    (State.ADOPTING, ev.StepDone),
    (State.STABLE, ev.StepDone),
}


def assert_complete(found: Explored) -> None:
    """Nothing was cut off, and every way led to a settled group."""
    assert not found.cut_off
    assert not found.settled
    assert found.ends
    assert found.coverage.cells >= IN_A_ROUND


@pytest.mark.parametrize(("members", "last"), [(2, 3), (3, 5)])
def test_exploring_alone_takes_the_newcomer_through_the_follow_up_round(
    members: int, last: int
) -> None:
    """One generation for each that was there, one with the newcomer, and the follow-up's."""
    found = explore(beginning(members, members, {}))
    assert_complete(found)
    assert list(found.ends) == [last]
    assert found.handed_over == sum(found.ends.values())
    assert found.moves > found.states, "some orders lead to the same state"
    assert found.slowest < 1.1, "a heartbeat, and then no more waiting"


@pytest.mark.parametrize("disturbance", ["close", "crash"])
def test_whoever_goes_meanwhile_the_others_settle(disturbance: str) -> None:
    found = explore(beginning(2, 2, {disturbance: 1}, at="joining"))
    assert_complete(found)
    assert len(found.ends) > 1, "with the newcomer, and without"
    assert 0 < found.handed_over < sum(found.ends.values())


def test_what_is_too_deep_is_let_settle_and_counted_apart() -> None:
    found = explore(beginning(2, 2, {"tick": 1}, at="joining"), 6, settle_every=5)
    assert not found.ends
    assert found.cut_off > found.settled > 0
    assert (State.STABLE, ev.StepDone) not in found.coverage.cells
    assert (State.STABLE, ev.StepDone) in found.settling.cells


def test_the_reduction_loses_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each move alone that commutes, or all orders of them: the same ends, in fewer states."""
    reduced = explore(beginning(2, 2, {}))
    monkeypatch.setattr(Small, "by_itself", lambda self: None)
    full = explore(beginning(2, 2, {}))
    assert reduced.states < full.states
    assert reduced.ends == full.ends
    assert reduced.coverage.edges == full.coverage.edges


def test_the_command_reports_what_exploring_has_not_visited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--at", "joining"]) == 0
    said = capsys.readouterr().out
    assert f" of {len(CELLS)} visited" in said
    assert "not in ADOPTING: AssignmentComputed, Close," in said
    assert "settled: 2 in generation 3\nthe newcomer owns in 2 of these" in said
    assert "all there are" in said


@pytest.mark.parametrize(
    ("option", "given", "least"),
    [
        ("--members", 0, 1),
        ("--members", -1, 1),
        ("--partitions", 0, 1),
        ("--depth", -1, 0),
        *((f"--{name}", -1, 0) for name in DISTURBANCES),
    ],
)
def test_the_command_refuses_what_is_no_group(
    option: str, given: int, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([option, str(given), *([] if option == "--depth" else ["--depth", "1"])])
    assert ended.value.code == 2
    assert f"{option} {given}: must be at least {least}" in capsys.readouterr().err


def test_an_exploration_changes_nothing_that_it_is_given() -> None:
    first = beginning(2, 2, {"close": 1})
    before = first.fingerprint()
    explore(first, 2)
    assert first.fingerprint() == before
    copy: Small = pickle.loads(pickle.dumps(first))
    assert copy.fingerprint() == before
    assert list(copy.moves()) == list(first.moves())


# --- faults of the machine, found by exploring alone -------------------------------------------


def violated() -> InvariantViolated:
    with pytest.raises(InvariantViolated) as caught:
        explore(beginning(2, 2, {}))
    return caught.value


def test_assigning_before_the_owner_has_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        withholding, "_transfers", lambda plan: np.zeros(plan.snapshot.size, np.bool_)
    )
    found = violated()
    assert found.invariant == "1"
    assert "may both deliver" in str(found)
    assert "m1 answer join" in str(found), "the moves that led there"


def test_forgetting_the_rejoin(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody goes ahead: who does begins the follow-up round in its place."""
    told, ahead = "need to revoke partitions and re-join", "a follow-up round is announced"
    forced = Member._force_rejoin

    def forgets(self: Member, reason: str, now: float) -> None:
        if reason not in (told, ahead):
            forced(self, reason, now)

    monkeypatch.setattr(Member, "_force_rejoin", forgets)
    found = violated()
    assert found.invariant == "3"
    assert "not settled after" in str(found)


def test_giving_up_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(partitions: Partitions, **_: bool) -> GivingUp:
        actions = (ef.CallRevoked(partitions=partitions), ef.Release(partitions=partitions))
        return GivingUp(actions=actions, revoked=partitions)

    monkeypatch.setattr(adopting, "revoke", without)
    found = violated()
    assert found.invariant == "2"
    assert "has not committed it" in str(found)


def test_a_machine_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(self: Member, event: ev.SyncAnswered, now: float) -> None:
        raise ValueError("seeded")

    first = beginning(2, 2, {})
    monkeypatch.setattr(Member, "_on_sync_answered", raises)
    with pytest.raises(InvariantViolated, match="seeded") as caught:
        explore(first)
    assert caught.value.invariant == "M"


def test_a_group_that_never_settles_is_noticed() -> None:
    small = beginning(2, 2, {})
    small.cluster.move_coordinator(None, 0.0)
    with pytest.raises(InvariantViolated, match="not settled"):
        small.settle(Coverage())
