"""The judge finds what it must: journals written by hand, each with one crime or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_coop.testing.trial.journal import Event, Journal, read_journal
from kafka_coop.testing.trial.report import report
from kafka_coop.testing.trial.run import Injected, blame, silences
from kafka_coop.testing.trial.verdict import Verdict, judge


def told(*lines: str) -> list[Event]:
    """Events of ``A 1 0,1`` (assigned at time 1) and ``R 2 0 7`` (partition 0, offset 7)."""
    events = []
    for line in lines:
        kind, at, *rest = line.split()
        numbers = tuple(int(n) for n in rest[0].split(",")) if rest else ()
        offset = int(rest[1]) if len(rest) > 1 else -1
        events.append(Event(kind=kind, at=int(at), partitions=numbers, offset=offset))  # type: ignore[arg-type]  # a Kind
    return events


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


def _in_generation(number: int, events: list[Event]) -> list[Event]:
    return [replace(event, generation=number) for event in events]


def test_who_was_stopped_before_it_heard_of_its_assignment_hears_of_both_ends() -> None:
    """Of a later generation's owner it took nothing, unless it has processed something."""
    owner = _in_generation(26, told("A 1 0", "V 8 0"))
    assert not verdict(_in_generation(25, told("A 4 0", "L 5 0")), owner).overlaps
    assert verdict(_in_generation(25, told("A 4 0", "R 4 0 0", "L 5 0")), owner).overlaps
    assert verdict(_in_generation(27, told("A 4 0", "L 5 0")), owner).overlaps


def test_a_zombies_record_is_late() -> None:
    found = verdict(
        told("A 1 0", "R 2 0 0", "R 6 0 1", "L 9 0"), told("A 4 0", "R 5 0 1", "V 7 0"), produced=2
    )
    assert [(who, e.at) for who, e in found.late] == [("a", 6)]
    assert not found.sound


def test_a_record_without_ownership_is_a_stray() -> None:
    found = verdict(told("A 1 0", "V 2 0", "R 3 0 0"), produced=1)
    assert [who for who, _ in found.strays] == ["a"]
    assert not found.sound


def test_a_record_that_nobody_processed_is_lost() -> None:
    found = verdict(told("A 1 0", "R 2 0 0", "R 3 0 2", "V 4 0"), produced=3)
    assert found.lost == ((0, 1),)
    assert "lost: ((0, 1),) of 1" in str(found)


def test_a_silence_is_blamed_on_what_fell_into_it() -> None:
    journals = {
        "a": told("R 1 0 0", "R 2 0 1", "R 30 0 4"),
        "b": told("R 9 0 2", "R 20 0 3", "R 8 1 0", "R 28 1 1"),
    }
    gaps = silences(journals)
    assert sorted(gaps) == [(1, 2), (2, 9), (8, 28), (9, 20), (20, 30)]
    faults = [Injected(at=at, name="f", what="") for at in (5, 10, 29)]
    blamed = blame(faults, gaps)
    assert [round(f.silent * 1e9) for f in blamed] == [7, 20, 10]


def test_a_journal_is_read_back_and_a_cut_line_left_out(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    journal.note("S")
    journal.callback("A", 3, [2, 0])
    journal.callback("V", 3, [])
    journal.records([(2, 7), (0, 1)])
    journal.note("E", "what went wrong")
    journal.close()
    with path.open("a") as file:
        file.write("R 99")
    events = read_journal(path)
    assert [e.kind for e in events] == list("SAVRRE")
    assert (events[1].generation, events[1].partitions) == (3, (0, 2))
    assert events[2].partitions == ()
    assert (events[3].partitions, events[3].offset) == ((2,), 7)
    assert events[5].text == "what went wrong"
    assert read_journal(tmp_path / "none") == []
    path.write_text("Q 1 \n")
    with pytest.raises(ValueError, match="not a journal's line"):
        read_journal(path)


def test_the_report_tells_what_was_and_what_was_lost() -> None:
    plan = {
        "faults": 2,
        "lasting": "0:02:00",
        "members": 3,
        "partitions": 4,
        "rate": 5,
        "session": "0:00:06",
        "seed": 1,
        "transactions": False,
    }
    counts = dict.fromkeys(("produced", "processed", "repeated", "handovers", "lost"), 17)
    faults = [{"name": "member killed", "silent": s} for s in (1.0, 3.0, 0.5)]
    text = report(
        [
            {
                **counts,
                "plan": plan,
                "faults": faults,
                "failed": ["m1: bang"],
                "overlaps": ["one"],
                "strays": 0,
                "late": 0,
                "in_hand": 0,
                "processes": 4,
            }
        ]
    )
    assert "| **lost** | 17 |" in text
    assert "| **two owners** | 1 |" in text
    assert "| member killed | 3 | 1.00 | 3.00 |" in text
    assert "m1: bang" in text
    assert "copied" not in text
