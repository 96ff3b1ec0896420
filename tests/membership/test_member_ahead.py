"""Offsets that are asked for behind SyncGroup: of what may come."""

from __future__ import annotations

import pytest
from member_box import MemberBox, partitions

from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership import joining
from kafka_coop.types import NO_PARTITIONS, Partitions

T01 = partitions("t", 0, 1)


def knowing(*topics: str, **counts: int) -> MemberBox:
    """A member that has heard of these topics, and joins for the first time."""
    box = MemberBox.fresh()
    box.subscribe(*topics)
    box.find()
    box.tick()
    box.answer_metadata(counts)
    box.answer_join()
    return box


def test_all_that_is_not_owned_may_come() -> None:
    box = knowing("t", "u", t=3, u=1)
    assert box.last(ef.SendSync).ahead == Partitions({"t": [0, 1, 2], "u": [0]})
    box.answer_sync(T01)
    told = box.last(ef.PrefetchOffsets)
    assert (told.partitions, told.ahead) == (T01, True)
    box.do_steps()
    box.handle(ev.EnforceRebalance(reason="once more"))
    box.answer_join(generation=2)
    assert box.last(ef.SendSync).ahead == Partitions({"t": [2], "u": [0]})


def test_a_topic_that_is_not_known_is_asked_for_later() -> None:
    box = knowing("t", "gone", t=1)
    assert box.last(ef.SendSync).ahead == partitions("t", 0)


@pytest.mark.parametrize("counts", [{"t": 257}, {"t": 200, "u": 57}])
def test_of_many_partitions_nothing_is_asked_for_in_every_round(counts: dict[str, int]) -> None:
    box = knowing(*counts, **counts)
    assert box.last(ef.SendSync).ahead == NO_PARTITIONS
    box.answer_sync(T01)
    assert box.last(ef.PrefetchOffsets).partitions == T01


def test_nor_of_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_FEW", 1)
    assert knowing("t", "u", t=1, u=0).last(ef.SendSync).ahead == NO_PARTITIONS
