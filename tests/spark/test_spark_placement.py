"""Which task reads what, when it is its worker that decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.spark.admission import Part, gather, split
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.placement import ForgottenError, Placement
from kafka_coop.types import TopicPartition

WORKERS = ("first", "second", "third")


def portion(start: int, stop: int, *partitions: int) -> list[Part]:
    return [(TopicPartition("a", partition), Range(start, stop)) for partition in partitions]


@given(
    st.dictionaries(st.integers(0, 6), st.integers(1, 30), min_size=1),
    st.integers(1, 5),
    st.integers(1, 5),
    st.data(),
)
def test_tasks_read_all_of_a_batch_once_and_each_the_same_every_time(
    sizes: dict[int, int], least: int, most: int, data: st.DataObject
) -> None:
    """In any order, by any worker, again and again, of two batches at once."""
    placement = Placement()
    ranges = {TopicPartition("a", p): Range(3, 3 + size) for p, size in sizes.items()}
    portions = gather(split(ranges, min_tasks=least, max_records=None), max(least, most))
    batches = [placement.plan(portions), placement.plan(portions)]
    tasks = [(batch, task) for batch in batches for task in range(len(portions))]
    asked = data.draw(st.lists(st.sampled_from(tasks), max_size=20)) + data.draw(
        st.permutations(tasks)
    )
    told: dict[tuple[int, int], object] = {}
    for one in asked:
        reads = placement.give(*one, data.draw(st.sampled_from(WORKERS)))
        assert told.setdefault(one, reads) == reads
    for batch in batches:
        reads_all = [told[batch, task] for task in range(len(portions))]
        assert sorted(map(repr, reads_all)) == sorted(map(repr, portions))


@given(st.lists(st.permutations(WORKERS), min_size=2, max_size=6))
def test_whoever_comes_first_reads_on_where_it_stands(orders: list[tuple[str, ...]]) -> None:
    placement = Placement()
    reads: dict[str, set[int]] = {}
    for n, order in enumerate(orders):
        batch = placement.plan([portion(10 * n, 10 * n + 10, 2 * p, 2 * p + 1) for p in range(3)])
        for task, worker in enumerate(order):
            of = {of.partition for of, _ in placement.give(batch, task, worker)}
            assert reads.setdefault(worker, of) == of


def test_a_new_worker_leaves_the_others_what_they_stand_at() -> None:
    placement = Placement()
    batch = placement.plan([portion(0, 10, 0), portion(0, 10, 1)])
    placement.give(batch, 0, "first")
    placement.give(batch, 1, "second")
    batch = placement.plan([portion(10, 20, 0), portion(10, 20, 1), portion(0, 10, 2)])
    assert placement.give(batch, 0, "third") == portion(0, 10, 2)
    assert placement.give(batch, 1, "second") == portion(10, 20, 1)
    assert placement.give(batch, 2, "third") == portion(10, 20, 0)


def test_of_a_partition_in_pieces_the_next_batch_goes_to_who_read_the_last() -> None:
    placement = Placement()
    batch = placement.plan([portion(0, 10, 0), portion(10, 20, 0)])
    assert placement.give(batch, 1, "first") == portion(0, 10, 0)
    assert placement.give(batch, 0, "second") == portion(10, 20, 0)
    batch = placement.plan([portion(0, 5, 1), portion(20, 30, 0)])
    assert placement.give(batch, 0, "second") == portion(20, 30, 0)


def test_what_is_read_again_from_further_back_is_where_it_was_read_last() -> None:
    placement = Placement()
    placement.give(placement.plan([portion(0, 90, 0), portion(0, 10, 1)]), 0, "first")
    placement.give(placement.plan([portion(5, 10, 0)]), 0, "second")
    batch = placement.plan([portion(0, 10, 1), portion(10, 20, 0)])
    assert placement.give(batch, 0, "second") == portion(10, 20, 0)


@pytest.mark.parametrize(("batch", "task"), [(1, 0), (7, 0), (-1, 0), (6, 10_000), (6, -1)])
def test_what_nobody_knows_is_told(batch: int, task: int) -> None:
    """The first of six large batches, and those, and tasks, that there never were."""
    placement = Placement()
    for _ in range(6):
        last = placement.plan([portion(0, 10, p) for p in range(10_000)])
    placement.give(last - 4, 0, "first")
    with pytest.raises(ForgottenError):
        placement.give(batch, task, "first")


def test_what_is_kept_is_counted_in_ranges() -> None:
    """A task may have thousands of them: of two a batch, few batches are kept then."""
    placement = Placement()
    for _ in range(6):
        last = placement.plan([portion(0, 10, *range(10_000))])
    assert placement.give(last - 4, 0, "first")
    with pytest.raises(ForgottenError):
        placement.give(last - 5, 0, "first")
