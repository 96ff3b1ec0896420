"""The judge finds what it must: journals written by hand, each with one crime or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trial_journals import told

from kafka_coop.testing.trial.journal import Event, Journal, read_journal
from kafka_coop.testing.trial.outcome import NANO as SECOND
from kafka_coop.testing.trial.verdict import Stop, Verdict, judge, miscommitted, prefixes


def verdict(*journals: list[Event], produced: int = 0, **killed: int) -> Verdict:
    named = dict(zip("abc", journals, strict=False))
    return judge(named, {0: produced}, killed=killed)


def test_a_clean_handover_is_sound() -> None:
    found = verdict(
        told("A 1 0", "R 2 0 0", "V 3 0"), told("A 4 0", "R 5 0 1", "V 6 0", "X 7"), produced=2
    )
    assert found.sound, str(found)
    assert (found.handovers, found.repeated, found.processed) == (1, 0, 2)


def test_two_owners_are_seen() -> None:
    found = verdict(told("A 1 0", "V 5 0"), told("A 4 0", "V 6 0"))
    assert len(found.overlaps) == 1
    assert "a had it" in str(found)
    assert not found.sound


@pytest.mark.parametrize("end", ["L 9 0", ""], ids=["lost", "killed"])
def test_who_was_evicted_does_not_know_yet(end: str) -> None:
    events = told("A 1 0", "R 2 0 0", *filter(None, [end]))
    heir = told("A 4 0", "R 5 0 0", "V 6 0")
    killed = {} if end else {"a": 7}
    found = judge({"a": events, "b": heir}, {0: 1}, killed=killed)
    assert found.sound, str(found)
    assert found.repeated == 1


def test_the_evicted_one_must_not_take_what_another_has_and_keeps() -> None:
    found = verdict(told("A 4 0", "L 9 0"), told("A 1 0", "V 8 0"))
    assert [o.second.member for o in found.overlaps] == ["a"]


@pytest.mark.parametrize("end", ["L 9 0", "W 9 0\nL 30 0", ""], ids=["lost", "slow", "killed"])
def test_who_was_evicted_does_not_know_yet_for_so_long_at_most(end: str) -> None:
    """What came before, its own and healthy, is no less an ownership for how it ended."""

    def overlaps(heirs: float, *stops: Stop, unheard: int = 3) -> int:
        events = told("A 1 0", *end.splitlines(), second=SECOND)
        heir = told(f"A {heirs} 0", "V 60 0", second=SECOND)
        killed = {} if end else {"a": 9 * SECOND}
        bound = {"a": unheard * SECOND}
        journals = {"a": events, "b": heir}
        return len(judge(journals, {}, killed=killed, stops=stops, unheard=bound).overlaps)

    def stop(since: float, over: float, member: str = "a") -> Stop:
        until = round(over * SECOND)
        return Stop(member=member, since=round(since * SECOND), until=until, over=until)

    assert [overlaps(5.9), overlaps(6.1)] == [1, 0]
    assert overlaps(5.9, unheard=4) == 0
    stopped = stop(7, 8)  # a second more, in which it could not hear
    assert [overlaps(4.9, stopped), overlaps(5.1, stopped)] == [1, 0]
    assert overlaps(5.9, stop(4, 5.9)) == 1, "it had the time to hear since"
    assert overlaps(5.9, stop(7, 8, "b")) == 1
    assert overlaps(5.9, stop(9.1, 10)) == 1, "it came later"


def _in_generation(number: int, events: list[Event]) -> list[Event]:
    return [replace(event, generation=number) for event in events]


def test_who_was_stopped_before_it_heard_of_its_assignment_hears_of_both_ends() -> None:
    """Of a later generation's owner it took nothing, unless it has processed something."""
    owner = _in_generation(26, told("A 1 0", "V 8 0"))
    assert not verdict(_in_generation(25, told("A 4 0", "L 5 0")), owner).overlaps
    assert verdict(_in_generation(25, told("A 4 0", "R 4 0 0", "L 5 0")), owner).overlaps
    assert verdict(_in_generation(27, told("A 4 0", "L 5 0")), owner).overlaps


def test_a_revocation_that_a_stop_held_up_is_no_ownership_and_the_next_one_is() -> None:
    heir = told("A 4 0,1", "V 10 0,1", second=SECOND)

    def overlaps(*lines: str, of: str = "a") -> int:
        journals = {"a": told("A 1 0,1", *lines, second=SECOND), "b": heir}
        stopped = Stop(member=of, since=3 * SECOND, until=5 * SECOND, over=6 * SECOND)
        return len(judge(journals, {}, stops=[stopped]).overlaps)

    assert overlaps("V 7 0", "L 8 1") == 0
    assert overlaps("V 7 0", "V 8 1") == 1
    assert overlaps("L 7 1", "V 8 0") == 1, "it had heard that it was evicted"
    assert overlaps("V 4.5 0", "L 8 1") == 1, "it was not stopped yet"
    assert overlaps("V 7.5 0", "L 8 1") == 1, "it had time to hear"
    assert overlaps("V 7 0", "L 8 1", of="b") == 1


def test_a_zombies_record_is_late() -> None:
    found = verdict(
        told("A 1 0", "R 2 0 0", "R 6 0 1", "L 9 0"), told("A 4 0", "R 5 0 1", "V 7 0"), produced=2
    )
    assert [(who, e.at) for who, e in found.late] == [("a", 6)]
    assert not found.sound


def test_a_record_is_late_from_the_heirs_assignment_on() -> None:
    """Its first record may be long in coming."""
    zombie, heir = told("A 1 0", "R 5 0 0", "R 6 0 1", "L 9 0"), told("A 5 0", "R 7 0 0", "V 10 0")
    found = judge({"a": zombie, "b": heir}, {0: 2})
    assert [(who, e.at) for who, e in found.late] == [("a", 6)]
    of_before = _in_generation(3, told("A 5 0", "L 5 0"))
    owner = _in_generation(4, told("A 1 0", "R 6 0 0", "V 9 0"))
    assert judge({"a": owner, "b": of_before}, {0: 1}).sound, "it heard of it late"


ZOMBIE = ("A 1 0", "R 2 0 0", "R 6 0 1", "R 8 0 2", "L 9 0")
HEIR = ("A 4 0", "R 5 0 1", "V 10 0")


def stop(member: str, until: int) -> Stop:
    return Stop(member=member, since=0, until=until, over=until)


def late(*stops: Stop) -> tuple[list[int], list[int]]:
    found = judge({"a": told(*ZOMBIE), "b": told(*HEIR)}, {0: 3}, stops=stops)
    assert found.sound == (not found.late)
    return [e.at for _, e in found.late], [e.at for _, e in found.in_hand]


def test_what_a_stopped_member_had_in_hand_is_forgiven_once_for_each_stop() -> None:
    assert late() == ([6, 8], [])
    assert late(stop("a", 6)) == ([8], [6])
    assert late(stop("a", 3)) == ([8], [6])
    assert late(stop("a", 3), stop("a", 7)) == ([], [6, 8])


def test_another_members_stop_or_one_that_came_later_forgives_nothing() -> None:
    assert late(stop("b", 3)) == ([6, 8], [])
    assert late(stop("a", 9)) == ([6, 8], [])
    assert late(stop("c", 3)) == ([6, 8], [])


def test_what_comes_later_than_at_once_after_a_stop_nobody_had_in_hand() -> None:
    """Its first record after the stop may be minutes later: then a poll has returned it since."""

    def found(moment: float) -> Verdict:
        zombie = told("A 1 0", "R 2 0 0", f"R {moment} 0 1", "L 90 0", second=SECOND)
        heir = told("A 4 0", "R 5 0 1", "V 91 0", second=SECOND)
        stopped = Stop(member="a", since=3 * SECOND, until=10 * SECOND, over=11 * SECOND)
        return judge({"a": zombie, "b": heir}, {0: 2}, stops=[stopped])

    assert (len(found(11.9).in_hand), found(11.9).sound) == (1, True)
    assert (len(found(12.1).late), found(12.1).sound) == (1, False)


def test_after_a_clean_close_the_end_is_committed_and_nothing_beyond_what_was_processed() -> None:
    journals = {"a": told("R 1 0 0", "R 2 0 1", "R 3 1 0", "R 4 1 2"), "b": told("R 5 2 0")}
    processed = prefixes(journals)
    assert processed == {0: 2, 1: 1, 2: 1}
    ends = {0: 2, 1: 3, 2: 1, 3: 0}
    assert miscommitted({0: 2, 1: 3, 2: 1}, ends, ends) == []
    assert miscommitted({0: 1, 1: 2, 2: -1001, 3: -1001}, ends, processed) == [
        "partition 0: 1 committed of 2",
        "partition 1: 2 committed, processed up to 1",
        "partition 2: 0 committed of 1",
    ]


def test_a_record_without_ownership_is_a_stray() -> None:
    found = verdict(told("A 1 0", "V 2 0", "R 3 0 0"), produced=1)
    assert [who for who, _ in found.strays] == ["a"]
    assert not found.sound


def test_who_has_closed_owns_nothing_whatever_it_was_told_before() -> None:
    found = verdict(told("A 1 0", "R 2 0 0", "X 3", "R 4 0 1"), produced=2)
    assert [e.at for _, e in found.strays] == [4]


def test_a_record_that_nobody_processed_is_lost() -> None:
    found = verdict(told("A 1 0", "R 2 0 0", "R 3 0 2", "V 4 0"), produced=3)
    assert found.lost == ((0, 1),)
    assert "lost: ((0, 1),) of 1" in str(found)


def test_a_journal_is_read_back_and_a_cut_line_left_out(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    journal.note("S")
    journal.callback("A", 3, [2, 0])
    journal.callback("V", 3, [])
    journal.records([(2, 7), (0, 1)])
    journal.note("E", "what went wrong")
    journal.note("E", "in two\nlines")
    journal.close()
    with path.open("a") as file:
        file.write("R 99")
    events = read_journal(path)
    assert [e.kind for e in events] == list("SAVRREE")
    assert (events[1].generation, events[1].partitions) == (3, (0, 2))
    assert events[2].partitions == ()
    assert (events[3].partitions, events[3].offset) == ((2,), 7)
    assert [e.text for e in events[5:]] == ["what went wrong", "in two lines"]
    assert read_journal(tmp_path / "none") == []
    path.write_text("Q 1 \n")
    with pytest.raises(ValueError, match="not a journal's line"):
        read_journal(path)
