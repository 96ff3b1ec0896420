from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from broker_certificates import authority_pem, broker_context
from broker_harness import (
    HEARTBEAT_REQUEST,
    JOIN_GROUP,
    JOIN_REQUEST,
    SOON,
    FakeBroker,
    Visitor,
    on_loop,
    settings,
)

from kafka_coop.broker.hedging import patiences
from kafka_coop.broker.pool import JOIN_LANE, MAIN_LANE, Brokers
from kafka_coop.config import SaslSettings, TlsSettings
from kafka_coop.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.messages import ClusterMetadata, GroupJoined, HeartbeatAcked, Node


class Clock:
    """Time that stands still but for sleeps, each of which the test lets pass."""

    def __init__(self) -> None:
        self.time = 100.0
        self.sleeps: list[float] = []
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.asleep.set()
        await self.wake.wait()
        self.time += seconds


@asynccontextmanager
async def pool(
    *brokers: FakeBroker, clock: Clock | None = None, **changes: Any
) -> AsyncIterator[Brokers]:
    bootstrap = tuple(broker.address for broker in brokers) or (("127.0.0.1", closed_port()),)
    it = Brokers(settings(**{"bootstrap": bootstrap, **changes}), rng=random.Random(7), clock=clock)
    try:
        yield it
    finally:
        await it.close()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def metadata(*nodes: Node) -> ClusterMetadata:
    return ClusterMetadata(brokers={node.node_id: node for node in nodes}, racks={}, topics={})


async def beat(it: Brokers, broker: FakeBroker | Node, lane: str = MAIN_LANE) -> None:
    node = broker.node if isinstance(broker, FakeBroker) else broker
    answer = await it.request_node(node, HEARTBEAT_REQUEST, lane=lane, timeout=SOON)
    assert isinstance(answer, HeartbeatAcked)


async def beat_any(it: Brokers) -> None:
    assert isinstance(await it.request_any(HEARTBEAT_REQUEST, timeout=SOON), HeartbeatAcked)


async def failure(task: asyncio.Task[Any]) -> RequestFailedError:
    with pytest.raises(RequestFailedError) as caught:
        await task
    return caught.value


# --- one connection per address and lane ---------------------------------------------------


@on_loop
async def test_requests_to_a_node_share_a_connection_and_its_opening() -> None:
    async with FakeBroker() as broker, pool(broker) as it:
        await asyncio.gather(*(beat(it, broker) for _ in range(10)))
        await beat(it, broker)
        assert broker.visits == 1


class Parking:
    """Parks JoinGroups until told; everything behind one on its connection waits, as it does
    at a broker."""

    def __init__(self) -> None:
        self.parked = asyncio.Event()
        self.complete = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, visitor: Visitor) -> None:
        await visitor.greet()
        while True:
            request = await visitor.request()
            if request.api_key == JOIN_GROUP:
                self.parked.set()
                complete = asyncio.create_task(self.complete.wait())
                left = asyncio.create_task(visitor.left())
                await asyncio.wait([complete, left], return_when=asyncio.FIRST_COMPLETED)
                complete.cancel()
                left.cancel()
                await asyncio.wait([complete, left])
                if not self.complete.is_set():
                    self.left.set()
                    return
            visitor.answer(request)


def join(it: Brokers, broker: FakeBroker) -> asyncio.Task[Any]:
    return asyncio.create_task(
        it.request_node(broker.node, JOIN_REQUEST, lane=JOIN_LANE, timeout=SOON)
    )


@on_loop
async def test_a_parked_join_does_not_stop_the_main_lane() -> None:
    parking = Parking()
    async with FakeBroker(parking) as broker, pool(broker) as it:
        joining = join(it, broker)
        await parking.parked.wait()
        await beat(it, broker)
        parking.complete.set()
        assert isinstance(await joining, GroupJoined)
        assert broker.visits == 2


def options(it: Brokers, broker: FakeBroker, lane: str) -> dict[str, int]:
    connection = it._lines[broker.address, lane]._connection
    assert connection is not None
    assert connection._wire._transport is not None
    sock = connection._wire._transport.get_extra_info("socket")
    return {
        "keepalive": sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        "idle": sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        "unacknowledged": sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's options")
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("keepalive", [False, True])
@on_loop
async def test_the_lane_without_heartbeats_is_probed_by_the_kernel(
    *, encrypted: bool, keepalive: bool
) -> None:
    """Were its flow dropped on the way, a JoinGroup would be lost and the whole group wait."""
    tls = broker_context() if encrypted else None
    trusting = TlsSettings(ca_pem=authority_pem()) if encrypted else None
    changes: dict[str, Any] = {"tls": trusting, "keepalive": keepalive}
    async with FakeBroker(tls=tls) as broker, pool(broker, **changes) as it:
        await beat(it, broker, JOIN_LANE)
        await beat(it, broker, MAIN_LANE)
        probed = {"keepalive": 1, "idle": 10, "unacknowledged": 20_000}
        assert options(it, broker, JOIN_LANE) == probed
        other = options(it, broker, MAIN_LANE)
        assert (other["keepalive"], other["unacknowledged"]) == (keepalive, 0)


@on_loop
async def test_a_lane_that_died_while_it_was_idle_is_made_anew_at_once() -> None:
    clock = Clock()
    async with FakeBroker() as broker, pool(broker, clock=clock) as it:
        await beat(it, broker, JOIN_LANE)
        connection = it._lines[broker.address, JOIN_LANE]._connection
        assert connection is not None
        assert connection._wire._transport is not None
        connection._wire._transport.abort()  # so asyncio ends one that the kernel has given up
        await connection._wire.gone()
        await beat(it, broker, JOIN_LANE)
        assert (broker.visits, clock.sleeps) == (2, [])


@on_loop
async def test_dropping_a_lane_aborts_its_join_alone() -> None:
    parking = Parking()
    async with FakeBroker(parking) as broker, pool(broker) as it:
        await beat(it, broker)
        joining = join(it, broker)
        await parking.parked.wait()
        it.drop(broker.node, JOIN_LANE)
        assert isinstance(await failure(joining), ConnectionFailedError)
        await parking.left.wait()
        await beat(it, broker)
        assert broker.visits == 2
        await beat(it, broker, JOIN_LANE)  # at once: it was no failure
        assert broker.visits == 3


@on_loop
async def test_cancelling_a_join_aborts_it() -> None:
    parking = Parking()
    async with FakeBroker(parking) as broker, pool(broker) as it:
        joining = join(it, broker)
        await parking.parked.wait()
        joining.cancel()
        await parking.left.wait()
        assert joining.cancelled()
        await beat(it, broker, JOIN_LANE)


@on_loop
async def test_dropping_what_is_not_there_is_nothing() -> None:
    async with FakeBroker() as broker, pool(broker) as it:
        it.drop(broker.node, JOIN_LANE)
        await beat(it, broker)
        it.drop(broker.node, MAIN_LANE)
        it.drop(broker.node, MAIN_LANE)


class Reluctant:
    """Answers ApiVersions when told."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, visitor: Visitor) -> None:
        self.arrived.set()
        await self.go.wait()
        await visitor.greet()
        await visitor.serve()


@on_loop
async def test_a_caller_that_gives_up_does_not_spoil_the_opening_for_others() -> None:
    reluctant = Reluctant()
    async with FakeBroker(reluctant) as broker, pool(broker) as it:
        first, second = (asyncio.create_task(beat(it, broker)) for _ in range(2))
        await reluctant.arrived.wait()
        first.cancel()
        with pytest.raises(RequestTimedOutError, match="no connection for Heartbeat"):
            await it.request_node(
                broker.node, HEARTBEAT_REQUEST, timeout=timedelta(milliseconds=10)
            )
        reluctant.go.set()
        await second
        assert first.cancelled()
        assert broker.visits == 1


@on_loop
async def test_dropping_during_the_opening_fails_its_callers() -> None:
    reluctant = Reluctant()
    async with FakeBroker(reluctant) as broker, pool(broker) as it:
        waiting = [asyncio.create_task(beat(it, broker)) for _ in range(2)]
        await reluctant.arrived.wait()
        it.drop(broker.node, MAIN_LANE)
        again = asyncio.create_task(beat(it, broker))
        failures = [await failure(each) for each in waiting]
        assert all(isinstance(each, ConnectionFailedError) for each in failures)
        # The attempt that was dropped has ended meanwhile, and left the new one alone.
        late = asyncio.create_task(beat(it, broker))
        await asyncio.sleep(0)
        reluctant.go.set()
        await asyncio.gather(again, late)
        assert broker.visits == 2


@on_loop
async def test_an_opening_that_fails_fails_all_its_callers_with_errors_of_their_own() -> None:
    async with pool() as it:
        node = Node(node_id=1, host="127.0.0.1", port=closed_port())
        waiting = [asyncio.create_task(beat(it, node)) for _ in range(3)]
        failures = [await failure(each) for each in waiting]
        assert len({id(each) for each in failures}) == 3
        assert all("refused" in str(each) for each in failures)


@on_loop
async def test_what_a_broker_knows_is_known_while_a_connection_stands() -> None:
    async with FakeBroker() as broker, pool(broker) as it:
        node = Node(node_id=1, host="127.0.0.1", port=broker.port)
        assert not it.knows(node, JOIN_GROUP)
        await beat(it, node)
        assert it.knows(node, JOIN_GROUP)
        assert not it.knows(node, 9999)
        assert not it.knows(Node(node_id=1, host="127.0.0.1", port=closed_port()), JOIN_GROUP)
        it.drop(node, MAIN_LANE)
        assert not it.knows(node, JOIN_GROUP)


@on_loop
async def test_a_node_that_moved_gets_a_new_connection() -> None:
    async with FakeBroker() as old, FakeBroker() as new, pool(old) as it:
        await beat(it, Node(node_id=1, host="127.0.0.1", port=old.port))
        await beat(it, Node(node_id=1, host="127.0.0.1", port=new.port))
        assert (old.visits, new.visits) == (1, 1)


@on_loop
async def test_connections_to_brokers_that_are_no_more_are_closed() -> None:
    left = asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        await visitor.left()
        left.set()

    async with FakeBroker(script) as gone, FakeBroker() as stays, pool(stays) as it:
        it.learn(metadata(gone.node, stays.node))
        await beat(it, gone)
        it.learn(metadata(stays.node))
        await left.wait()


@on_loop
async def test_addresses_that_are_no_more_do_not_add_up() -> None:
    """Brokers in containers come back with others, and a member may live for years."""
    async with FakeBroker() as stays, pool(stays) as it:
        for _ in range(5):
            async with FakeBroker() as gone:
                it.learn(metadata(gone.node, stays.node))
                await beat(it, gone)
                it.learn(metadata(stays.node))
                for line in it._lines.values():
                    if line._finishing:
                        await asyncio.wait(line._finishing)
                it.learn(metadata(stays.node))
        assert {address for address, _ in it._lines} <= {stays.address}
        assert it._backoffs.keys() <= {stays.address}
        await beat(it, stays)


@on_loop
async def test_idle_connections_are_closed_and_made_again() -> None:
    left = asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        await visitor.left()
        left.set()

    idle = timedelta(milliseconds=20)
    async with FakeBroker(script) as broker, pool(broker, connections_max_idle=idle) as it:
        await beat(it, broker)
        await left.wait()
        await beat(it, broker)
        assert broker.visits == 2


@on_loop
async def test_a_connection_in_use_is_not_idle() -> None:
    parking = Parking()
    idle = timedelta(milliseconds=5)
    async with FakeBroker(parking) as broker, pool(broker, connections_max_idle=idle) as it:
        await beat(it, broker, JOIN_LANE)
        joining = join(it, broker)
        await parking.parked.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await parking.left.wait()
        parking.complete.set()
        assert isinstance(await joining, GroupJoined)


# --- any broker ----------------------------------------------------------------------------


@on_loop
async def test_any_broker_is_asked_on_a_live_connection_first() -> None:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(FakeBroker()) for _ in range(4)]
        it = await stack.enter_async_context(pool(*brokers, clock=Clock()))
        it.learn(metadata(*(broker.node for broker in brokers)))
        await beat(it, brokers[2])
        for _ in range(5):
            await beat_any(it)
        assert [broker.visits for broker in brokers] == [0, 0, 1, 0]


@on_loop
async def test_known_brokers_come_before_bootstrap_servers() -> None:
    known, bootstrap = FakeBroker(), FakeBroker()
    async with known, bootstrap, pool(bootstrap, clock=Clock()) as it:
        it.learn(metadata(known.node))
        await beat_any(it)
        assert (known.visits, bootstrap.visits) == (1, 0)


@on_loop
async def test_the_dead_are_passed_over() -> None:
    async with FakeBroker() as alive:
        dead = tuple(("127.0.0.1", closed_port()) for _ in range(3))
        async with pool(bootstrap=(*dead, alive.address)) as it:
            it.learn(metadata(Node(node_id=1, host="127.0.0.1", port=closed_port())))
            await beat_any(it)
        assert alive.visits == 1


@pytest.mark.parametrize("seed", range(3))
@on_loop
async def test_bootstrap_servers_are_shuffled_by_the_seed(seed: int) -> None:
    async def order() -> list[str]:
        hosts = tuple((f"host-{i}.invalid", 1) for i in range(6))
        it = Brokers(settings(bootstrap=hosts), rng=random.Random(seed))
        try:
            return [host for host, _ in it._candidates()]
        finally:
            await it.close()

    first = await order()
    assert first == await order()
    assert sorted(first) == [f"host-{i}.invalid" for i in range(6)]
    assert first != sorted(first)


@on_loop
async def test_when_none_answers_all_are_told_of() -> None:
    ports = [closed_port(), closed_port()]
    async with pool(bootstrap=tuple(("127.0.0.1", port) for port in ports)) as it:
        error = await failure(asyncio.create_task(beat_any(it)))
        assert isinstance(error, ConnectionFailedError)
        assert all(f"127.0.0.1:{port}" in str(error) for port in ports)


@on_loop
async def test_an_outage_is_logged_once_and_again_after_it_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warnings() -> int:
        return sum("no broker answers" in r.getMessage() for r in caplog.records)

    dead = ("127.0.0.1", closed_port())
    async with FakeBroker() as broker, pool(bootstrap=(dead,)) as it:
        for _ in range(3):
            await failure(asyncio.create_task(beat_any(it)))
        assert warnings() == 1
        it.learn(metadata(broker.node))
        await beat_any(it)
        it.learn(metadata())
        await failure(asyncio.create_task(beat_any(it)))
        assert warnings() == 2


@on_loop
async def test_a_refused_login_is_told_even_when_others_are_merely_dead() -> None:
    async with FakeBroker(tls=broker_context()) as strict:
        addresses = (strict.address, ("127.0.0.1", closed_port()))
        async with pool(bootstrap=addresses, tls=TlsSettings()) as it:
            error = await failure(asyncio.create_task(beat_any(it)))
        assert isinstance(error, AuthenticationFailedError)
        assert "ssl.ca.location" in str(error)


async def old(visitor: Visitor) -> None:
    await visitor.greet({})
    await visitor.left()


@on_loop
async def test_brokers_that_are_too_old_are_told_as_that_even_when_others_are_dead() -> None:
    async with FakeBroker(old) as one, FakeBroker(old) as other:
        addresses = (one.address, other.address, ("127.0.0.1", closed_port()))
        async with pool(bootstrap=addresses) as it:
            error = await failure(asyncio.create_task(beat_any(it)))
    assert isinstance(error, VersionNotSupportedError)
    assert "is needed" in str(error)


async def silent(visitor: Visitor) -> None:
    await visitor.greet()
    await visitor.left()


class Hesitant:
    """Answers one request, and those after it when told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        await self.go.wait()
        await visitor.serve()


@on_loop
async def test_a_silent_broker_costs_one_request_and_is_passed_over_by_the_next() -> None:
    mute, alive = FakeBroker(silent), FakeBroker()
    async with mute, alive, pool(mute, clock=Clock()) as it:
        with pytest.raises(RequestTimedOutError):
            await it.request_any(HEARTBEAT_REQUEST, timeout=timedelta(milliseconds=100))
        it.learn(metadata(mute.node, alive.node))
        await beat_any(it)
        assert (mute.visits, alive.visits) == (1, 1)


@on_loop
async def test_beside_a_live_connection_that_is_silent_others_are_asked() -> None:
    """It may be half-open: it comes first, and would take all the time that the request has."""
    clock, hesitant = Clock(), Hesitant()
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(FakeBroker(hesitant))
        others = [await stack.enter_async_context(FakeBroker()) for _ in range(2)]
        it = await stack.enter_async_context(pool(slow, *others, clock=clock))
        await beat(it, slow)
        asking = asyncio.create_task(beat_any(it))
        asleep = asyncio.create_task(clock.asleep.wait())
        await asyncio.wait([asking, asleep], return_when=asyncio.FIRST_COMPLETED)
        assert (clock.sleeps, [each.visits for each in others]) == ([1.0], [0, 0])
        clock.wake.set()
        await asking
        # It was merely slow, and its connection lives on.
        hesitant.go.set()
        await beat(it, slow)
        assert slow.visits == 1


@on_loop
async def test_who_gives_up_gives_up_every_broker_that_was_asked() -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()
        arrived.set()
        await visitor.left()
        left.set()

    async with FakeBroker(script) as mute, pool(mute) as it:
        asking = asyncio.create_task(beat_any(it))
        await arrived.wait()
        asking.cancel()
        await left.wait()
        assert asking.cancelled()


@on_loop
async def test_closing_leaves_nothing_of_a_broker_that_was_too_slow() -> None:
    clock, hesitant = Clock(), Hesitant()
    clock.wake.set()
    async with FakeBroker(hesitant) as slow, FakeBroker() as other:
        async with pool(slow, other, clock=clock) as it:
            await beat(it, slow)
            await beat_any(it)
            assert it._lines[slow.address, MAIN_LANE].users == 1, "it is left to its timeout"
        assert not it._tasks


def test_more_brokers_are_asked_ever_more_seldom() -> None:
    assert [*islice(patiences(60.0), 6)] == [1, 2, 4, 8, 16, 32], "a slow cluster is not flooded"
    assert [*islice(patiences(2.0), 2)] == [0.5, 1.0], "the third has a quarter of the time left"


# --- backoff -------------------------------------------------------------------------------


@on_loop
async def test_attempts_after_a_failure_wait_for_the_backoff_together() -> None:
    clock = Clock()
    backoff = {
        "reconnect_backoff": timedelta(seconds=1),
        "reconnect_backoff_max": timedelta(seconds=3),
    }
    node = Node(node_id=1, host="127.0.0.1", port=closed_port())
    async with pool(clock=clock, **backoff) as it:
        await failure(asyncio.create_task(beat(it, node)))
        assert clock.sleeps == []
        for expected in [1, 2, 3, 3]:
            clock.asleep.clear()
            clock.wake.clear()
            waiting = [asyncio.create_task(beat(it, node)) for _ in range(3)]
            await clock.asleep.wait()
            assert 0.8 * expected <= clock.sleeps[-1] <= 1.2 * expected
            clock.wake.set()
            for each in waiting:
                assert isinstance(await failure(each), ConnectionFailedError)
        assert len(clock.sleeps) == 4


@on_loop
async def test_waiting_for_the_backoff_is_limited_by_the_timeout() -> None:
    node = Node(node_id=1, host="127.0.0.1", port=closed_port())
    async with pool(clock=Clock(), reconnect_backoff=timedelta(seconds=1)) as it:
        await failure(asyncio.create_task(beat(it, node)))
        with pytest.raises(RequestTimedOutError, match=r"the last failure: .*refused"):
            await it.request_node(node, HEARTBEAT_REQUEST, timeout=timedelta(milliseconds=20))


@on_loop
async def test_a_broker_that_cuts_at_the_first_request_is_backed_off_from() -> None:
    """It opens connections without fail: a SASL listener, to a client without SASL."""

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()

    clock = Clock()
    clock.wake.set()
    backoff = {
        "reconnect_backoff": timedelta(seconds=1),
        "reconnect_backoff_max": timedelta(seconds=60),
    }
    async with FakeBroker(script) as broker, pool(broker, clock=clock, **backoff) as it:
        for _ in range(5):
            await failure(asyncio.create_task(beat(it, broker)))
        assert len(clock.sleeps) == 4
        for slept, doubled in zip(clock.sleeps, [1, 2, 4, 8], strict=True):
            assert 0.8 * doubled <= slept <= 1.2 * doubled


@on_loop
async def test_an_answer_ends_the_backoff() -> None:
    scripts: Iterator[bool] = iter([False, False, True, False, True])

    async def script(visitor: Visitor) -> None:
        answers = next(scripts)
        await visitor.greet()
        request = await visitor.request()
        if answers:
            visitor.answer(request)
            await visitor.request()

    clock = Clock()
    clock.wake.set()
    backoff = {
        "reconnect_backoff": timedelta(seconds=1),
        "reconnect_backoff_max": timedelta(seconds=60),
    }
    async with FakeBroker(script) as broker, pool(broker, clock=clock, **backoff) as it:
        await failure(asyncio.create_task(beat(it, broker)))
        await failure(asyncio.create_task(beat(it, broker)))
        await beat(it, broker)
        await failure(asyncio.create_task(beat(it, broker)))  # the third connection is cut
        await failure(asyncio.create_task(beat(it, broker)))  # the fourth
        await beat(it, broker)
        assert [round(slept) for slept in clock.sleeps] == [1, 2, 1, 2]


@on_loop
async def test_brokers_in_backoff_are_asked_last() -> None:
    clock = Clock()
    async with FakeBroker() as alive:
        dead = ("127.0.0.1", closed_port())
        async with pool(bootstrap=(dead, alive.address), clock=clock) as it:
            await failure(
                asyncio.create_task(beat(it, Node(node_id=1, host=dead[0], port=dead[1])))
            )
            assert it._candidates() == [alive.address, dead]
            await beat_any(it)
        assert clock.sleeps == [1.0], "patience with the living one, and no backoff"


# --- the end -------------------------------------------------------------------------------


@on_loop
async def test_closing_fails_everything_and_for_good() -> None:
    parking, reluctant = Parking(), Reluctant()
    async with FakeBroker(parking) as broker, FakeBroker(reluctant) as slow:
        async with pool(broker) as it:
            joining = join(it, broker)
            await parking.parked.wait()
            opening = asyncio.create_task(beat(it, slow))
            await reluctant.arrived.wait()
            await it.close()
            for each in (joining, opening, asyncio.create_task(beat(it, broker))):
                assert isinstance(await failure(each), ConnectionFailedError)
            assert "closed" in str(await failure(asyncio.create_task(beat_any(it))))
        reluctant.go.set()


@on_loop
async def test_closing_during_the_backoff_leaves_nothing() -> None:
    clock = Clock()
    node = Node(node_id=1, host="127.0.0.1", port=closed_port())
    async with pool(clock=clock, reconnect_backoff=timedelta(seconds=1)) as it:
        await failure(asyncio.create_task(beat(it, node)))
        waiting = asyncio.create_task(beat(it, node))
        await clock.asleep.wait()
        await it.close()
        assert isinstance(await failure(waiting), ConnectionFailedError)


def test_what_cannot_work_is_told_before_anything_is_sent() -> None:
    with pytest.raises(ConfigurationError, match="bootstrap"):
        Brokers(settings(bootstrap=()))
    with pytest.raises(ConfigurationError, match=r"ssl\.ca\.location"):
        Brokers(settings(tls=TlsSettings(ca_location="/no/such/file")))


@on_loop
async def test_tls_and_credentials_reach_the_connections() -> None:
    trusting = TlsSettings(ca_pem=authority_pem())
    async with FakeBroker(tls=broker_context()) as broker, pool(broker, tls=trusting) as it:
        await beat(it, broker)
    plain = SaslSettings(mechanism="PLAIN", username="u", password="old")
    passwords: list[bytes] = []

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request(), mechanisms=("PLAIN",))
        request = await visitor.request()
        passwords.append(request.body.auth_bytes)
        visitor.answer(request, error_message=None)
        await visitor.serve()

    async with FakeBroker(script) as broker, pool(broker, sasl=plain) as it:
        await beat(it, broker)
        it.set_sasl_credentials("v", "new")
        await beat(it, broker, JOIN_LANE)
    assert passwords == [b"\0u\0old", b"\0v\0new"]


@on_loop
async def test_credentials_without_sasl_are_nothing() -> None:
    async with FakeBroker() as broker, pool(broker) as it:
        it.set_sasl_credentials("u", "p")
        await beat(it, broker)
