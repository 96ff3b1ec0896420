"""Where to start: committed, reset, refused, or asked again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.config import OffsetReset
from kafka_coop.offsets.ledger import Ledger
from kafka_coop.offsets.responses import LIST_OFFSETS, OFFSET_FETCH, Reaction
from kafka_coop.offsets.starts import Starts, by_leader
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    FetchedOffset,
    ListedOffset,
    OffsetAndMetadata,
    OffsetsFetched,
    OffsetsListed,
)
from kafka_coop.types import NO_PARTITIONS, Partitions, TopicPartition

E = ErrorCode
A, B, C = (TopicPartition("t", p) for p in range(3))


def search(*partitions: TopicPartition, reset: OffsetReset = OffsetReset.EARLIEST) -> Starts:
    return Starts(reset=reset, unfetched=Partitions.of(partitions))


def fetched(
    offsets: dict[TopicPartition, FetchedOffset], error: ErrorCode = E.none
) -> OffsetsFetched:
    return OffsetsFetched(error=error, offsets=offsets)


# --- committed offsets ---------------------------------------------------------------------------


def test_a_committed_offset_is_where_to_start() -> None:
    starts = search(A)
    starts.fetched(fetched({A: FetchedOffset(offset=5, leader_epoch=2, metadata="m")}))
    assert starts.complete
    assert starts.committed == {A: OffsetAndMetadata(offset=5, leader_epoch=2, metadata="m")}


def test_what_was_asked_for_ahead_spares_a_question_where_it_says_something() -> None:
    starts = search(A, B, C)
    elsewhere = TopicPartition("u", 0)
    told = {A: 5, elsewhere: 9}
    offsets = {of: FetchedOffset(offset=offset) for of, offset in told.items()}
    offsets[B] = FetchedOffset(offset=7, error=E.unstable_offset_commit)
    starts.fetched_ahead(fetched(offsets))
    assert starts.committed == {A: OffsetAndMetadata(offset=5)}
    assert starts.unfetched == Partitions.of([B, C]), "an open transaction's, and one not asked for"
    assert not starts.failed


def test_what_was_asked_for_ahead_may_be_that_nothing_is_committed() -> None:
    starts = search(A)
    starts.fetched_ahead(fetched({A: FetchedOffset(offset=-1)}))
    assert starts.unlisted == {A: OFFSET_EARLIEST}


@pytest.mark.parametrize("offset", [0, 5])
def test_offset_zero_is_an_offset(offset: int) -> None:
    starts = search(A)
    starts.fetched(fetched({A: FetchedOffset(offset=offset)}))
    assert [at.offset for at in starts.committed.values()] == [offset]


@pytest.mark.parametrize(
    ("reset", "timestamp"),
    [(OffsetReset.EARLIEST, OFFSET_EARLIEST), (OffsetReset.LATEST, OFFSET_LATEST)],
)
def test_without_one_auto_offset_reset_says_what_to_ask(reset: OffsetReset, timestamp: int) -> None:
    starts = search(A, B, reset=reset)
    starts.fetched(fetched({A: FetchedOffset(offset=-1)}))  # and B is left out
    assert starts.unlisted == {A: timestamp, B: timestamp}
    starts.listed(OffsetsListed(offsets={A: ListedOffset(offset=3, leader_epoch=1)}))
    starts.listed(OffsetsListed(offsets={B: ListedOffset(offset=0, leader_epoch=-1)}))
    assert starts.complete
    assert starts.listed_at == {
        A: OffsetAndMetadata(offset=3, leader_epoch=1),
        B: OffsetAndMetadata(offset=0, leader_epoch=-1),
    }


def test_without_one_and_reset_error_there_is_no_start() -> None:
    starts = search(A, B, reset=OffsetReset.ERROR)
    starts.fetched(fetched({B: FetchedOffset(offset=4)}))
    assert (starts.without, set(starts.committed), starts.complete) == ([A], {B}, True)


@pytest.mark.parametrize("error", [e for e in E if e is not E.none])
@pytest.mark.parametrize("level", ["group", "partition"])
def test_each_error_of_a_fetch(error: ErrorCode, level: str) -> None:
    starts = search(A, B)
    if level == "group":
        starts.fetched(fetched({}, error))
        hit, rest = [A, B], []
    else:
        starts.fetched(
            fetched({A: FetchedOffset(offset=-1, error=error), B: FetchedOffset(offset=1)})
        )
        hit, rest = [A], [B]
    assert list(starts.committed) == rest
    if OFFSET_FETCH[error] is Reaction.RAISE:
        assert starts.failed == dict.fromkeys(hit, error)
        assert starts.complete
        assert starts.refused == Partitions.of(hit)
    else:
        assert list(starts.unfetched) == hit
        assert not starts.failed


def test_what_was_refused_is_told_once_and_asked_for_again() -> None:
    """A right may have been missing for a moment: the partition would stand still for ever."""
    starts = search(A, B)
    refused = FetchedOffset(offset=-1, error=E.topic_authorization_failed)
    starts.fetched(fetched({A: refused, B: FetchedOffset(offset=1)}))
    assert starts.failed.pop(A) is E.topic_authorization_failed
    assert starts.complete
    assert not starts.settled
    starts.ask_again()
    assert starts.unfetched == Partitions.of([A])
    starts.fetched(fetched({A: refused}))
    assert not starts.failed
    starts.ask_again()
    starts.fetched(fetched({A: FetchedOffset(offset=-1, error=E.group_authorization_failed)}))
    assert starts.failed == {A: E.group_authorization_failed}
    starts.ask_again()
    starts.fetched(fetched({A: FetchedOffset(offset=7)}))
    assert starts.committed[A].offset == 7
    assert starts.settled


def test_what_was_refused_and_is_not_wanted_any_more_is_not_asked_for() -> None:
    starts = search(A, B)
    starts.fetched(fetched({}, E.group_authorization_failed))
    starts.keep(lambda some: some & Partitions.of([B]))
    starts.ask_again()
    assert starts.unfetched == Partitions.of([B])
    starts.fetched(fetched({}, E.group_authorization_failed))
    starts.keep(lambda _: NO_PARTITIONS)
    assert starts.settled


# --- listed offsets ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [e for e in E if e is not E.none])
def test_each_error_of_a_listing(error: ErrorCode) -> None:
    starts = search(A)
    starts.fetched(fetched({}))
    starts.listed(OffsetsListed(offsets={A: ListedOffset(offset=-1, error=error)}))
    if LIST_OFFSETS[error] is Reaction.RAISE:
        assert (starts.failed, starts.complete) == ({A: error}, True)
        assert starts.refused == Partitions.of([A])
    else:
        assert (starts.failed, set(starts.unlisted)) == ({}, {A})
    assert not starts.listed_at


def test_answers_for_what_was_not_asked_are_nothing() -> None:
    starts = search(A)
    starts.fetched(fetched({A: FetchedOffset(offset=1), C: FetchedOffset(offset=9)}))
    starts.listed(OffsetsListed(offsets={B: ListedOffset(offset=3)}))
    assert set(starts.committed) == {A}
    assert not starts.listed_at


def test_each_leader_is_asked_for_its_own_and_nobody_for_what_none_leads() -> None:
    wanted = {C: 3, A: 1, B: 2, TopicPartition("u", 0): 4}
    assert by_leader(wanted, {A: 1, B: 2, C: 1, TopicPartition("u", 0): -1}) == {
        1: {A: 1, C: 3},
        2: {B: 2},
    }


@given(st.permutations([(A, 1), (B, 1), (C, 2)]))
def test_the_order_does_not_matter(order: list[tuple[TopicPartition, int]]) -> None:
    split = by_leader({p: 0 for p, _ in order}, dict(order))
    assert list(split) == [1, 2]
    assert list(split[1]) == [A, B]


# --- the ledger ----------------------------------------------------------------------------------


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset=offset)


def test_only_what_differs_from_the_last_commit_is_news() -> None:
    ledger = Ledger()
    assert ledger.news({A: at(0)}) == {A: at(0)}
    ledger.committed({A: at(3)}, ledger.next_commit())
    assert ledger.news({A: at(3), B: at(3)}) == {B: at(3)}
    assert ledger.news({A: at(2)}) == {A: at(2)}  # a seek backwards is meant


def test_a_commit_that_is_told_late_does_not_undo_what_a_later_one_has_told() -> None:
    """Asynchronous, it is reported inside poll; another thread's, that waits for it, at once."""
    ledger = Ledger()
    first, second = ledger.next_commit(), ledger.next_commit()
    ledger.committed({A: at(20)}, second)
    ledger.committed({A: at(10), B: at(10)}, first)
    assert ledger.news({A: at(10), B: at(10)}) == {A: at(10)}


def test_a_committed_start_is_no_news_and_a_reset_one_is() -> None:
    ledger = Ledger()
    ledger.started({A: at(7)})
    assert ledger.news({A: at(7), B: at(7)}) == {B: at(7)}


class TestStoredOffsets:
    def test_last_until_the_partition_goes(self) -> None:
        ledger = Ledger()
        ledger.store({A: at(1), B: at(2)})
        ledger.store({A: at(4)})
        both = Partitions.of([A, B])
        assert ledger.news_stored(both) == {A: at(4), B: at(2)}
        assert ledger.news_stored(NO_PARTITIONS) == {}
        ledger.forget(Partitions.of([A]))
        assert ledger.news_stored(both) == {B: at(2)}
        # Regained: whatever it stands at then has to be committed anew.
        ledger.committed({B: at(2)}, ledger.next_commit())
        assert ledger.news({A: at(4), B: at(2)}) == {A: at(4)}

    def test_of_a_slow_worker_undo_nothing(self) -> None:
        ledger = Ledger()
        ledger.committed({A: at(16)}, ledger.next_commit())
        ledger.store({A: at(4)})
        assert ledger.news_stored(Partitions.of([A])) == {}

    def test_of_who_has_sought_back_are_meant_until_they_are_committed(self) -> None:
        ledger, this = Ledger(), Partitions.of([A])
        under_way = ledger.next_commit()
        ledger.sought(A)
        ledger.committed({A: at(16)}, under_way)
        ledger.store({A: at(4)})
        assert ledger.news_stored(this) == {A: at(4)}
        ledger.committed({A: at(4)}, ledger.next_commit())
        ledger.store({A: at(3)})
        assert ledger.news_stored(this) == {}
