"""A pause within the session that alone cost its member something makes a run unsound."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import trial_journals as journals

from kafka_coop.testing.trial.assess import assess
from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.outcome import DELETED, KILL, NANO, Injected, Plan, Result
from kafka_coop.testing.trial.pauses import PAUSE, alone, taken_by_pauses

SESSION = timedelta(seconds=6)

told = partial(journals.told, second=NANO)


def fault(at: float, until: float, name: str = PAUSE, member: str = "a") -> Injected:
    return Injected(
        at=round(at * NANO), until=round(until * NANO), name=name, what="", member=member
    )


def taken(lost_at: float, *faults: Injected, line: str = "L {} 0,3") -> list[str]:
    events = told("A 1 0,3", line.format(lost_at), "X 90")
    return taken_by_pauses(faults, {"a": events, "b": []}, SESSION)


def test_on_lost_from_a_pause_on_to_a_session_after_it_is_the_pauses() -> None:
    assert taken(22, fault(20, 23)) == ["a lost (0, 3) 2.0 s after its stop"]
    assert taken(28.9, fault(20, 23))
    assert not taken(29.1, fault(20, 23)), "nothing of it is heard so late"
    assert not taken(19, fault(20, 23))
    assert not taken(22, fault(20, 23, member="b")), "it was another's"
    assert not taken(22, fault(20, 23), line="V {} 0,3")
    assert not taken(22, fault(20, 23), line="L {}")


def test_another_fault_that_may_be_to_blame_is_an_excuse_and_others_pauses_are_none() -> None:
    pause = fault(20, 23)
    assert not taken(24, pause, fault(21, 22, "network: half-open", ""))
    assert not taken(24, pause, fault(10, 14.1, "network: half-open", ""))
    assert taken(24, pause, fault(10, 13.9, "network: half-open", ""))
    assert taken(24, pause, fault(24.1, 30, "network: half-open", "")), "it came later"
    assert taken(24, pause, fault(18, 21, member="b"))
    assert taken(24, pause, fault(18, 21, KILL, member="b"))
    assert not taken(24, pause, fault(18, 21, "broker killed", ""))
    assert not taken(24, pause, fault(16, 19.9)), "the same member, twice in a row"


def test_a_topic_that_stays_away_is_no_excuse() -> None:
    pause = fault(20, 23)
    assert taken(24, pause, fault(13.9, 30, DELETED, "b"))
    assert taken(24, pause, fault(14.1, 30, DELETED, "b"))


def test_pauses_that_nothing_could_excuse_are_counted() -> None:
    """A run in which all could be excused would prove nothing of them."""
    journals = {"a": told("A 1 0,3", "X 90"), "b": []}
    network = fault(40, 41, "network: half-open", "")
    faults = [fault(20, 23), fault(31, 33), fault(46, 48), fault(60, 61, KILL, "b"), network]
    assert alone(faults, journals, SESSION) == 2
    assert alone(faults[2:], journals, SESSION) == 0
    assert alone([fault(20, 23), fault(28, 30)], journals, SESSION) == 0, "twice in a row"


def test_a_run_in_which_a_pause_took_something_is_not_sound() -> None:
    plan = Plan(faults=1, lasting=SESSION, members=2, session=SESSION)
    sound = []
    for end in ("L 12 0", "V 12 0"):
        result = Result(plan=plan.to_dict(), faults=[fault(10, 11)], ends={0: 1})
        assess(result, {"a": told("A 1 0", "R 2 0 0", end, "X 13")})
        sound.append((len(result.taken_by_pauses), result.sound))
    assert sound == [(1, False), (0, True)]


def test_an_error_after_which_a_member_is_none_makes_a_run_unsound() -> None:
    """A producer's, whose transaction is over, leaves its member one; other clients have others."""
    fatal = "KafkaError{FATAL,code=_FENCED,val=-144}"

    def found(text: str, *others: str) -> tuple[int, bool]:
        plan = Plan(faults=0, lasting=SESSION, members=2, session=SESSION)
        result = Result(plan=plan.to_dict(), others=[*others])
        assess(result, {"a": [*told("A 1 0"), Event(kind="E", at=2, text=text)]})
        return len(result.fatal), result.sound

    assert found(fatal) == (1, False)
    assert found(f"0:5 to 0:9 are not copied: {fatal}") == (0, True)
    assert found(fatal, "a") == (0, True)
    assert found("KafkaError{code=_TIMED_OUT,val=-185}") == (0, True)
