"""Delivery, positions, assignment: what a fetcher promises, against a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as NativePartition
from fetching_support import SLICE, Topic, fetcher_of, offsets, read, take, until

from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.native import partition_of
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import wait_until
from kafka_coop.types import NO_PARTITIONS, TopicPartition

Reader = Callable[[Fetcher, int], list[Message]]

READERS: dict[str, Reader] = {
    "next": read,
    "take": take,
    "both": lambda fetcher, n: read(fetcher, n // 3) + take(fetcher, n - n // 3),
}


@pytest.fixture(params=list(READERS))
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


class TestDelivery:
    @pytest.mark.parametrize("prefetch", [1, 7, 500])
    def test_every_record_once_and_in_order(
        self, kafka: EmbeddedKafka, reader: Reader, prefetch: int
    ) -> None:
        topic = Topic(kafka, partitions=3, records=200)
        with fetcher_of(kafka, prefetch=prefetch) as fetcher:
            fetcher.add(topic.at(0))
            messages = reader(fetcher, 600)
        assert offsets(messages) == {of: list(range(200)) for of in topic.all}

    def test_starts_where_it_is_told(self, kafka: EmbeddedKafka, reader: Reader) -> None:
        topic = Topic(kafka, partitions=2, records=20)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(5, 0) | topic.at(17, 1))
            messages = reader(fetcher, 18)
        assert offsets(messages) == {topic[0]: list(range(5, 20)), topic[1]: [17, 18, 19]}

    def test_starts_at_the_beginning_after_retention(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=10)
        kafka.delete_records(topic.name, 0, before=4)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(OFFSET_BEGINNING))
            assert offsets(read(fetcher, 6)) == {topic[0]: [4, 5, 6, 7, 8, 9]}

    def test_out_of_range_follows_the_users_reset(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=3)
        with fetcher_of(kafka, auto_offset_reset="earliest") as fetcher:
            fetcher.add(topic.at(1000))
            assert offsets(read(fetcher, 3)) == {topic[0]: [0, 1, 2]}
            assert fetcher.positions(topic.all)[topic[0]].offset == 3

    def test_out_of_range_is_a_message_if_the_user_wants_an_error(
        self, kafka: EmbeddedKafka
    ) -> None:
        topic = Topic(kafka, records=3)
        with fetcher_of(kafka, auto_offset_reset="error") as fetcher:
            fetcher.add(topic.at(1000))
            (message,) = read(fetcher, 1)
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
            assert partition_of(message) == topic[0]
            assert fetcher.positions(topic.all) == topic.at(1000)

    def test_a_position_that_librdkafka_forgets_is_where_it_was(
        self, kafka: EmbeddedKafka, reader: Reader
    ) -> None:
        """As where it finds a log truncated (KIP-320) and seeks by itself, until the next record.

        Were it where the assignment began, an auto-commit would take the group back to there.
        """
        topic = Topic(kafka, records=6)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            reader(fetcher, 6)
            assert fetcher.positions(topic.all)[topic[0]].offset == 6
            native = NativePartition(topic.name, 0, 6)
            fetcher._consumer.seek(native)
            position = fetcher._consumer.position
            wait_until(lambda: position([native])[0].offset < 0, "it is known")
            assert fetcher.positions(topic.all)[topic[0]].offset == 6

    @pytest.mark.parametrize("value", [None, 5, [1], "é"])
    def test_a_value_that_its_user_sets_may_be_anything(
        self, kafka: EmbeddedKafka, reader: Reader, value: Any
    ) -> None:
        """A deserializer does, of a message that is noted here."""
        topic = Topic(kafka, records=6)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            for offset in range(6):
                (message,) = reader(fetcher, 1)
                message.set_value(value)
                assert message.offset() == offset

    def test_the_end_of_a_partition_comes_after_its_records_and_is_no_position(
        self, kafka: EmbeddedKafka, reader: Reader
    ) -> None:
        topic = Topic(kafka, records=6)
        with fetcher_of(kafka, enable_partition_eof=True) as fetcher:
            fetcher.add(topic.at(0))
            messages = reader(fetcher, 7)
            error = messages[-1].error()
            assert error is not None
            assert error.code() == KafkaError._PARTITION_EOF
            assert offsets(messages[:-1]) == {topic[0]: list(range(6))}
            assert fetcher.positions(topic.all)[topic[0]].offset == 6

    def test_takes_no_more_than_asked_for(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=50)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            first = read(fetcher, 1)  # what else was fetched is buffered now
            second = take(fetcher, 10)
            assert fetcher.take(0, 0) == []
            assert offsets(first + second) == {topic[0]: list(range(11))}

    @pytest.mark.parametrize("n", [-1, 1_000_001])
    def test_refuses_what_confluent_refuses_and_loses_nothing(
        self, kafka: EmbeddedKafka, n: int
    ) -> None:
        topic = Topic(kafka, records=20)
        with fetcher_of(kafka) as fetcher:
            with pytest.raises(ValueError, match="num"):
                fetcher.take(n, 0)
            fetcher.add(topic.at(0))
            first = read(fetcher, 5)
            with pytest.raises(ValueError, match="num"):
                fetcher.take(2 * n, 0)
            assert offsets(first + take(fetcher, 15)) == {topic[0]: list(range(20))}

    def test_large_records_are_prefetched_in_smaller_batches(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka, prefetch=500) as fetcher:
            topic = Topic(kafka, records=30)
            fetcher.add(topic.at(0))
            fetcher._batches.size = 2
            read(fetcher, 30)
            assert fetcher._batches.size == 500


class TestPositions:
    def test_they_count_what_was_delivered_not_what_is_buffered(
        self, kafka: EmbeddedKafka, reader: Reader
    ) -> None:
        topic = Topic(kafka, partitions=3, records=50)
        with fetcher_of(kafka, prefetch=40) as fetcher:
            fetcher.add(topic.at(0))
            following = dict.fromkeys(topic.all, 0)
            for _ in range(50):
                for message in reader(fetcher, 3):
                    following[partition_of(message)] += 1
                positions = fetcher.positions(topic.all)
                assert {of: at.offset for of, at in positions.items()} == following

    def test_before_the_first_record_they_are_the_start_as_given(
        self, kafka: EmbeddedKafka
    ) -> None:
        topic = Topic(kafka, partitions=2, records=10)
        start = OffsetAndMetadata(offset=4, leader_epoch=-1, metadata="the user's")
        with fetcher_of(kafka) as fetcher:
            fetcher.add({topic[0]: start})
            assert fetcher.positions(topic.all) == {topic[0]: start}
            read(fetcher, 6)
            assert fetcher.positions(topic.all)[topic[0]].offset == 10

    def test_a_logical_start_is_unknown_until_a_record_comes(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=4)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(OFFSET_END))
            assert fetcher.positions(topic.all) == {}
            until(
                lambda: fetcher.get_watermark_offsets(native(topic[0]), cached=True)[1] == 4,
                lambda: fetcher.next(SLICE),
            )
            topic.produce(1)
            read(fetcher, 1)
            assert fetcher.positions(topic.all)[topic[0]].offset == 5

    def test_partitions_not_fetched_have_none(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=1)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            read(fetcher, 2)
            fetcher.remove(topic.only(0))
            assert fetcher.positions(topic.all).keys() == {topic[1]}

    def test_a_partition_added_again_stands_at_its_new_start(self, kafka: EmbeddedKafka) -> None:
        # librdkafka keeps showing the old position until it has stopped the partition.
        topic = Topic(kafka, partitions=200, records=3)
        with fetcher_of(kafka) as fetcher:
            for _ in range(20):
                fetcher.add(topic.at(2))
                read(fetcher, 200)
                fetcher.remove(topic.all)
                fetcher.add(topic.at(1))
                assert fetcher.positions(topic.all) == topic.at(1)
                fetcher.remove(topic.all)


class TestSeek:
    @pytest.mark.parametrize("target", [0, 3, 90])
    def test_drops_what_is_buffered_and_moves_at_once(
        self, kafka: EmbeddedKafka, reader: Reader, target: int
    ) -> None:
        topic = Topic(kafka, partitions=2, records=100)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            read(fetcher, 20)
            fetcher.seek(topic[0], target)
            assert fetcher.positions(topic.all) == topic.at(target, 0)
            assert offsets(reader(fetcher, 100 - target)) == {topic[0]: list(range(target, 100))}

    def test_leaves_other_partitions_alone(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=100)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            messages = read(fetcher, 150)
            fetcher.seek(topic[0], 99)
            seen = offsets(messages)
            left = 100 - len(seen.get(topic[1], []))
            after = offsets(read(fetcher, left + 1))
            assert after[topic[0]] == [99]
            assert seen.get(topic[1], []) + after.get(topic[1], []) == list(range(100))

    def test_works_right_after_add(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=20, records=10)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            for of in topic.all:
                fetcher.seek(of, 8)
            assert fetcher.positions(topic.all) == topic.at(8)
            assert offsets(read(fetcher, 40)) == {of: [8, 9] for of in topic.all}

    def test_a_paused_partition_stays_paused_and_resumes_there(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=50)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            read(fetcher, 10)
            fetcher.pause(topic.all)
            fetcher.seek(topic[0], 45)
            assert fetcher.next(SLICE) is None
            assert fetcher.positions(topic.all) == topic.at(45)
            fetcher.resume(topic.all)
            assert offsets(read(fetcher, 5)) == {topic[0]: [45, 46, 47, 48, 49]}

    def test_a_partition_that_is_not_fetched_can_not_be_sought(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=1)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            with pytest.raises(KafkaException):
                fetcher.seek(topic[1], 0)
            assert fetcher.assignment() == topic.only(0)


class TestAssignment:
    def test_nothing_of_a_removed_partition_is_delivered(
        self, kafka: EmbeddedKafka, reader: Reader
    ) -> None:
        topic = Topic(kafka, partitions=2, records=300)
        with fetcher_of(kafka, prefetch=100) as fetcher:
            fetcher.add(topic.at(0))
            before = offsets(reader(fetcher, 30))
            fetcher.remove(topic.only(0))
            assert fetcher.assignment() == topic.only(1)
            kept = before.get(topic[1], [])
            after = offsets(reader(fetcher, 300 - len(kept)))
            assert after.keys() == {topic[1]}
            assert kept + after[topic[1]] == list(range(300))
            assert fetcher.next(SLICE) is None

    def test_removing_and_adding_again_starts_anew(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=300)
        with fetcher_of(kafka, prefetch=50) as fetcher:
            for start in (0, 200, 100, 290):
                fetcher.add(topic.at(start))
                assert offsets(read(fetcher, 5)) == {topic[0]: list(range(start, start + 5))}
                fetcher.remove(topic.all)

    def test_kept_partitions_flow_while_others_come_and_go(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=6, records=500)
        kept = topic.only(0, 1)
        with fetcher_of(kafka, prefetch=20) as fetcher:
            fetcher.add(topic.at(0, 0, 1))
            messages: list[Message] = []

            def churn() -> None:
                fetcher.add(topic.at(0, 2, 3, 4, 5))
                messages.extend(fetcher.take(30, SLICE))
                fetcher.remove(topic.only(2, 3, 4, 5))
                messages.extend(m for m in [fetcher.next(SLICE)] if m is not None)

            until(lambda: sum(partition_of(m) in kept for m in messages) >= 1000, churn)
            found = offsets(messages)
        assert {of: found[of] for of in kept} == {of: list(range(500)) for of in kept}

    @pytest.mark.parametrize("held", [False, True])
    def test_adding_twice_is_refused_and_changes_nothing(
        self, kafka: EmbeddedKafka, held: bool
    ) -> None:
        topic = Topic(kafka, partitions=2, records=2)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            fetcher.hold(held)
            with pytest.raises(KafkaException) as refused:
                fetcher.add(topic.at(1))
            assert refused.value.args[0].code() == KafkaError._CONFLICT
            assert fetcher.assignment() == topic.only(0)
            fetcher.hold(False)
            assert offsets(read(fetcher, 2)) == {topic[0]: [0, 1]}

    @pytest.mark.parametrize("held", [False, True])
    def test_removing_what_is_not_fetched_is_refused_and_changes_nothing(
        self, kafka: EmbeddedKafka, held: bool
    ) -> None:
        topic = Topic(kafka, partitions=2, records=2)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            fetcher.hold(held)
            with pytest.raises(KafkaException) as refused:
                fetcher.remove(topic.all)
            assert refused.value.args[0].code() == KafkaError._INVALID_ARG
            assert fetcher.assignment() == topic.only(0)
            fetcher.hold(False)
            assert offsets(read(fetcher, 2)) == {topic[0]: [0, 1]}

    def test_discard_removes_everything(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=3, records=20)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            read(fetcher, 10)
            fetcher.discard()
            fetcher.discard()
            assert fetcher.assignment() == NO_PARTITIONS
            assert fetcher.next(SLICE) is None

    def test_nothing_to_add_or_remove_is_fine(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka) as fetcher:
            fetcher.add({})
            fetcher.remove(NO_PARTITIONS)
            assert fetcher.assignment() == NO_PARTITIONS

    @pytest.mark.parametrize("offset", [OFFSET_STORED, OFFSET_INVALID, -5])
    def test_what_is_no_offset_to_start_from_is_refused(
        self, kafka: EmbeddedKafka, offset: int
    ) -> None:
        topic = Topic(kafka, records=1)
        with fetcher_of(kafka) as fetcher:
            with pytest.raises(KafkaException) as refused:
                fetcher.add(topic.at(offset))
            assert refused.value.args[0].code() == KafkaError._INVALID_ARG
            fetcher.add(topic.at(0))
            with pytest.raises(KafkaException):
                fetcher.seek(topic[0], offset)
            assert fetcher.positions(topic.all) == topic.at(0)


class TestPause:
    def test_nothing_is_delivered_until_resume_and_nothing_is_lost(
        self, kafka: EmbeddedKafka, reader: Reader
    ) -> None:
        topic = Topic(kafka, partitions=2, records=200)
        with fetcher_of(kafka, prefetch=60) as fetcher:
            fetcher.add(topic.at(0))
            messages = reader(fetcher, 30)
            fetcher.pause(topic.only(0))
            assert fetcher.paused() == topic.only(0)
            position = fetcher.positions(topic.only(0))
            left = 200 - len(offsets(messages).get(topic[1], []))
            while_paused = reader(fetcher, left)
            assert offsets(while_paused).keys() == {topic[1]}
            assert fetcher.take(10, SLICE) == []
            assert fetcher.positions(topic.only(0)) == position
            fetcher.resume(topic.only(0))
            assert fetcher.paused() == NO_PARTITIONS
            messages += while_paused + reader(fetcher, 400 - len(messages) - len(while_paused))
            assert offsets(messages) == {of: list(range(200)) for of in topic.all}

    def test_again_and_again(self, kafka: EmbeddedKafka, reader: Reader) -> None:
        topic = Topic(kafka, partitions=2, records=150)
        messages: list[Message] = []
        with fetcher_of(kafka, prefetch=10) as fetcher:
            fetcher.add(topic.at(0))
            while len(messages) < 300:
                messages += reader(fetcher, min(15, 300 - len(messages)))
                fetcher.pause(topic.only(len(messages) % 2))
                fetcher.pause(topic.all)
                fetcher.resume(topic.all)
        assert offsets(messages) == {of: list(range(150)) for of in topic.all}

    def test_before_the_first_record(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=5)
        for start in (2, OFFSET_BEGINNING):
            with fetcher_of(kafka) as fetcher:
                fetcher.add(topic.at(start))
                fetcher.pause(topic.all)
                assert fetcher.next(SLICE) is None
                fetcher.resume(topic.all)
                first = max(start, 0)
                assert offsets(read(fetcher, 5 - first)) == {topic[0]: list(range(first, 5))}

    def test_the_flag_lasts_while_the_partition_is_kept(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=3, records=10)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0, 1))
            fetcher.pause(topic.only(0))
            fetcher.remove(topic.only(1))
            fetcher.add(topic.at(0, 2))
            assert fetcher.paused() == topic.only(0)
            assert offsets(read(fetcher, 10)) == {topic[2]: list(range(10))}
            assert fetcher.next(SLICE) is None

    def test_the_flag_is_gone_once_lost_and_regained(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=10)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            fetcher.pause(topic.all)
            fetcher.remove(topic.all)
            fetcher.add(topic.at(0))
            assert fetcher.paused() == NO_PARTITIONS
            assert offsets(read(fetcher, 10)) == {topic[0]: list(range(10))}

    def test_what_was_held_back_goes_with_its_partition(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=100)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            read(fetcher, 10)
            fetcher.pause(topic.all)
            fetcher.remove(topic.only(0))
            fetcher.resume(topic.all)
            assert fetcher.next(SLICE) is None

    def test_partitions_not_fetched_are_left_out(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=5)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            fetcher.pause(topic.only(1))
            assert fetcher.paused() == NO_PARTITIONS
            fetcher.add(topic.at(0, 1))
            assert offsets(read(fetcher, 10)).keys() == {topic[0], topic[1]}


class TestHold:
    def test_nothing_is_delivered_and_nothing_is_lost(
        self, kafka: EmbeddedKafka, reader: Reader
    ) -> None:
        topic = Topic(kafka, partitions=2, records=100)
        with fetcher_of(kafka, prefetch=30) as fetcher:
            fetcher.add(topic.at(0))
            messages = reader(fetcher, 10)
            positions = fetcher.positions(topic.all)
            fetcher.hold(True)
            fetcher.hold(True)
            assert fetcher.next(SLICE) is None
            assert fetcher.take(50, SLICE) == []
            assert fetcher.positions(topic.all) == positions
            assert fetcher.paused() == NO_PARTITIONS
            fetcher.hold(False)
            messages += reader(fetcher, 190)
            assert offsets(messages) == {of: list(range(100)) for of in topic.all}

    def test_callbacks_are_served(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, records=100)
        calls: list[str] = []
        with fetcher_of(kafka, statistics_interval_ms=20, stats_cb=calls.append) as fetcher:
            fetcher.add(topic.at(0))
            read(fetcher, 1)
            fetcher.hold(True)
            calls.clear()
            until(lambda: len(calls) > 2, lambda: fetcher.next(SLICE))

    def test_paused_partitions_stay_paused_and_may_be_resumed_meanwhile(
        self, kafka: EmbeddedKafka
    ) -> None:
        topic = Topic(kafka, partitions=3, records=20)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            first = read(fetcher, 5)
            fetcher.pause(topic.only(0, 1))
            fetcher.hold(True)
            fetcher.resume(topic.only(1))
            fetcher.pause(topic.only(2))
            assert fetcher.paused() == topic.only(0, 2)
            assert fetcher.next(SLICE) is None
            fetcher.hold(False)
            seen = offsets(first)
            more = offsets(read(fetcher, 20 - len(seen.get(topic[1], []))))
            assert more.keys() == {topic[1]}
            assert fetcher.next(SLICE) is None

    def test_partitions_may_come_and_go_meanwhile(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=20)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0, 0))
            read(fetcher, 5)
            fetcher.hold(True)
            fetcher.remove(topic.only(0))
            fetcher.add(topic.at(3, 1))
            assert fetcher.next(SLICE) is None
            fetcher.hold(False)
            assert offsets(read(fetcher, 17)) == {topic[1]: list(range(3, 20))}


class TestGroup:
    def test_librdkafka_neither_joins_nor_commits(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=20)
        kafka.track_requests()
        with fetcher_of(
            kafka,
            enable_auto_commit=True,
            auto_commit_interval_ms=10,
            enable_auto_offset_store=True,
            auto_offset_reset="earliest",
        ) as fetcher:
            fetcher.add(topic.at(0, 0) | topic.at(99, 1))
            read(fetcher, 40)
            fetcher.seek(topic[0], 3)
            read(fetcher, 17)
            fetcher.remove(topic.only(0))
        asked = {request.api for request in kafka.requests()}
        assert "Fetch" in asked
        assert asked.isdisjoint(
            {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"}
        )


class TestQueries:
    def test_watermarks_times_metadata_and_cluster(self, kafka: EmbeddedKafka) -> None:
        topic = Topic(kafka, partitions=2, records=5)
        with fetcher_of(kafka) as fetcher:
            assert fetcher.get_watermark_offsets(native(topic[1]), 5.0) == (0, 5)
            (found,) = fetcher.offsets_for_times([native(topic[0], OFFSET_END)], 5.0)
            assert found.offset == 5
            assert set(fetcher.list_topics(topic.name, 5.0).topics[topic.name].partitions) == {0, 1}
            assert topic.name in fetcher.list_topics(timeout=5.0).topics
            assert fetcher.cluster_id(5.0)
            fetcher.set_sasl_credentials("user", "secret")


class TestClose:
    def test_twice_is_harmless(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka) as fetcher:
            fetcher.close()
            fetcher.close()

    CALLS: dict[str, Callable[[Fetcher, Topic], Any]] = {  # noqa: RUF012  # never written to
        "add": lambda f, t: f.add(t.at(0)),
        "remove": lambda f, t: f.remove(t.all),
        "next": lambda f, _: f.next(0),
        "take": lambda f, _: f.take(1, 0),
        "positions": lambda f, t: f.positions(t.all),
        "seek": lambda f, t: f.seek(t[0], 0),
        "pause": lambda f, t: f.pause(t.all),
        "resume": lambda f, t: f.resume(t.all),
        "hold": lambda f, _: f.hold(True),
        "watermarks": lambda f, t: f.get_watermark_offsets(native(t[0])),
        "offsets_for_times": lambda f, t: f.offsets_for_times([native(t[0])]),
        "list_topics": lambda f, _: f.list_topics(),
        "cluster_id": lambda f, _: f.cluster_id(),
        "set_sasl_credentials": lambda f, _: f.set_sasl_credentials("u", "p"),
    }

    @pytest.mark.parametrize("call", list(CALLS))
    def test_calls_after_it_raise_as_confluents_do(self, kafka: EmbeddedKafka, call: str) -> None:
        topic = Topic(kafka, records=20)
        with fetcher_of(kafka) as fetcher:
            fetcher.add(topic.at(0))
            read(fetcher, 2)  # the rest is buffered
            fetcher.close()
            with pytest.raises(RuntimeError, match="closed"):
                self.CALLS[call](fetcher, topic)


class TestConstruction:
    def test_librdkafka_judges_the_configuration(self) -> None:
        with pytest.raises(KafkaException) as refused:
            Fetcher({"group.id": "g", "no.such.key": 1})
        assert refused.value.args[0].code() == KafkaError._INVALID_ARG

    def test_statistics_reach_the_callback(self, kafka: EmbeddedKafka) -> None:
        seen: list[str] = []
        with fetcher_of(kafka, statistics_interval_ms=20, stats_cb=seen.append) as fetcher:
            until(lambda: bool(seen), lambda: fetcher.next(SLICE))
        assert json.loads(seen[0])["type"] == "consumer"


def native(of: TopicPartition, offset: int = OFFSET_INVALID) -> NativePartition:
    return NativePartition(of.topic, of.partition, offset)
