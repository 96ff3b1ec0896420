"""Waits that no fault explains are found: journals written by hand, times in seconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import trial_journals as journals

from kafka_coop.testing.trial.assess import assess, stops
from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.liveness import (
    MACHINE,
    RECONNECT,
    blame,
    ownerless,
    silences,
    too_long,
)
from kafka_coop.testing.trial.member import LONGEST_TRANSACTION
from kafka_coop.testing.trial.outcome import (
    COORDINATOR,
    DELETED,
    KILL,
    MOVED,
    NANO,
    Injected,
    Plan,
    Result,
)
from kafka_coop.testing.trial.verdict import tenures

SESSION = timedelta(seconds=6)
CALM = (SESSION + MACHINE).total_seconds()
QUIET = CALM + RECONNECT.total_seconds()


told = partial(journals.told, second=NANO)
"""Times in seconds."""


def fault(at: float, until: float = 0.0, name: str = "f", what: str = "") -> Injected:
    return Injected(
        at=round(at * NANO),
        until=round((until or at) * NANO),
        name=name,
        what=what,
        lasting=(until or at) - at,
        member="a",
    )


def gaps(
    *journals: list[Event], born: dict[int, int] | None = None
) -> list[tuple[int, float, float]]:
    held = [t for n, j in enumerate(journals) for t in tenures(str(n), j, {})]
    return [(w.partition, w.start / NANO, w.end / NANO) for w in ownerless(held, born or {})]


def test_a_partition_is_without_an_owner_between_two_and_from_its_birth_on() -> None:
    first = told("A 1 0,1", "V 3 0", "V 9 1", "X 9")
    second = told("A 5 0", "A 8 1", "A 12 2", "V 15 0,1,2", "X 15")
    assert gaps(first, second) == [(0, 3, 5)]
    assert gaps(first, second, born={2: 10 * NANO}) == [(0, 3, 5), (2, 10, 12)]


def test_an_owner_within_anothers_tenure_ends_nothing() -> None:
    """Who was evicted hears of it late, and the heir may be gone before."""
    assert gaps(told("A 1 0", "L 9 0"), told("A 3 0", "V 5 0"), told("A 9.5 0", "V 10 0")) == [
        (0, 9, 9.5)
    ]


def test_a_silence_lies_between_two_records_whoever_processed_them() -> None:
    found = silences({"a": told("R 1 0 0", "R 4 0 2"), "b": told("R 2 0 1", "R 3 1 0")})
    assert [(w.partition, w.start // NANO, w.end // NANO) for w in found] == [(0, 1, 2), (0, 2, 4)]
    born = silences({"a": told("R 5 3 0")}, {3: 2 * NANO})
    assert [(w.partition, w.lasting // NANO) for w in born] == [(3, 3)]


def excessive(seconds: float, *faults: Injected) -> list[str]:
    waits = silences({"a": told("R 100 0 0", f"R {100 + seconds} 0 1")})
    return too_long(waits, faults, SESSION, MACHINE)


@pytest.mark.parametrize("name", [DELETED])
def test_what_must_change_nothing_explains_no_wait_however_long_it_lasts(name: str) -> None:
    assert not excessive(CALM + 7, fault(101, 109))
    assert excessive(CALM + 0.1, fault(101, 109, name))
    assert not excessive(CALM - 0.1, fault(101, 109, name))


def test_a_wait_is_too_long_beyond_a_session_a_slack_and_the_longest_fault_in_it() -> None:
    assert not excessive(CALM - 0.1)
    assert excessive(CALM + 0.1) == [
        f"partition 0: {CALM + 0.1:.1f} s, allowed {CALM:.1f}, from 100.0 s on"
    ]
    under_way = fault(98, 102)
    assert not excessive(CALM + 3.9, under_way, fault(104, 105))
    assert excessive(CALM + 4.1, under_way, fault(104, 105))
    assert excessive(CALM + 3.9, fault(90, 99), fault(180, 190)), "neither lies in it"


def test_who_is_killed_is_missed_after_a_session() -> None:
    assert not excessive(CALM + 5.9, fault(101, name=KILL))
    assert excessive(CALM + 6.1, fault(101, name=KILL))
    assert not excessive(CALM + 5.9, fault(95, name=KILL)), "it still is one"
    assert excessive(CALM + 5.9, fault(101, name="member left"))


def test_each_further_member_killed_may_have_been_the_heir_and_costs_a_session() -> None:
    kills = [fault(at, name=KILL) for at in (99, 101, 110)]
    assert not excessive(CALM + 17.9, *kills)
    assert excessive(CALM + 18.1, *kills)
    assert not excessive(CALM + 14.9, *kills[:2], fault(103, 112))
    assert excessive(CALM + 15.1, *kills[:2], fault(103, 112))
    assert excessive(CALM + 6.1, kills[0], fault(80, name=KILL)), "missed long before"


@pytest.mark.parametrize(("name", "roles"), [(MOVED, None), ("broker killed", (COORDINATOR,))])
def test_who_was_killed_has_a_session_anew_with_each_coordinator(
    name: str, roles: tuple[str, ...] | None
) -> None:
    """It loads the group with all members, and who lives can't be told from who does not."""
    kill, gone = fault(101, name=KILL), replace(fault(104, 104, name), roles=roles)
    assert not excessive(CALM + 11.9, kill, gone)
    assert excessive(CALM + 12.1, kill, gone)
    assert excessive(CALM + 6.1, kill, replace(gone, name="broker killed", roles=("controller",)))
    assert excessive(CALM + 0.1, gone), "whoever lives goes on at the next one"


def test_a_wait_is_charged_to_the_first_fault_in_it_or_the_last_before() -> None:
    journals = {
        "a": told("R 1 0 0", "R 2 0 1", "R 30 0 4"),
        "b": told("R 9 0 2", "R 20 0 3", "R 8 1 0", "R 28 1 1"),
    }
    waits = silences(journals)
    assert blame([fault(5), fault(10), fault(29)], waits) == [7, 20, 10]
    assert blame([fault(5), fault(21), fault(22)], waits) == [11, 20, None]
    assert blame([fault(40), fault(50)], waits) == [None, None]
    assert blame([fault(0.5), fault(50)], waits)[1] is None


def assessed(journals: dict[str, list[Event]], *faults: Injected, produced: int) -> Result:
    plan = Plan(faults=1, lasting=SESSION, members=2, session=SESSION)
    result = Result(plan=plan.to_dict(), faults=[*faults], ends={0: produced})
    assess(result, journals)
    return result


@pytest.mark.parametrize(("seconds", "sound"), [(CALM - 1, True), (CALM + 1, False)])
def test_a_run_with_a_partition_that_nobody_took_is_not_sound(seconds: float, sound: bool) -> None:
    journals = {
        "a": told("A 1 0", "R 2 0 0", "V 3 0", "X 3"),
        "b": told(f"A {3 + seconds} 0", f"R {3 + seconds} 0 1", f"V {4 + seconds} 0"),
    }
    result = assessed(journals, fault(3), produced=2)
    assert result.sound is sound, result
    assert len(result.ownerless_too_long) == (not sound)
    assert result.longest_ownerless == seconds
    assert result.faults[0].ownerless == seconds


@pytest.mark.parametrize(("seconds", "sound"), [(QUIET - 1, True), (QUIET + 1, False)])
def test_a_run_with_a_partition_whose_owner_is_silent_is_not_sound(
    seconds: float, sound: bool
) -> None:
    last = 2 + seconds
    journals = {"a": told("A 1 0", "R 2 0 0", f"R {last} 0 1", f"V {last + 1} 0", f"X {last + 1}")}
    result = assessed(journals, fault(3), produced=2)
    assert result.sound is sound, result
    assert len(result.silent_too_long) == (not sound)
    assert (result.longest_ownerless, result.faults[0].silent) == (0, seconds)


def test_the_wait_for_who_was_killed_is_charged_to_the_kill() -> None:
    journals = {
        "a": told("A 1 0", "R 2 0 0"),
        "b": told("A 9 0", "R 9 0 1", "V 10 0", "X 10"),
    }
    plan = Plan(faults=2, lasting=SESSION, members=2, session=SESSION)
    faults = [fault(3, name=KILL), fault(8)]
    killed = {"a": 3 * NANO + 1000}
    result = Result(plan=plan.to_dict(), faults=faults, ends={0: 2}, killed=killed)
    assess(result, journals)
    assert [f.ownerless for f in result.faults] == [6, None]
    assert result.sound


def test_with_transactions_the_output_says_what_is_late_or_lost() -> None:
    plan = Plan(faults=0, lasting=SESSION, members=2, session=SESSION, transactions=True)
    late = told("A 1 0", "R 2 0 0", "R 6 0 1", "L 7 0")
    result = Result(plan=plan.to_dict(), ends={0: 3}, committed={0: 3})
    assess(result, {"a": late, "b": told("A 4 0", "R 5 0 1", "V 8 0", "X 8")})
    assert result.sound, result


def test_with_transactions_a_member_may_be_busy_for_longer() -> None:
    busy = LONGEST_TRANSACTION.total_seconds()
    plan = Plan(faults=0, lasting=SESSION, members=1, session=SESSION, transactions=True)
    sound = []
    for seconds in (QUIET + busy - 1, QUIET + busy + 1):
        journals = {"a": told("A 1 0", "R 2 0 0", f"R {2 + seconds} 0 1")}
        result = Result(plan=plan.to_dict(), ends={0: 2})
        assess(result, journals)
        sound.append(result.sound)
    assert sound == [True, False]


def test_only_stops_for_about_a_session_or_longer_forgive_a_late_record() -> None:
    within, edge = "member paused within its session", "member paused at the session's edge"
    faults = [fault(1, 2, within), fault(3, 9.5, edge), fault(5, name=KILL)]
    assert [(s.member, s.until / NANO) for s in stops(faults)] == [("a", 9.5)]
    journals = {
        "a": told("A 1 0", "R 2 0 0", "R 10 0 1", "L 11 0", "X 12"),
        "b": told("A 9 0", "R 9 0 1", "V 12 0", "X 12"),
    }
    forgiven = assessed(journals, *faults, produced=2)
    assert (forgiven.late, forgiven.in_hand, forgiven.sound) == (0, 1, True)
    guilty = assessed(journals, fault(3, 5, within), produced=2)
    assert (guilty.late, guilty.in_hand, guilty.sound) == (1, 0, False)


def test_offsets_that_are_not_the_end_make_a_run_unsound() -> None:
    journals = {"a": told("A 1 0", "R 2 0 0", "R 3 0 1", "V 4 0", "X 4")}
    found = []
    for committed in (None, {0: 1}, {0: 2}):
        result = assessed(journals, fault(3), produced=2)
        result.committed = committed
        assess(result, journals)
        found.append((result.miscommitted, result.sound))
    assert found == [([], True), (["partition 0: 1 committed of 2"], False), ([], True)]
