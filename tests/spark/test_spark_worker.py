from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafka_coop.spark.worker import spare_collections


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """These tests' process is no worker: what is frozen here is to be collected again."""
    spare_collections.cache_clear()
    yield
    gc.unfreeze()
    spare_collections.cache_clear()


def test_what_is_there_at_a_worker_s_first_end_of_a_task_is_not_walked_again() -> None:
    spare_collections()
    frozen = gc.get_freeze_count()
    assert frozen > 1000, "all imported modules"
    later = [[] for _ in range(1000)]  # type: ignore[var-annotated]  # of a later task
    spare_collections()
    assert gc.get_freeze_count() <= frozen, "what comes later is collected as ever"
    del later


def test_garbage_is_not_kept() -> None:
    class Cycle:
        freed = False

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            Cycle.freed = True

    Cycle()
    spare_collections()
    assert Cycle.freed
