"""Requests without a task: `Brokers.ask_node`, and those behind another one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Self

from broker_harness import (
    API_VERSIONS,
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    JOIN_REQUEST,
    SOON,
    FakeBroker,
    Visitor,
    on_loop,
    settings,
)

from kafka_coop.broker.pool import JOIN_LANE, MAIN_LANE, Brokers
from kafka_coop.broker.wire import Behind
from kafka_coop.errors import (
    ConnectionFailedError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.messages import GetMetadata, HeartbeatAcked, Request, Response


class Asker:
    """A pool with a connection that stands, and what its questions were answered."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.pool = Brokers(settings(bootstrap=(broker.address,)))
        self.outcomes: asyncio.Queue[Response | RequestFailedError] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        await self.beat()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        assert self.outcomes.empty(), "answered twice"

    async def beat(self, lane: str = MAIN_LANE) -> None:
        await self.pool.request_node(self.broker.node, HEARTBEAT_REQUEST, lane=lane, timeout=SOON)

    async def send_two(
        self, behind: Request = HEARTBEAT_REQUEST, lane: str = MAIN_LANE
    ) -> Response:
        """One that is waited for, and one behind it."""
        followed = Behind(request=behind, answered=self.outcomes.put_nowait)
        return await self.pool.request_node(
            self.broker.node, HEARTBEAT_REQUEST, lane=lane, timeout=SOON, behind=followed
        )

    def ask(self, timeout: timedelta = SOON) -> bool:
        return self.pool.ask_node(
            self.broker.node,
            HEARTBEAT_REQUEST,
            timeout=timeout,
            answered=self.outcomes.put_nowait,
        )


async def answer_once(visitor: Visitor) -> None:
    """Answers the first heartbeat of a connection, and is silent from then on."""
    await visitor.greet()
    visitor.answer(await visitor.request())
    await visitor.left()


@on_loop
async def test_a_question_is_answered_once_and_later() -> None:
    async with FakeBroker() as broker, Asker(broker) as asker:
        assert asker.ask()
        assert asker.ask()
        assert asker.outcomes.empty(), "not while it is asked"
        for _ in range(2):
            assert isinstance(await asker.outcomes.get(), HeartbeatAcked)
        assert broker.visits == 1


class Slow:
    """Answers heartbeats, and never a JoinGroup, nor what comes behind one."""

    def __init__(self) -> None:
        self.at_work = asyncio.Semaphore(0)

    async def __call__(self, visitor: Visitor) -> None:
        await visitor.greet()
        while (request := await visitor.request()).api_key == HEARTBEAT:
            visitor.answer(request)
        self.at_work.release()
        await visitor.left()


async def keep_busy(asker: Asker, slow: Slow, lane: str) -> asyncio.Task[Response]:
    asked = asker.pool.request_node(asker.broker.node, JOIN_REQUEST, lane=lane, timeout=SOON)
    task = asyncio.create_task(asked)
    await slow.at_work.acquire()
    return task


@on_loop
async def test_a_question_goes_past_what_the_broker_is_slow_to_answer() -> None:
    """A heartbeat behind a commit that waits for its replicas would miss the session."""
    slow = Slow()
    async with FakeBroker(slow) as broker, Asker(broker) as asker:
        await asker.beat(JOIN_LANE)
        busy = [await keep_busy(asker, slow, MAIN_LANE)]
        assert asker.ask()
        assert isinstance(await asker.outcomes.get(), HeartbeatAcked)
        assert broker.visits == 2
        busy.append(await keep_busy(asker, slow, JOIN_LANE))
        assert asker.ask(timeout=timedelta(milliseconds=50)), "there is no third way"
        assert isinstance(await asker.outcomes.get(), RequestTimedOutError)
        assert isinstance(await settled(busy[0]), RequestTimedOutError), "it was on the main lane"
        assert not busy[1].done()
    assert isinstance(await settled(busy[1]), ConnectionFailedError)


@on_loop
async def test_a_question_waits_where_there_is_no_other_way() -> None:
    """Where no JoinGroup was sent yet, or its lane has broken."""
    slow = Slow()
    async with FakeBroker(slow) as broker, Asker(broker) as asker:
        busy = await keep_busy(asker, slow, MAIN_LANE)
        assert asker.ask(timeout=timedelta(milliseconds=50))
        assert isinstance(await asker.outcomes.get(), RequestTimedOutError)
        await settled(busy)


@on_loop
async def test_where_both_ways_are_silent_neither_is_left_to_wait_on() -> None:
    """Whoever looks for the coordinator would wait behind the dead for as long as a commit may."""
    async with FakeBroker(answer_once) as broker, Asker(broker) as asker:
        await asker.beat(JOIN_LANE)
        commit = asyncio.create_task(
            asker.pool.request_node(broker.node, HEARTBEAT_REQUEST, timeout=timedelta(minutes=1))
        )
        await asyncio.sleep(0)  # it is written in this turn of the loop
        assert asker.ask(timeout=timedelta(milliseconds=50))
        assert isinstance(await asker.outcomes.get(), RequestTimedOutError)
        assert isinstance(await settled(commit), ConnectionFailedError)
        assert not asker.ask(), "there is no connection any more"


async def settled(task: asyncio.Task[Response]) -> BaseException | None:
    await asyncio.wait([task])
    return task.exception()


@on_loop
async def test_nothing_is_asked_where_no_connection_stands() -> None:
    async with FakeBroker() as broker, Asker(broker) as asker:
        asker.pool.drop(broker.node, MAIN_LANE)
        assert not asker.ask()
        await asker.beat()
        assert asker.ask()
        await asker.outcomes.get()


@on_loop
async def test_silence_costs_a_question_its_timeout_and_the_connection() -> None:
    async with FakeBroker(answer_once) as broker, Asker(broker) as asker:
        assert asker.ask(timeout=timedelta(milliseconds=50))
        assert asker.ask()
        errors = [await asker.outcomes.get(), await asker.outcomes.get()]
        assert all(isinstance(error, RequestTimedOutError) for error in errors)
        assert errors[0] is not errors[1]
        assert "Heartbeat was not answered within 0.05 s" in str(errors[0])
        assert not asker.ask()


@on_loop
async def test_a_dropped_connection_fails_its_questions_but_not_at_once() -> None:
    """Who drops it is in the middle of something, and must not be called back there."""
    async with FakeBroker(answer_once) as broker, Asker(broker) as asker:
        assert asker.ask()
        asker.pool.drop(broker.node, MAIN_LANE)
        assert asker.outcomes.empty()
        assert isinstance(await asker.outcomes.get(), ConnectionFailedError)


@on_loop
async def test_who_is_answered_may_drop_the_connection() -> None:
    """Whatever else the broker sent in the same segment is nobody's then."""

    async def both_at_once(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        first, second = await visitor.request(), await visitor.request()
        assert {first.api_key, second.api_key} == {HEARTBEAT}
        visitor.answer(first)
        visitor.answer(second)
        await visitor.left()

    async with FakeBroker(both_at_once) as broker, Asker(broker) as asker:
        asker.pool.ask_node(
            broker.node,
            HEARTBEAT_REQUEST,
            timeout=SOON,
            answered=lambda _: asker.pool.drop(broker.node, MAIN_LANE),
        )
        assert asker.ask()
        assert isinstance(await asker.outcomes.get(), ConnectionFailedError)


@on_loop
async def test_a_connection_with_a_question_under_way_is_not_idle() -> None:
    async with FakeBroker(answer_once) as broker:
        pool = Brokers(
            settings(bootstrap=(broker.address,), connections_max_idle=timedelta(milliseconds=20))
        )
        outcomes: asyncio.Queue[Response | RequestFailedError] = asyncio.Queue()
        await pool.request_node(broker.node, HEARTBEAT_REQUEST, timeout=SOON)
        assert pool.ask_node(
            broker.node,
            HEARTBEAT_REQUEST,
            timeout=timedelta(milliseconds=200),
            answered=outcomes.put_nowait,
        )
        # Dropped as idle, it would fail with another error, and earlier.
        assert isinstance(await outcomes.get(), RequestTimedOutError)
        await pool.close()


@on_loop
async def test_what_goes_behind_another_is_written_before_that_is_answered() -> None:
    async def when_both_are_here(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        first, second = await visitor.request(), await visitor.request()
        visitor.answer(first)
        visitor.answer(second)
        await visitor.left()

    async with FakeBroker(when_both_are_here) as broker, Asker(broker) as asker:
        assert isinstance(await asker.send_two(), HeartbeatAcked)
        assert isinstance(await asker.outcomes.get(), HeartbeatAcked)


@on_loop
async def test_where_no_connection_stands_it_follows_on_the_new_one() -> None:
    async with FakeBroker() as broker, Asker(broker) as asker:
        assert isinstance(await asker.send_two(lane=JOIN_LANE), HeartbeatAcked)
        assert isinstance(await asker.outcomes.get(), HeartbeatAcked)
        assert broker.visits == 2


@on_loop
async def test_what_is_behind_another_fails_with_its_connection() -> None:
    async def but_for_the_last(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        first, _ = await visitor.request(), await visitor.request()
        visitor.answer(first)
        await visitor.sent()
        visitor.cut()

    async with FakeBroker(but_for_the_last) as broker, Asker(broker) as asker:
        assert isinstance(await asker.send_two(), HeartbeatAcked)
        assert isinstance(await asker.outcomes.get(), ConnectionFailedError)


@on_loop
async def test_what_the_broker_does_not_speak_hinders_nothing_in_front_of_it() -> None:
    async def speaks_of_heartbeats_alone(visitor: Visitor) -> None:
        await visitor.greet({HEARTBEAT: (0, 4), API_VERSIONS: (0, 3)})
        await visitor.serve()

    async with FakeBroker(speaks_of_heartbeats_alone) as broker, Asker(broker) as asker:
        assert isinstance(await asker.send_two(GetMetadata(topics=())), HeartbeatAcked)
        assert isinstance(await asker.outcomes.get(), VersionNotSupportedError)
        assert asker.ask()
        assert isinstance(await asker.outcomes.get(), HeartbeatAcked)
