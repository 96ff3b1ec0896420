"""One commit on its way: each cell of its error table, and what is sent when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.offsets.commits import Commit, Next, first_error
from kafka_coop.offsets.responses import COMMIT, LIST_OFFSETS, OFFSET_FETCH, Reaction
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata, OffsetsCommitted
from kafka_coop.types import Generation, GroupMetadata, MemberId, Partitions, TopicPartition

E = ErrorCode
ME = GroupMetadata(group_id="g", generation=Generation(7), member_id=MemberId("m"))
A, B, C = (TopicPartition("t", p) for p in range(3))


def commit_of(*partitions: TopicPartition) -> Commit:
    return Commit(offsets={p: OffsetAndMetadata(offset=10 + p.partition) for p in partitions})


def ours(_: TopicPartition) -> bool:
    return True


def answer(errors: dict[TopicPartition, ErrorCode]) -> OffsetsCommitted:
    return OffsetsCommitted(errors=errors)


# --- the tables, cell by cell ------------------------------------------------------------------

COMMIT_ROWS = {
    E.none: Reaction.DONE,
    E.unknown_topic_or_partition: Reaction.RETRY_BRIEFLY,
    E.coordinator_load_in_progress: Reaction.RETRY,
    E.coordinator_not_available: Reaction.REDISCOVER,
    E.not_coordinator: Reaction.REDISCOVER,
    E.request_timed_out: Reaction.REDISCOVER,
    E.rebalance_in_progress: Reaction.REJUDGE,
    E.illegal_generation: Reaction.REJUDGE,
    E.unknown_member_id: Reaction.REJUDGE,
    E.fenced_instance_id: Reaction.REJUDGE,
}
OFFSET_FETCH_GIVES_UP = {
    E.unknown_topic_or_partition,
    E.topic_authorization_failed,
    E.group_authorization_failed,
}


@pytest.mark.parametrize("error", E)
def test_every_cell_of_the_commit_table(error: ErrorCode) -> None:
    assert COMMIT[error] is COMMIT_ROWS.get(error, Reaction.RAISE)


@pytest.mark.parametrize("error", E)
def test_every_cell_of_the_offset_fetch_table(error: ErrorCode) -> None:
    if error is E.none:
        expected = Reaction.DONE
    elif error in (E.coordinator_not_available, E.not_coordinator):
        expected = Reaction.REDISCOVER
    elif error in OFFSET_FETCH_GIVES_UP:
        expected = Reaction.RAISE
    elif error.retriable or error is E.unstable_offset_commit:
        expected = Reaction.RETRY
    else:
        expected = Reaction.RAISE
    assert OFFSET_FETCH[error] is expected


@pytest.mark.parametrize("error", E)
def test_every_cell_of_the_list_offsets_table(error: ErrorCode) -> None:
    retried = Reaction.RETRY if error.retriable else Reaction.RAISE
    assert LIST_OFFSETS[error] is (Reaction.DONE if error is E.none else retried)


# --- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", E)
def test_what_each_error_does_to_a_commit(error: ErrorCode) -> None:
    commit = commit_of(A)
    commit.request(ME, is_ours=ours)
    upshot = commit.answered(answer({A: error}))
    match COMMIT[error]:
        case Reaction.DONE | Reaction.RAISE:
            assert (upshot, commit.results, commit.offsets) == (Next.FINISHED, {A: error}, {})
        case Reaction.REDISCOVER:
            assert (upshot, commit.results) == (Next.REDISCOVER, {})
        case Reaction.REJUDGE:
            assert (upshot, commit.results, commit.refusal) == (Next.REJUDGE, {}, error)
        case _:
            assert (upshot, commit.results) == (Next.AGAIN, {})


@pytest.mark.parametrize(
    "error", [e for e, reaction in COMMIT_ROWS.items() if reaction is Reaction.REJUDGE]
)
def test_without_a_membership_there_is_nothing_to_rejudge(error: ErrorCode) -> None:
    commit = commit_of(A)
    commit.request(ME, is_ours=ours)
    assert commit.answered(answer({A: error}), as_member=False) is Next.FINISHED
    assert commit.results == {A: error}


def test_a_deleted_topic_is_tried_three_times() -> None:
    """KAFKA-16224: it would answer so for ever, and hold the rebalance up."""
    commit, asked = commit_of(A), 0
    while commit.request(ME, is_ours=ours) is not None:
        commit.answered(answer({A: E.unknown_topic_or_partition}))
        asked += 1
    assert asked == 3
    assert commit.results == {A: E.unknown_topic_or_partition}


def test_what_is_done_is_not_sent_again() -> None:
    commit = commit_of(A, B)
    commit.request(ME, is_ours=ours)
    assert commit.answered(answer({A: E.none, B: E.coordinator_load_in_progress})) is Next.AGAIN
    again = commit.request(ME, is_ours=ours)
    assert again is not None
    assert set(again.offsets) == {B}


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A)])
def test_the_gravest_reaction_decides(order: tuple[TopicPartition, ...]) -> None:
    commit = commit_of(*order)
    commit.request(ME, is_ours=ours)
    errors = {A: E.coordinator_load_in_progress, B: E.not_coordinator, C: E.none}
    assert commit.answered(answer(errors)) is Next.REDISCOVER


def test_a_partition_that_the_answer_leaves_out_has_failed() -> None:
    commit = commit_of(A, B)
    commit.request(ME, is_ours=ours)
    assert commit.answered(answer({A: E.none})) is Next.FINISHED
    assert commit.results == {A: E.none, B: E.unknown_server_error}


# --- ownership -----------------------------------------------------------------------------------


def test_a_request_carries_the_identity_of_its_moment() -> None:
    commit = commit_of(A)
    for generation in (7, 8):
        identity = GroupMetadata(
            group_id="g",
            generation=Generation(generation),
            member_id=MemberId(f"m{generation}"),
            instance_id="i",
        )
        request = commit.request(identity, is_ours=ours)
        assert request is not None
        assert (request.generation, request.member_id) == (generation, f"m{generation}")
        assert (request.group_id, request.instance_id) == ("g", "i")


def test_what_is_not_ours_never_reaches_the_broker() -> None:
    commit = commit_of(A, B)
    request = commit.request(ME, is_ours=lambda p: p == A)
    assert request is not None
    assert set(request.offsets) == {A}
    assert commit.results == {B: E.illegal_generation}
    assert commit_of(B).request(ME, is_ours=lambda _: False) is None


def test_what_was_disowned_is_never_sent_though_it_came_back() -> None:
    """Another member may have committed further in between: ours would rewind the group."""
    commit = commit_of(A, B)
    commit.disown(Partitions.of([A]))
    request = commit.request(ME, is_ours=ours)
    assert request is not None
    assert set(request.offsets) == {B}
    assert commit.results == {A: E.illegal_generation}


@pytest.mark.parametrize("error", E)
def test_disowned_on_its_way_the_answer_counts_and_no_retry_follows(error: ErrorCode) -> None:
    commit = commit_of(A)
    commit.request(ME, is_ours=ours)
    commit.disown(Partitions.of([A]))
    commit.answered(answer({A: error}))
    assert commit.request(ME, is_ours=ours) is None
    final = COMMIT[error] in (Reaction.DONE, Reaction.RAISE)
    assert commit.results == {A: error if final else E.illegal_generation}


def test_giving_up_fails_what_is_left() -> None:
    commit = commit_of(A, B)
    commit.request(ME, is_ours=ours)
    commit.answered(answer({A: E.none, B: E.not_coordinator}))
    commit.give_up(E.request_timed_out)
    assert commit.results == {A: E.none, B: E.request_timed_out}
    assert commit.offsets == {}


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 4)),
        st.lists(st.sampled_from(E), max_size=6),
    )
)
def test_each_partition_ends_once_whatever_the_answers(
    first: dict[TopicPartition, list[ErrorCode]],
) -> None:
    commit = commit_of(*first)
    for nth in range(6):
        if commit.request(ME, is_ours=ours) is None:
            break
        before = dict(commit.results)
        commit.answered(answer({p: errors[nth] for p, errors in first.items() if errors[nth:]}))
        assert before.items() <= commit.results.items()
        assert set(commit.results) | set(commit.offsets) == set(first)
        assert not set(commit.results) & set(commit.offsets)
    commit.give_up(E.request_timed_out)
    assert set(commit.results) == set(first)


def test_the_first_error_stands_for_all() -> None:
    assert first_error({}) is E.none
    assert first_error({A: E.none}) is E.none
    assert first_error({C: E.not_coordinator, B: E.illegal_generation, A: E.none}) is (
        E.illegal_generation
    )
