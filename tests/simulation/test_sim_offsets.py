"""OffsetCommit, OffsetFetch and transactional offsets (KIP-447)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from coordinator_box import GROUP, ORDERS_0, Box, Peer, fetch, join_round, stable_group

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata, OffsetCommit
from kafka_coop.simulation.group import GroupState
from kafka_coop.simulation.settings import Client
from kafka_coop.types import NO_GENERATION, NO_MEMBER_ID, Generation, MemberId, TopicPartition

ORDERS_1 = TopicPartition("orders", 1)
NOWHERE = TopicPartition("nowhere", 0)
PRODUCER = 7


def committed(box: Box, partition: TopicPartition = ORDERS_0) -> int:
    return fetch(box, partition).offsets[partition].offset


class TestFencing:
    def test_a_member_of_the_generation_commits(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        assert a.commit(5, metadata="here") is ErrorCode.none
        assert fetch(box).offsets == {ORDERS_0: FetchedOffset(offset=5, metadata="here")}
        record = box.coordinator.committed(GROUP)[ORDERS_0]
        assert (record.member_id, record.generation) == (a.member_id, 1)

    @pytest.mark.parametrize("generation", [0, 2, NO_GENERATION])
    def test_another_generation_is_refused(self, generation: int) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.generation = Generation(generation)
        assert a.commit(5) is ErrorCode.illegal_generation
        assert committed(box) == -1

    def test_a_removed_member_is_refused(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        b.leave()
        assert b.commit(5) is ErrorCode.unknown_member_id

    def test_while_a_round_is_prepared_the_last_generation_may_commit(self) -> None:
        """What on_revoke has processed is saved before the next owner begins."""
        box = Box()
        a, b = Peer(box), Peer(box)
        stable_group(box, a, b)
        a.join()
        assert b.commit(5) is ErrorCode.none
        assert a.commit(6) is ErrorCode.none

    def test_between_join_and_plan_nobody_may(self) -> None:
        box = Box()
        a, b = Peer(box), Peer(box)
        join_round(box, a, b)
        assert a.commit(5) is ErrorCode.rebalance_in_progress
        assert b.commit(5) is ErrorCode.rebalance_in_progress
        b.generation = Generation(0)
        assert b.commit(5) is ErrorCode.illegal_generation

    def test_without_membership_only_where_nobody_is(self) -> None:
        """A manually assigned consumer beside a living group (confluent-kafka-python#1004)."""
        box = Box()
        stranger, a = Peer(box), Peer(box)
        assert stranger.commit(1) is ErrorCode.none
        stable_group(box, a)
        assert stranger.commit(2) is ErrorCode.unknown_member_id
        a.leave()
        assert stranger.commit(3) is ErrorCode.none
        assert committed(box) == 3

    def test_without_membership_makes_a_group_of_its_own(self) -> None:
        box = Box()
        Peer(box).commit(1)
        assert box.is_in(GroupState.EMPTY)

    @pytest.mark.parametrize(
        ("version", "error"),
        [(9, ErrorCode.group_id_not_found), (8, ErrorCode.illegal_generation)],
    )
    def test_of_a_generation_in_no_group(self, version: int, error: ErrorCode) -> None:
        box = Box()
        a = Peer(box, client=Client(offset_commit_version=version))
        a.member_id, a.generation = MemberId("ghost"), Generation(3)
        assert a.commit(1) is error

    def test_of_a_generation_in_an_emptied_group(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.leave()
        assert a.commit(1) is ErrorCode.unknown_member_id


class TestPartitions:
    def test_an_unknown_one_does_not_hold_the_others_up(self) -> None:
        box = Box()
        request = OffsetCommit(
            group_id=GROUP,
            generation=NO_GENERATION,
            member_id=NO_MEMBER_ID,
            instance_id=None,
            offsets={
                ORDERS_0: OffsetAndMetadata(offset=4),
                NOWHERE: OffsetAndMetadata(offset=4),
                TopicPartition("orders", 4): OffsetAndMetadata(offset=4),
            },
        )
        token = box.send(request)
        assert dict(box.answers[token].response.errors) == {  # type: ignore[union-attr]  # OffsetsCommitted
            ORDERS_0: ErrorCode.none,
            NOWHERE: ErrorCode.unknown_topic_or_partition,
            TopicPartition("orders", 4): ErrorCode.unknown_topic_or_partition,
        }
        assert committed(box) == 4

    def test_unknown_ones_alone_are_no_sign_of_life(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        box.wait(9)
        assert a.commit(1, partition=NOWHERE) is ErrorCode.unknown_topic_or_partition
        box.wait(1)
        assert not a.is_member()

    def test_too_much_metadata(self) -> None:
        box = Box()
        a = Peer(box)
        assert a.commit(1, metadata="x" * 4096) is ErrorCode.none
        assert a.commit(2, metadata="x" * 4097) is ErrorCode.offset_metadata_too_large
        assert committed(box) == 1

    def test_a_deleted_topics_offsets_vanish(self) -> None:
        box = Box()
        Peer(box).commit(9)
        box.topics.delete("orders")
        box.coordinator.drop_topic("orders")
        box.topics.create("orders", 1)
        assert committed(box) == -1


class TestFetch:
    def test_of_nothing_committed_or_no_group(self) -> None:
        assert fetch(Box()).offsets == {ORDERS_0: FetchedOffset(offset=-1)}

    def test_group_errors_come_without_partitions(self) -> None:
        box = Box()
        box.coordinator.denied.add(GROUP)
        answer = fetch(box)
        assert (answer.error, answer.offsets) == (ErrorCode.group_authorization_failed, {})


class TestTransactions:
    def test_pending_offsets_are_unstable_until_the_end(self) -> None:
        box = Box()
        a = Peer(box)
        stable_group(box, a)
        a.commit(5)
        answer = box.coordinator.commit_in_transaction(
            a.commit_request(8), producer_id=PRODUCER, now=box.now
        )
        assert answer.errors == {ORDERS_0: ErrorCode.none}
        assert fetch(box).offsets[ORDERS_0].error is ErrorCode.unstable_offset_commit
        assert fetch(box, require_stable=False).offsets[ORDERS_0].offset == 5
        assert fetch(box, ORDERS_1).offsets[ORDERS_1].error is ErrorCode.none
        box.coordinator.end_transaction(PRODUCER, committed=True)
        assert committed(box) == 8

    def test_an_abort_drops_them(self) -> None:
        box = Box()
        a = Peer(box)
        a.commit(5)
        box.coordinator.commit_in_transaction(
            a.commit_request(8), producer_id=PRODUCER, now=box.now
        )
        box.coordinator.end_transaction(PRODUCER, committed=False)
        assert committed(box) == 5

    def test_a_later_plain_commit_stands(self) -> None:
        box = Box()
        a = Peer(box)
        box.coordinator.commit_in_transaction(
            a.commit_request(8), producer_id=PRODUCER, now=box.now
        )
        a.commit(9)
        box.coordinator.end_transaction(PRODUCER, committed=True)
        assert committed(box) == 9

    def test_fenced_by_member_and_generation_where_it_carries_them(self) -> None:
        box = Box()
        a = Peer(box)
        join_round(box, a)
        request = a.commit_request(1)

        def attempt() -> ErrorCode:
            answer = box.coordinator.commit_in_transaction(
                request, producer_id=PRODUCER, now=box.now
            )
            return answer.errors[ORDERS_0]

        assert attempt() is ErrorCode.none  # whatever the group's state
        a.leave()
        b = Peer(box)
        stable_group(box, b)
        assert attempt() is ErrorCode.unknown_member_id

    def test_unfenced_without_them(self) -> None:
        box = Box()
        stable_group(box, Peer(box))
        answer = box.coordinator.commit_in_transaction(
            Peer(box).commit_request(1), producer_id=PRODUCER, now=box.now
        )
        assert answer.errors[ORDERS_0] is ErrorCode.none

    def test_of_a_deleted_topic_end_in_nothing(self) -> None:
        box = Box()
        box.coordinator.commit_in_transaction(
            Peer(box).commit_request(1), producer_id=PRODUCER, now=box.now
        )
        box.coordinator.drop_topic("orders")
        assert committed(box) == -1
        box.coordinator.end_transaction(PRODUCER, committed=True)
        assert committed(box) == -1

    def test_ending_none_is_nothing(self) -> None:
        box = Box()
        box.coordinator.end_transaction(PRODUCER, committed=True)
        assert box.coordinator.commits == ()


class TestDeleteGroup:
    def test_only_an_empty_one(self) -> None:
        box = Box()
        a = Peer(box, session=timedelta(seconds=10))
        assert box.coordinator.delete_group(GROUP) is ErrorCode.group_id_not_found
        stable_group(box, a)
        a.commit(3)
        assert box.coordinator.delete_group(GROUP) is ErrorCode.non_empty_group
        a.leave()
        box.coordinator.commit_in_transaction(
            Peer(box).commit_request(8), producer_id=PRODUCER, now=box.now
        )
        assert box.coordinator.delete_group(GROUP) is ErrorCode.none
        box.coordinator.end_transaction(PRODUCER, committed=True)
        assert box.coordinator.groups == ()
        assert committed(box) == -1

    def test_it_begins_at_generation_1_again(self) -> None:
        box = Box()
        a, pending = Peer(box), Peer(box)
        stable_group(box, a)
        a.leave()
        pending.send_join()
        box.coordinator.delete_group(GROUP)
        box.wait(60)
        b = Peer(box)
        stable_group(box, b)
        assert b.generation == 1
