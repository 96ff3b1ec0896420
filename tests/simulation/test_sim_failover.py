"""What survives a coordinator, and what its heirs answer meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from coordinator_box import (
    BRIEF,
    GROUP,
    ORDERS_0,
    Box,
    Peer,
    fetch,
    finish_round,
    join_round,
    rejoin_all,
    stable_group,
)

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import GroupJoined, GroupSynced
from kafka_coop.simulation.coordinator import Availability
from kafka_coop.simulation.group import GroupState
from kafka_coop.simulation.journal import GroupLoaded, GroupUnloaded
from kafka_coop.simulation.settings import CoordinatorSettings

LOADING = timedelta(seconds=5)


def fail_over(box: Box, duration: timedelta = timedelta(0)) -> None:
    box.take(box.coordinator.load(box.now, duration=duration))


class TestAnswersMeanwhile:
    def test_loading(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.commit(3)
        fail_over(box, LOADING)
        assert box.coordinator.next_deadline() == box.now + 5
        assert a.beat() is ErrorCode.none  # whoever it is: nothing is known yet
        a.join()
        assert a.join_error() is ErrorCode.coordinator_load_in_progress
        assert a.sync().error is ErrorCode.coordinator_load_in_progress
        assert a.commit(4) is ErrorCode.coordinator_load_in_progress
        assert fetch(box).error is ErrorCode.coordinator_load_in_progress
        assert a.leave() is ErrorCode.coordinator_load_in_progress
        box.wait(5)
        assert box.coordinator.availability is Availability.ACTIVE
        assert a.beat() is ErrorCode.none
        assert fetch(box).offsets[ORDERS_0].offset == 3

    @pytest.mark.parametrize(
        ("availability", "error"),
        [
            (Availability.RESIGNED, ErrorCode.not_coordinator),
            (Availability.UNAVAILABLE, ErrorCode.coordinator_not_available),
        ],
    )
    def test_resigned_or_unavailable(self, availability: Availability, error: ErrorCode) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        box.take(box.coordinator.resign(box.now, availability=availability))
        a.join()
        assert a.join_error() is error
        assert a.sync().error is error
        assert a.beat() is error
        assert a.commit(4) is error
        assert fetch(box).error is error
        assert a.leave() is error
        assert box.coordinator.next_deadline() is None

    def test_an_unknown_partition_is_unknown_to_any_broker(self) -> None:
        box = Box()
        box.take(box.coordinator.resign(box.now))
        box.topics.delete("orders")
        assert Peer(box).commit(1) is ErrorCode.unknown_topic_or_partition

    def test_parked_joins_are_answered(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        a.join()
        fail_over(box)
        answer = box.answer(a.join_token, GroupJoined)
        assert (answer.error, answer.member_id) == (ErrorCode.not_coordinator, a.member_id)

    def test_parked_syncs_are_answered(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        waiting = b.send_sync()
        fail_over(box)
        assert box.answer(waiting, GroupSynced).error is ErrorCode.not_coordinator


class TestWhatSurvives:
    def test_a_stable_group_as_it_was(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box, instance_id="b")
        stable_group(box, a, b)
        box.wait(9)
        before = box.group
        fail_over(box)
        after = box.group
        assert (after.state, after.generation, after.leader) == (
            before.state,
            before.generation,
            before.leader,
        )
        assert [m.assignment for m in after.members] == [m.assignment for m in before.members]
        assert {m.session_deadline for m in after.members} == {box.now + 10}
        assert a.beat() is b.beat() is ErrorCode.none
        assert b.sync().assignment == f"for {b.member_id}".encode()

    def test_a_round_being_prepared_is_forgotten(self) -> None:
        """Back at the last plan, stable: members go on, and nobody tells them to rejoin."""
        box = Box()
        a, b, c = Peer(box), Peer(box), Peer(box)
        stable_group(box, a, b)
        c.join()
        fail_over(box)
        assert a.beat() is b.beat() is ErrorCode.none
        c.join()  # under the id that the former coordinator gave it
        assert c.join_error() is ErrorCode.unknown_member_id

    def test_a_generation_without_a_plan_is_repeated(self) -> None:
        """The log knows generation 1; members that were told of 2 meet another 2."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        a.join()
        b.join()
        assert (a.joined().generation, b.joined().generation) == (2, 2)
        fail_over(box)
        assert box.group.generation == 1
        assert a.beat() is ErrorCode.illegal_generation
        assert a.sync().error is ErrorCode.illegal_generation
        rejoin_all(a, b)
        assert box.group.generation == 2

    def test_a_first_generation_without_a_plan_leaves_nobody(self) -> None:
        box = Box()
        a = Peer(box)
        join_round(box, a)
        fail_over(box)
        assert (box.group.state, box.group.generation) == (GroupState.EMPTY, 0)
        assert a.sync().error is ErrorCode.unknown_member_id

    def test_an_emptied_group_keeps_its_generation(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a)
        a.leave()
        fail_over(box)
        assert (box.group.state, box.group.generation) == (GroupState.EMPTY, 2)
        stable_group(box, b)
        assert b.generation == 3

    def test_a_static_members_new_process(self) -> None:
        box = Box()
        a = Peer(box, instance_id="a")
        stable_group(box, a)
        again = Peer(box, instance_id="a")
        again.join()
        again.joined()
        fail_over(box)
        assert again.beat() is ErrorCode.none
        assert a.beat() is ErrorCode.fenced_instance_id

    def test_only_the_chosen_protocol(self) -> None:
        """So a follower's unchanged rejoin looks changed, and starts a round."""
        box = Box()
        both = (("coop", b"v1"), ("range", b"v1"))
        a, b = Peer(box, protocols=both), Peer(box, protocols=both)
        stable_group(box, a, b)
        fail_over(box)
        b.join()
        assert box.is_parked(b.join_token)
        a.join()
        finish_round(a, b)

    def test_with_one_protocol_it_does_not(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        fail_over(box)
        b.join()
        assert b.joined().generation == 1

    def test_offsets_transactions_and_groups_of_offsets_alone(self) -> None:
        box = Box()
        a = Peer(box)
        a.commit(5)
        box.coordinator.commit_in_transaction(a.commit_request(8), producer_id=1, now=box.now)
        fail_over(box)
        assert box.is_in(GroupState.EMPTY)
        assert fetch(box, require_stable=False).offsets[ORDERS_0].offset == 5
        box.coordinator.end_transaction(1, committed=True)
        assert fetch(box).offsets[ORDERS_0].offset == 8

    def test_a_deleted_group_does_not(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.leave()
        box.coordinator.delete_group(GROUP)
        fail_over(box)
        assert box.coordinator.groups == ()

    def test_too_large_a_group_is_sent_to_rejoin(self) -> None:
        box = Box(CoordinatorSettings(initial_rebalance_delay=BRIEF.initial_rebalance_delay))
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        settings = CoordinatorSettings(max_group_size=1)
        box.coordinator._rebalancer.settings = settings  # the heir's configuration
        fail_over(box)
        assert a.beat() is ErrorCode.rebalance_in_progress
        a.join()
        b.join()
        assert b.join_error() is ErrorCode.group_max_size_reached


def test_a_group_made_by_a_commit_has_no_record_before_its_first_plan() -> None:
    """Found by the property: members that joined it are forgotten, back at generation 0."""
    box = Box()
    a = Peer(box)
    a.commit(5)
    join_round(box, a)
    assert a.generation == 1
    fail_over(box)
    loaded = box.coordinator.journal(GROUP)[-1]
    assert isinstance(loaded, GroupLoaded)
    assert (loaded.generation, loaded.members) == (0, ())
    assert a.sync().error is ErrorCode.unknown_member_id


def test_an_interrupted_load_starts_over() -> None:
    box = Box()
    a = Peer(box)
    stable_group(box, a)
    fail_over(box, LOADING)
    box.wait(4)
    fail_over(box, LOADING)
    box.wait(4)
    assert box.coordinator.availability is Availability.LOADING
    box.wait(1)
    assert a.beat() is ErrorCode.none


def test_the_journal_goes_on_across_coordinators() -> None:
    box = Box()
    a = Peer(box)
    stable_group(box, a)
    fail_over(box, LOADING)
    box.wait(5)
    unloaded, loaded = box.coordinator.journal(GROUP)[-2:]
    assert isinstance(unloaded, GroupUnloaded)
    assert isinstance(loaded, GroupLoaded)
    assert loaded.at == unloaded.at + 5
    assert loaded.members == (a.member_id,)
