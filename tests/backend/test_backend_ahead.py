"""What was asked for behind SyncGroup, and whether it is of use."""

from __future__ import annotations

import asyncio

import pytest

from kafka_coop.backend import ahead
from kafka_coop.backend.ahead import Ahead
from kafka_coop.errors import ConnectionFailedError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, HeartbeatAcked, OffsetFetch, OffsetsFetched
from kafka_coop.types import NO_PARTITIONS, Generation, Partitions, TopicPartition

T0 = Partitions({"t": [0]})
FETCHED = OffsetsFetched(
    error=ErrorCode.none, offsets={TopicPartition("t", 0): FetchedOffset(offset=5)}
)


def asked() -> Ahead:
    return Ahead("g", Generation(3), T0)


def test_the_answer_is_had_whenever_it_comes() -> None:
    async def late() -> OffsetsFetched | None:
        one = asked()
        assert one.behind is not None
        assert one.behind.request == OffsetFetch(group_id="g", partitions=T0)
        waiting = asyncio.create_task(one.answer())
        await asyncio.sleep(0)
        one.behind.answered(FETCHED)
        assert await one.answer() == FETCHED
        return await waiting

    assert asyncio.run(late()) == FETCHED


@pytest.mark.parametrize(
    "outcome",
    [
        ConnectionFailedError("cut"),
        OffsetsFetched(error=ErrorCode.not_coordinator),
        HeartbeatAcked(error=ErrorCode.none),
    ],
)
def test_what_is_of_no_use_is_asked_for_anew(
    outcome: ConnectionFailedError | OffsetsFetched | HeartbeatAcked,
) -> None:
    async def told() -> OffsetsFetched | None:
        one = asked()
        assert one.behind is not None
        one.behind.answered(outcome)
        return await one.answer()

    assert asyncio.run(told()) is None


def test_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_PATIENCE", 0.0)

    async def never() -> OffsetsFetched | None:
        return await asked().answer()

    assert asyncio.run(never()) is None


def test_of_nothing_nothing_is_asked() -> None:
    async def nothing() -> OffsetsFetched | None:
        one = Ahead("g", Generation(3), NO_PARTITIONS)
        assert one.behind is None
        return await one.answer()

    assert asyncio.run(nothing()) is None
