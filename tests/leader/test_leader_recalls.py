"""Members of other clients are made to join the follow-up round at once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.assignors import CooperativeSticky, resolve
from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, Subscription

PARTITIONS = 12
EVERYTHING = {("t", number) for number in range(PARTITIONS)}


def member(
    *owned: int,
    ours: bool = True,
    draining: bool = False,
    topics: tuple[str, ...] = ("t",),
    generation: int = 5,
) -> bytes:
    marks = append_marks(None, SubscriptionMarks(draining=draining))
    return encode_subscription(
        Subscription(
            topics=topics,
            owned=Partitions({"t": owned}) if owned else NO_PARTITIONS,
            generation=Generation(generation),
            user_data=marks if ours else None,
        )
    )


def led(
    members: Mapping[str, bytes],
    recalled: Mapping[str, Partitions] | None = None,
    strategy: str = "cooperative-sticky",
) -> LeaderOutcome:
    return lead(strategy, {"t": PARTITIONS}, members, recalled=recalled or {})


def granted(outcome: LeaderOutcome) -> dict[str, set[tuple[str, int]]]:
    return {m: set(decode_assignment(b).partitions) for m, b in outcome.assignments.items()}


def numbers(recalled: Mapping[str, Partitions]) -> dict[str, list[int]]:
    return {m: [p for _, p in partitions] for m, partitions in recalled.items()}


DRAINED = {
    "java": member(0, 1, 2, ours=False),
    "leaver": member(3, 4, 5, draining=True),
    "librdkafka": member(6, 7, 8, ours=False),
    "ours": member(9, 10, 11),
}


def test_each_that_would_sit_still_gives_up_one_partition_and_gets_it_back() -> None:
    first = led(DRAINED)
    assert numbers(first.recalled) == {"java": [2], "librdkafka": [8]}
    assert granted(first) == {
        "java": {("t", 0), ("t", 1)},
        "leaver": set(),
        "librdkafka": {("t", 6), ("t", 7)},
        "ours": {("t", 9), ("t", 10), ("t", 11)},
    }
    assert first.withheld == Partitions({"t": [2, 3, 4, 5, 8]})
    assert (first.figures.withheld, first.figures.recalled) == (5, 2)
    assert {m: len(a.partitions) for m, a in first.intended.items() if m != "leaver"} == {
        "java": 4,
        "librdkafka": 4,
        "ours": 4,
    }
    again = {
        "java": member(0, 1, ours=False),
        "librdkafka": member(6, 7, ours=False),
        "ours": member(9, 10, 11),
    }
    second = led(again, first.recalled)
    assert not second.follow_up
    assert not second.recalled
    got = granted(second)
    assert ("t", 2) in got["java"]
    assert ("t", 8) in got["librdkafka"]
    assert set.union(*got.values()) == EVERYTHING


def test_who_has_to_revoke_anyway_gives_up_no_more() -> None:
    outcome = led(
        {
            "java": member(0, 1, 2, 3, 4, 5, ours=False),
            "librdkafka": member(6, 7, 8, ours=False),
            "newcomer": member(),
            "ours": member(9, 10, 11),
        }
    )
    assert numbers(outcome.recalled) == {"librdkafka": [8]}


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({**DRAINED, "new": member(ours=False)}, id="one has nothing to give"),
        pytest.param({**DRAINED, "garbage": b"\xff" * 5}, id="nor has who sends no subscription"),
        pytest.param(
            {**DRAINED, "python": member(ours=False, topics=("u",))},
            id="nor who wants nothing here",
        ),
        pytest.param(
            {**DRAINED, "j" * 256: member(ours=False)}, id="a name is too long to be told"
        ),
        pytest.param(
            {
                **DRAINED,
                "java": member(0, 1, 2, 11, ours=False),
                "leaver": member(3, draining=True),
                "ours": member(4, 5, 9, 10),
            },
            id="it would disturb more than it serves",
        ),
        pytest.param(
            {
                "java": member(*range(6), ours=False),
                "librdkafka": member(6, 7, 8, ours=False),
                "third": member(9, 10, 11, ours=False),
            },
            id="there is nobody whom a mark would hurry",
        ),
        pytest.param(
            {"java": member(*range(6), ours=False), "ours": member(*range(6, 12))},
            id="nothing moves",
        ),
    ],
)
def test_none_gives_up_anything_where_it_would_not_help(members: Mapping[str, bytes]) -> None:
    assert not led(members).recalled


def test_nor_in_the_round_after_a_recall() -> None:
    """What waits again waits for somebody who could not follow, and could not the next time.

    Here one of ours whose user is slow: it joins as the owner of what it still has. Or somebody
    whose SyncGroup came when those that were recalled had begun the next round.
    """
    before: LeaderOutcome | None = None
    recalls = []
    owned: dict[str, tuple[int, ...]] = {"java": (0, 1, 2), "librdkafka": (6, 7, 8)}
    for _ in range(6):
        members = {**DRAINED, **{m: member(*numbers, ours=False) for m, numbers in owned.items()}}
        outcome = led(members, before.recalled if before else None)
        assert outcome.follow_up, "what is drained still waits"
        recalls.append(bool(outcome.recalled))
        owned = {m: tuple(p for _, p in granted(outcome)[m]) for m in owned}
        before = outcome
    assert recalls == [True, False] * 3


def test_nor_is_it_what_another_claims_too() -> None:
    """If that one misses the end of this round, it would be the only one in the next."""
    contested = {**DRAINED, "java": member(0, 1, 2, ours=False), "zombie": member(2, generation=3)}
    assert numbers(led(contested).recalled) == {"java": [1], "librdkafka": [8]}
    all_of_it = {**contested, "java": member(2, ours=False)}
    assert not led(all_of_it).recalled


def test_nor_from_so_many_that_the_groups_record_grows_large() -> None:
    sizes = {}
    for peers in (15, 30):
        members = {f"java{i:02}": member(i, ours=False) for i in range(peers)}
        members["leaver"] = member(*range(peers, 2 * peers), draining=True)
        members["ours"] = member()
        sizes[peers] = len(lead("cooperative-sticky", {"t": 2 * peers}, members).recalled)
    assert sizes == {15: 15, 30: 0}


def test_ours_are_told_of_it_whoever_leads_the_next_round_and_the_others_are_not() -> None:
    outcome = led(DRAINED)
    told = {}
    for name, data in outcome.assignments.items():
        _, marks = split_marks(decode_assignment(data).user_data)
        assert isinstance(marks, AssignmentMarks)
        told[name] = marks.recalled
    assert told == {
        "java": {},
        "leaver": outcome.recalled,
        "librdkafka": {},
        "ours": outcome.recalled,
    }
    quiet = led({"java": member(*range(6), ours=False), "ours": member(*range(6, 12))})
    _, marks = split_marks(decode_assignment(quiet.assignments["ours"]).user_data)
    assert marks == AssignmentMarks()


@pytest.mark.parametrize("strategy", ["constrained-cooperative-sticky", "fairest-sticky"])
def test_nor_under_a_name_that_other_clients_do_not_know(strategy: str) -> None:
    assert not led(DRAINED, strategy=strategy).recalled


def test_what_somebody_has_come_to_claim_is_no_longer_the_others() -> None:
    """The leader's memory is of the round before; a claim is of now."""
    recalled = {"java": Partitions({"t": [2]})}
    members = {"java": member(0, 1, ours=False), "ours": member(*range(2, 12))}
    outcome = led(members, recalled)
    assert ("t", 2) not in granted(outcome)["java"]
    without = led({"java": member(ours=False, topics=("u",)), "ours": member()}, recalled)
    assert granted(without) == {"java": set(), "ours": EVERYTHING}
    gone = led({"ours": member()}, recalled)
    assert granted(gone) == {"ours": EVERYTHING}


def test_where_the_assignor_fails_it_goes_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CooperativeSticky, "assign", fails)
    recalled = {"java": Partitions({"t": [2]})}
    outcome = lead(
        resolve("cooperative-sticky"),
        {"t": PARTITIONS},
        {"java": member(0, 1, ours=False), "ours": member(3)},
        recalled=recalled,
    )
    assert granted(outcome) == {"java": {("t", 0), ("t", 1), ("t", 2)}, "ours": {("t", 3)}}


@given(
    kinds=st.lists(st.sampled_from(["ours", "draining", "other"]), min_size=2, max_size=6),
    data=st.data(),
)
def test_one_more_round_ends_it_and_all_have_back_what_was_recalled(
    kinds: list[str], data: st.DataObject
) -> None:
    owners = data.draw(
        st.lists(st.integers(-1, len(kinds) - 1), min_size=PARTITIONS, max_size=PARTITIONS)
    )
    owned = {i: [p for p, owner in enumerate(owners) if owner == i] for i in range(len(kinds))}

    def round_of(owned: Mapping[int, list[int]], before: LeaderOutcome | None) -> LeaderOutcome:
        members = {
            f"m{i}": member(*owned[i], ours=kind != "other", draining=kind == "draining")
            for i, kind in enumerate(kinds)
        }
        return led(members, before.recalled if before else None)

    first = round_of(owned, None)
    assert all(len(had) == 1 for had in first.recalled.values())
    assert 2 * len(first.recalled) <= len(first.withheld)
    got = granted(first)
    second = round_of({i: [p for _, p in got[f"m{i}"]] for i in range(len(kinds))}, first)
    assert not second.follow_up
    for name, had in first.recalled.items():
        assert set(had) <= granted(second)[name]
    if any(kind != "draining" for kind in kinds):
        assert set.union(*granted(second).values()) == EVERYTHING
