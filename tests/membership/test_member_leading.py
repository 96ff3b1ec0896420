"""The leader's work, the metadata watch, and regular expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from member_box import CUT, MemberBox, partitions

from kafka_coop.errors import AssignorFailedError
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.marks import AssignmentMarks
from kafka_coop.protocol.messages import GroupSynced, JoinedMember
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Generation, MemberId, Partitions, Subscription

AGE = 2.0
"""Seconds after which these members ask for metadata again."""


def fresh(**more: Any) -> MemberBox:
    return MemberBox.fresh(metadata_max_age=timedelta(seconds=AGE), **more)


def member(name: str, *topics: str) -> JoinedMember:
    data = encode_subscription(Subscription(topics=topics))
    return JoinedMember(member_id=MemberId(name), instance_id=None, metadata=data)


def elected(box: MemberBox, members: Iterable[JoinedMember], **more: Any) -> MemberBox:
    box.answer_join(**{"leader": "me", "members": members, **more})
    return box


def computed(box: MemberBox, error: Exception | None = None) -> list[ef.Effect]:
    return box.handle(
        ev.AssignmentComputed(
            token=box.last(ef.RunAssignor).token, assignments={"me": b"plan"}, error=error
        )
    )


def leading(*topics: str, **more: Any) -> MemberBox:
    """A STABLE leader of a group in which another member wants topic ``theirs``."""
    box = fresh(**more)
    box.subscribe(*topics)
    box.find()
    elected(box, [member("me", *topics), member("other", "theirs")])
    box.answer_metadata({"t": 2, "theirs": 3})
    computed(box)
    box.answer_sync(partitions("t", 0, 1))
    box.do_steps()
    assert box.stands(State.STABLE)
    return box


def test_the_leader_asks_for_the_union_of_topics_and_then_runs_the_assignor() -> None:
    box = fresh()
    box.subscribe("t")
    box.find()
    elected(box, [member("me", "t"), member("other", "theirs")])
    assert box.stands(State.LEADING)
    assert box.last(ef.SendMetadata).request.topics == ("t", "theirs")
    box.answer_metadata({"t": 2, "theirs": 3})
    run = box.last(ef.RunAssignor)
    assert run.cluster.partitions == {"t": 2, "theirs": 3}
    assert set(run.members) == {"me", "other"}
    computed(box)
    assert box.last(ef.SendSync).request.assignments == {"me": b"plan"}
    assert box.stands(State.SYNCING)


def test_whoever_leads_for_the_first_time_asks_what_there_is_by_now() -> None:
    """The topic has grown since, and others own what was added: by the old count it would go."""
    box = MemberBox.fresh(metadata_max_age=timedelta(minutes=5))
    box.subscribe("t")
    box.find()
    box.answer_join(leader="old")
    box.tick()
    box.answer_metadata({"t": 2})
    box.answer_sync(partitions("t", 0))
    box.do_steps()
    box.tick(1.5)
    box.handle(ev.EnforceRebalance(reason="test"))
    elected(box, [member("me", "t"), member("other", "t")], generation=2)
    assert not box.sent(ef.RunAssignor)
    box.answer_metadata({"t": 4})
    assert box.last(ef.RunAssignor).cluster.partitions == {"t": 4}


def test_topics_that_do_not_exist_are_left_out_of_the_cluster_and_said_once() -> None:
    box = fresh()
    box.subscribe("t", "ghost")
    box.find()
    elected(box, [member("me", "ghost", "t")])
    box.answer_metadata({"t": 2}, ghost=ErrorCode.unknown_topic_or_partition)
    assert box.last(ef.RunAssignor).cluster.partitions == {"t": 2}
    assert box.sent(ef.ReportTopicErrors) == [ef.ReportTopicErrors(errors={"ghost": 3})]
    computed(box)
    box.answer_sync(partitions("t", 0))
    box.tick(1.0)
    box.answer_metadata({"t": 2}, ghost=ErrorCode.unknown_topic_or_partition)
    assert len(box.sent(ef.ReportTopicErrors)) == 1


def test_metadata_that_fails_is_asked_for_again_and_the_leader_goes_on() -> None:
    box = fresh()
    box.subscribe("t")
    box.find()
    elected(box, [member("me", "t")])
    box.handle(ev.MetadataAnswered(token=box.last(ef.SendMetadata).token, answer=CUT))
    assert box.stands(State.LEADING)
    asked = len(box.sent(ef.SendMetadata))
    box.tick(0.001)
    assert len(box.sent(ef.SendMetadata)) == asked, "not at once"
    box.tick(1.0)
    box.answer_metadata({"t": 1})
    assert box.sent(ef.RunAssignor)


def test_an_assignor_that_raised_is_told_of_and_the_group_survives() -> None:
    box = fresh()
    box.subscribe("t")
    box.find()
    elected(box, [member("me", "t")])
    box.answer_metadata({"t": 1})
    computed(box, AssignorFailedError("mine: raised ValueError()"))
    assert box.stands(State.SYNCING)
    raised = [a for a in box.actions() if isinstance(a, ef.RaiseError)]
    assert "mine: raised" in raised[0].failure.message


def test_what_the_last_assignment_says_was_recalled_is_known_to_whoever_leads_next() -> None:
    box = leading("t")
    recalled = {"other": Partitions({"theirs": [2]})}

    def next_round(generation: int) -> Mapping[str, Partitions]:
        box.handle(ev.EnforceRebalance(reason="test"))
        elected(box, [member("me", "t"), member("other", "theirs")], generation=generation)
        assert box.last(ef.RunAssignor).announced is bool(box.last(ef.RunAssignor).recalled)
        return box.last(ef.RunAssignor).recalled

    def assigned(marks: AssignmentMarks | None) -> None:
        box.answer_sync(partitions("t", 0, 1), marks=marks)
        box.do_steps()

    assert next_round(2) == {}
    computed(box)
    assigned(AssignmentMarks(follow_up=True, recalled=recalled))
    assert next_round(3) == recalled
    computed(box)
    box.answer_sync(error=ErrorCode.rebalance_in_progress)
    elected(box, [member("me", "t"), member("other", "theirs")], generation=4)
    assert box.last(ef.RunAssignor).recalled == recalled, "nobody has been given it back yet"
    computed(box)
    assigned(AssignmentMarks())
    assert next_round(5) == {}
    computed(box)
    assigned(AssignmentMarks(follow_up=True, recalled=recalled))
    box.handle(ev.EnforceRebalance(reason="test"))
    box.answer_join(generation=6)
    assigned(None)
    assert next_round(7) == {}, "another client led the sixth, and said nothing"


@pytest.mark.parametrize("how", ["another membership", "a plan that can't be followed"])
def test_what_was_announced_before_counts_for_nothing(how: str) -> None:
    box = leading("t")
    box.handle(ev.EnforceRebalance(reason="test"))
    box.answer_join(generation=2)
    announced = AssignmentMarks(follow_up=True, recalled={"other": Partitions({"theirs": [2]})})
    box.answer_sync(partitions("t", 0, 1), marks=announced)
    box.do_steps()
    if how == "another membership":
        box.handle(ev.Unsubscribe())
        box.do_steps()
        box.answer_leave()
        box.subscribe("t")
    else:
        box.handle(ev.EnforceRebalance(reason="test"))
        box.answer_join(generation=3)
        box.answer_sync(partitions("unwanted", 0))
        while not box.stands(State.JOINING):
            box.tick(box.until_deadline())
    box.answer_metadata({"t": 2})
    elected(box, [member("me", "t")], generation=4)
    planned = box.last(ef.RunAssignor)
    assert planned.generation == Generation(4)
    assert not planned.announced
    assert not planned.recalled


def test_a_garbage_member_wants_nothing_and_harms_nobody() -> None:
    box = fresh()
    box.subscribe("t")
    box.find()
    garbage = JoinedMember(member_id=MemberId("bad"), instance_id=None, metadata=b"\xff\xff\xff")
    elected(box, [member("me", "t"), garbage])
    assert box.last(ef.SendMetadata).request.topics == ("t",)


def test_a_member_that_the_coordinator_lists_twice_is_one_member() -> None:
    box = fresh()
    box.subscribe("t")
    box.find()
    elected(box, [member("me", "t"), member("twin"), member("twin", "t")])
    box.answer_metadata({"t": 2})
    run = box.last(ef.RunAssignor)
    assert run.members == {
        m.member_id: m.metadata for m in (member("me", "t"), member("twin", "t"))
    }


def test_the_leader_watches_topics_that_only_others_subscribe_to() -> None:
    """librdkafka#4533: partitions added to a topic of theirs are noticed by us."""
    box = leading("t")
    box.tick(AGE)
    assert box.last(ef.SendMetadata).request.topics == ("t", "theirs")
    joins = len(box.sent(ef.SendJoin))
    box.answer_metadata({"t": 2, "theirs": 4})
    assert len(box.sent(ef.SendJoin)) == joins + 1
    assert box.last(ef.SendJoin).request.reason == "cached metadata has changed"


def test_metadata_without_a_change_starts_nothing() -> None:
    box = leading("t")
    box.tick(AGE)
    joins = len(box.sent(ef.SendJoin))
    box.answer_metadata({"t": 2, "theirs": 3})
    assert len(box.sent(ef.SendJoin)) == joins
    assert box.stands(State.STABLE)


def test_a_change_that_flips_back_is_not_forgotten() -> None:
    """KAFKA-9815: the join fails, the metadata looks as before; the member still rejoins."""
    box = leading("t")
    box.tick(AGE)
    box.answer_metadata({"t": 2, "theirs": 4})
    box.answer_join(ErrorCode.coordinator_load_in_progress)
    box.tick(1.0)
    assert box.stands(State.JOINING)


def test_a_follower_leaves_the_watch_to_the_leader() -> None:
    box = fresh().join(partitions("t", 0))
    box.tick(AGE)
    joins = len(box.sent(ef.SendJoin))
    box.answer_metadata({"t": 9})
    assert len(box.sent(ef.SendJoin)) == joins


def test_a_leader_told_to_skip_sends_no_plan_and_still_watches() -> None:
    """KIP-814: a static leader came back, the plan stands."""
    box = fresh(instance_id="static-1")
    box.subscribe("t")
    box.find()
    elected(box, [member("me", "t"), member("other", "theirs")], skip_assignment=True)
    assert box.last(ef.SendSync).request.assignments == {}
    assert not box.sent(ef.RunAssignor)
    box.answer_metadata({"t": 2, "theirs": 3})
    box.answer_sync(partitions("t", 0))
    box.do_steps()
    box.tick(AGE)
    joins = len(box.sent(ef.SendJoin))
    box.answer_metadata({"t": 2, "theirs": 4})
    assert len(box.sent(ef.SendJoin)) == joins + 1


def test_where_nobody_leads_each_watches_its_own_topics() -> None:
    """KIP-848: the broker does, until it leaves the group to its members without a round."""
    box = fresh()
    box.subscribe("t")
    box.find()
    elected(box, [], leader="")
    box.answer_metadata({"t": 2})
    box.answer_sync(partitions("t", 0))
    box.do_steps()
    assert box.stands(State.STABLE)
    box.tick(AGE)
    joins = len(box.sent(ef.SendJoin))
    box.answer_metadata({"t": 3})
    assert len(box.sent(ef.SendJoin)) == joins + 1


# --- regular expressions -------------------------------------------------------------------


def test_a_pattern_joins_with_what_matches_now() -> None:
    box = fresh()
    box.handle(ev.Subscribe(patterns=("^or.*",)))
    box.find()
    assert not box.sent(ef.SendJoin)
    assert box.last(ef.SendMetadata).request.topics is None
    box.answer_metadata({"orders": 2, "oracle": 1, "other": 1, "x-orders": 1})
    assert box.subscription().topics == ("oracle", "orders")


def test_a_new_matching_topic_is_joined_for() -> None:
    box = fresh()
    box.handle(ev.Subscribe(patterns=("^or.*",)))
    box.find()
    box.answer_metadata({"orders": 2})
    box.answer_join()
    box.answer_sync(partitions("orders", 0))
    box.do_steps()
    box.tick(AGE)
    box.answer_metadata({"orders": 2, "origins": 1})
    if box.stands(State.UNJOINED):
        box.answer_metadata({"orders": 2, "origins": 1})
    assert box.subscription().topics == ("orders", "origins")
    assert box.last(ef.SendJoin).request.reason == "subscription has changed"


def test_a_topic_that_the_leader_saw_first_is_adopted_if_it_matches() -> None:
    box = fresh()
    box.handle(ev.Subscribe(patterns=("^or.*",)))
    box.find()
    box.answer_metadata({"orders": 2})
    box.answer_join()
    both = Partitions({"orders": [0], "origins": [0]})
    box.answer_sync(both)
    assert box.member.owned == both


def test_an_assignment_of_a_topic_nobody_asked_for_is_refused() -> None:
    box = fresh().join(partitions("t", 0))
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    before = box.actions()
    box.answer_sync(Partitions({"t": [0], "stranger": [0]}))
    assert box.actions() == before, "ownership is untouched"
    assert box.member.owned == partitions("t", 0)
    box.tick(1.0)
    assert box.stands(State.JOINING)


@pytest.mark.parametrize("data", [b"\x00", b"garbage garbage", b"\x00\x00\xff\xff\xff\xff"])
def test_a_broken_assignment_is_told_of_and_changes_nothing(data: bytes) -> None:
    box = fresh().join(partitions("t", 0))
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_join(generation=2)
    token = box.last(ef.SendSync).token
    box.effects.clear()
    answer = GroupSynced(error=ErrorCode.none, assignment=data)
    box.handle(ev.SyncAnswered(token=token, answer=answer))
    assert box.member.owned == partitions("t", 0)
    assert [type(a) for a in box.actions()] == [ef.RaiseError]


def test_a_member_whose_round_was_cut_wants_to_join_until_it_has() -> None:
    """It may look for a coordinator for long, in the generation that it has."""
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    box.handle(ev.JoinAnswered(token=box.last(ef.SendJoin).token, answer=CUT))
    assert (box.state, box.member.generation) == (State.UNJOINED, 1)
    assert box.member.wants_to_join
    box.tick(1)
    box.find()
    box.join(partitions("t", 0, 1), generation=2)
    assert (box.state, box.member.wants_to_join) == (State.STABLE, False)


@pytest.mark.parametrize(
    ("leaders", "led_since"),
    [(("me", "me"), 2), (("other", "me"), 3), (("me", "other"), None)],
)
def test_a_round_knows_since_when_this_member_leads_it(
    leaders: tuple[str, str], led_since: int | None
) -> None:
    """A newcomer cuts it short between JoinGroup and SyncGroup: it goes on, one generation on."""
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(ErrorCode.rebalance_in_progress)
    box.answer_metadata({"t": 2})
    for generation, leader in enumerate(leaders, 2):
        box.answer_join(leader=leader, members=[member("me", "t")], generation=generation)
        if leader == "me":
            box.answer_metadata({"t": 2})
            computed(box)
        last = generation == 3
        box.answer_sync(
            partitions("t", 0, 1),
            ErrorCode.none if last else ErrorCode.rebalance_in_progress,
        )
    box.do_steps()
    assert box.last(ef.Announce).record.led_since == led_since
