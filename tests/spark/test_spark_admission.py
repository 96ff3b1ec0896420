from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.spark.admission import Delay, gather, limit_offsets, split
from kafka_coop.spark.offsets import Range
from kafka_coop.types import TopicPartition

spans = st.builds(
    lambda start, size: Range(start, start + size),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 20) | st.integers(0, 3),
)
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9))
backlogs = st.dictionaries(partitions, spans, max_size=12)


@given(backlogs, st.none() | st.integers(1, 1 << 21))
def test_a_batch_takes_exactly_what_it_may_and_only_prefixes(
    available: dict[TopicPartition, Range], most: int | None
) -> None:
    taken = limit_offsets(available, most)
    there = sum(span.size for span in available.values())
    assert sum(span.size for span in taken.values()) == (
        there if most is None else min(most, there)
    )
    for of, span in taken.items():
        assert span.size > 0
        assert span.start == available[of].start
        assert span.stop <= available[of].stop


@given(backlogs.filter(bool), st.integers(1, 1 << 21))
def test_shares_follow_what_partitions_have(
    available: dict[TopicPartition, Range], most: int
) -> None:
    waiting = {of: span for of, span in available.items() if span.size}
    total = sum(span.size for span in waiting.values())
    if most < len(waiting) or total <= most:
        return
    for of, span in limit_offsets(available, most).items():
        exact = most * waiting[of].size / total
        assert exact - len(waiting) - 1 <= span.size <= exact + len(waiting) + 1


@given(backlogs, st.integers(1, 5))
def test_no_partition_starves_beside_larger_ones(
    available: dict[TopicPartition, Range], most: int
) -> None:
    """Batch after batch, each partition is served although none of them ever runs dry."""
    waiting = {of: Range(s.start, s.start + 10_000) for of, s in available.items()}
    served: set[TopicPartition] = set()
    for _ in range(3 * len(waiting)):
        taken = limit_offsets(waiting, most)
        served |= taken.keys()
        waiting |= {of: Range(span.stop, span.stop + 10_000) for of, span in taken.items()}
    assert served == waiting.keys()


@given(backlogs, st.none() | st.integers(1, 40), st.none() | st.integers(1000, 1 << 20))
def test_tasks_are_together_exactly_the_ranges(
    ranges: dict[TopicPartition, Range], tasks: int | None, most: int | None
) -> None:
    parts = split(ranges, min_tasks=tasks, max_records=most)
    for of, span in ranges.items():
        mine = sorted(part for at, part in parts if at == of)
        assert [p.start for p in mine][:1] == ([span.start] if span.size else [])
        assert [p.stop for p in mine][-1:] == ([span.stop] if span.size else [])
        assert all(a.stop == b.start for a, b in pairwise(mine))
        assert all(p.size > 0 for p in mine)
        assert most is None or all(p.size <= most for p in mine)
    if tasks is not None:
        assert len(parts) >= min(tasks, sum(span.size for span in ranges.values()))


@given(backlogs, st.none() | st.integers(1, 40), st.integers(1, 10))
def test_few_tasks_have_all_parts_in_order(
    ranges: dict[TopicPartition, Range], least: int | None, most: int
) -> None:
    parts = split(ranges, min_tasks=least, max_records=None)
    tasks = gather(parts, most)
    assert [part for task in tasks for part in task] == parts
    assert len(tasks) <= most
    assert all(tasks)
    assert gather(parts, None) == [(part,) for part in parts]
    largest = max((span.size for _, span in parts), default=0)
    share = sum(span.size for _, span in parts) / most
    for task in tasks:
        assert sum(span.size for _, span in task) <= share + largest


def test_one_large_partition_is_divided_before_small_ones() -> None:
    large, small = TopicPartition("a", 0), TopicPartition("a", 1)
    parts = split({large: Range(0, 900), small: Range(0, 100)}, min_tasks=10, max_records=None)
    assert sorted(part.size for _, part in parts) == [100] * 10


@pytest.mark.parametrize(
    ("least", "offsets", "since", "held_back"),
    [
        (None, 1, 1, False),
        (100, 100, 1, False),
        (100, 99, 59, True),
        (100, 99, 60, False),
        (100, 99, None, False),
    ],
)
def test_small_batches_wait_but_not_for_ever(
    least: int | None, offsets: int, since: int | None, held_back: bool
) -> None:
    delay = Delay(least=least, longest=timedelta(seconds=60))
    waited = None if since is None else timedelta(seconds=since)
    assert delay.holds_back(offsets, waited) is held_back
