"""Commits stand in one line: who leaves it, and who comes next."""

from __future__ import annotations

from typing import Any

from kafka_coop.assignors import CooperativeSticky
from kafka_coop.backend.errands import Ask, Changed, Errand, Errands, Surroundings
from kafka_coop.config import OffsetReset
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import Node, OffsetAndMetadata, OffsetsCommitted
from kafka_coop.types import Generation, GroupMetadata, MemberId, TopicPartition

THERE = TopicPartition("t", 0)


class Stable:
    """A member with a coordinator and a generation."""

    coordinator: Node | None = Node(node_id=1, host="broker", port=9092)
    identity = GroupMetadata(group_id="g", generation=Generation(1), member_id=MemberId("m"))
    commits_open = True


def errands(settings: MemberSettings) -> Errands:
    return Errands(
        Surroundings(
            standing=Stable(),
            settings=settings,
            reset=OffsetReset.EARLIEST,
            read_committed=True,
            tell=lambda _: None,
            owns=lambda _: True,
            giving_up=lambda: False,
            found=lambda _: None,
            wake=lambda: None,
        )
    )


def finish(errand: Errand[Any]) -> None:
    """The coordinator takes what it was asked to."""
    try:
        errand.send([OffsetsCommitted(errors={THERE: ErrorCode.none})])
    except StopIteration:
        return
    raise AssertionError("it goes on")


def test_of_two_equal_commits_the_one_given_up_leaves_the_line() -> None:
    line = errands(MemberSettings(group_id="g", assignors=(CooperativeSticky(),)))
    first, waiting, given_up, last = (
        line.commit({THERE: OffsetAndMetadata(offset=offset)}) for offset in (1, 2, 2, 3)
    )
    assert isinstance(next(first), Ask)
    for errand in (waiting, given_up, last):
        assert isinstance(next(errand), Changed), "one at a time"
    given_up.close()
    finish(first)
    assert isinstance(waiting.send(None), Ask)
    assert isinstance(last.send(None), Changed)
    finish(waiting)
    assert isinstance(last.send(None), Ask)
    finish(last)
