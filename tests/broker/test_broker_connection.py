from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest
from broker_harness import (
    HEARTBEAT,
    HEARTBEAT_REQUEST,
    JOIN_GROUP,
    RANGES,
    SOON,
    FakeBroker,
    Received,
    Visitor,
    answer_frame,
    api_keys,
    on_loop,
    serve,
    settings,
)
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kafka_coop.broker.connection import Connection
from kafka_coop.errors import (
    ConnectionFailedError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.messages import HeartbeatAcked, SaslHandshake


async def opened(broker: FakeBroker) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, settings(client_id="me"))


async def closed(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


def beat(connection: Connection, timeout: timedelta = SOON) -> asyncio.Task[HeartbeatAcked]:
    async def send() -> HeartbeatAcked:
        answer = await connection.send(HEARTBEAT_REQUEST, timeout=timeout)
        assert isinstance(answer, HeartbeatAcked)
        return answer

    return asyncio.create_task(send())


async def failure(task: asyncio.Task[HeartbeatAcked]) -> RequestFailedError:
    with pytest.raises(RequestFailedError) as caught:
        await task
    return caught.value


@on_loop
async def test_a_request_is_answered_in_the_newest_version_of_both() -> None:
    seen: list[Received] = []

    async def script(visitor: Visitor) -> None:
        await visitor.greet({**RANGES, HEARTBEAT: (0, 2)})
        seen.append(await visitor.request())
        visitor.answer(seen[0], error_code=ErrorCode.rebalance_in_progress)
        await visitor.left()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        assert (await beat(connection)).error is ErrorCode.rebalance_in_progress
        await closed(connection)
    assert (seen[0].version, seen[0].client_id, seen[0].body.group_id) == (2, "me", "g")


@on_loop
async def test_requests_are_pipelined_and_matched_by_correlation_id() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        received = [await visitor.request() for _ in range(10)]
        random.Random(1).shuffle(received)
        for each in received:
            # The error tells which request was answered.
            visitor.answer(each, error_code=ErrorCode(each.correlation))
        await visitor.left()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        beats = [beat(connection) for _ in range(10)]
        answers = [int((await each).error) for each in beats]
        assert answers == list(range(answers[0], answers[0] + 10))
        assert connection.in_flight == 0
        await closed(connection)


@on_loop
async def test_two_answers_in_one_segment_and_one_answer_in_many() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        both = b"".join([answer_frame(await visitor.request()) for _ in range(2)])
        visitor.raw(both)
        for byte in answer_frame(await visitor.request()):
            visitor.raw(bytes([byte]))
            await visitor.sent()
        await visitor.left()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        await asyncio.gather(beat(connection), beat(connection))
        await beat(connection)
        await closed(connection)


@on_loop
async def test_an_old_broker_is_asked_again_in_version_0() -> None:
    """KIP-511: it answers our version 3 with error 35, in version 0."""
    versions: list[int] = []

    async def script(visitor: Visitor) -> None:
        refused = await visitor.request()
        visitor.answer(refused, version=0, error_code=ErrorCode.unsupported_version)
        versions.extend([refused.version, (await visitor.greet()).version])
        await visitor.serve()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        await beat(connection)
        await closed(connection)
    assert versions == [3, 0]


@on_loop
async def test_a_broker_that_refuses_to_tell_its_versions_is_refused() -> None:
    async def script(visitor: Visitor) -> None:
        for _ in range(2):
            request = await visitor.request()
            visitor.answer(request, version=0, error_code=ErrorCode.unsupported_version)
        await visitor.left()

    async with FakeBroker(script) as broker:
        with pytest.raises(VersionNotSupportedError, match=f"127.0.0.1:{broker.port}"):
            await opened(broker)


@on_loop
async def test_a_request_that_the_broker_lacks_leaves_the_connection_alone() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet({HEARTBEAT: (0, 4)})
        await visitor.serve()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        with pytest.raises(VersionNotSupportedError, match=f"127.0.0.1:{broker.port}"):
            await connection.send(SaslHandshake(mechanism="PLAIN"), timeout=SOON)
        await beat(connection)
        await closed(connection)


HOSTILE = {
    "a length of 2 GiB": (b"\x7f\xff\xff\xff", "receive.message.max.bytes"),
    "a negative length": (b"\xff\xff\xff\xf0", "cannot have"),
    "an answer to nothing": (b"\x00\x00\x00\x04\x00\x00\x03\xe7", "correlation 999"),
    "a TLS alert": (b"\x15\x03\x03\x00\x02\x02\x46", "TLS listener"),
}


@pytest.mark.parametrize("name", HOSTILE)
@on_loop
async def test_hostile_bytes_fail_everything_in_flight(name: str) -> None:
    hostile, said = HOSTILE[name]

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()
        await visitor.request()
        visitor.raw(hostile)
        await visitor.left()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        beats = [beat(connection), beat(connection)]
        failures = [await failure(each) for each in beats]
        for each in failures:
            assert isinstance(each, ConnectionFailedError)
            assert str(each).startswith(f"127.0.0.1:{broker.port}: ")
            assert said in str(each)
        assert failures[0] is not failures[1]
        assert connection.closed
        assert isinstance(await failure(beat(connection)), ConnectionFailedError)
        await connection.wait_closed()


@on_loop
async def test_an_answer_that_does_not_parse_fails_its_request_too() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        request = await visitor.request()
        visitor.raw(b"\x00\x00\x00\x05" + request.correlation.to_bytes(4, "big") + b"\xff")
        await visitor.left()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        assert "unreadable" in str(await failure(beat(connection)))
        await connection.wait_closed()


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.binary(min_size=1, max_size=64))
@example(b"\x00\x00\x00\x41")
def test_no_bytes_hang_a_request(garbage: bytes) -> None:
    """Nor those that promise more than comes: the broker hangs up behind them."""

    @on_loop
    async def run() -> None:
        async def script(visitor: Visitor) -> None:
            await visitor.greet()
            await visitor.request()
            visitor.raw(garbage)

        async with FakeBroker(script) as broker:
            connection = await opened(broker)
            assert isinstance(
                await failure(beat(connection, timeout=timedelta(seconds=10))),
                ConnectionFailedError,
            )
            await connection.wait_closed()

    run()


@pytest.mark.parametrize("kept", [0, 3, 4, 9])
@on_loop
async def test_a_cut_in_the_middle_of_an_answer_fails_the_request(kept: int) -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        visitor.answer(await visitor.request())
        visitor.raw(answer_frame(await visitor.request())[:kept])

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        await beat(connection)
        text = str(await failure(beat(connection)))
        assert "cut during requests" in text
        assert (f"{kept} bytes into an answer" in text) == (kept > 0)
        await connection.wait_closed()


@on_loop
async def test_a_silent_broker_costs_the_request_its_timeout_and_the_connection() -> None:
    gone = asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.left()
        gone.set()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        bystander = beat(connection)
        with pytest.raises(
            RequestTimedOutError, match=r"Heartbeat was not answered within 0\.01 s"
        ):
            await connection.send(HEARTBEAT_REQUEST, timeout=timedelta(milliseconds=10))
        assert connection.closed
        assert isinstance(await failure(bystander), RequestTimedOutError)
        await gone.wait()
        await connection.wait_closed()


@on_loop
async def test_a_cancelled_request_closes_its_connection() -> None:
    """The way to abort a parked JoinGroup; a later request would wait behind it."""
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()
        await visitor.request()
        arrived.set()
        await visitor.left()
        gone.set()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        cancelled, bystander = beat(connection), beat(connection)
        await arrived.wait()
        cancelled.cancel()
        assert "given up" in str(await failure(bystander))
        assert cancelled.cancelled()
        await gone.wait()
        await connection.wait_closed()


@on_loop
async def test_closing_fails_what_is_in_flight_and_may_be_repeated() -> None:
    arrived = asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()
        arrived.set()
        await visitor.left()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        assert not connection.closed
        waiting = beat(connection)
        await arrived.wait()
        assert connection.in_flight == 1
        await closed(connection)
        await closed(connection)
        assert "closed by this client" in str(await failure(waiting))
        assert connection.closed


# --- opening -------------------------------------------------------------------------------


@on_loop
async def test_a_broker_that_cuts_at_once_may_want_tls() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.request()

    async with FakeBroker(script) as broker:
        with pytest.raises(ConnectionFailedError, match=r"security\.protocol to SSL"):
            await opened(broker)


@on_loop
async def test_a_broker_that_cuts_at_the_first_request_may_want_sasl() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.greet()
        await visitor.request()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        assert "sasl.mechanisms" in str(await failure(beat(connection)))
        await connection.wait_closed()


@on_loop
async def test_opening_is_limited_and_says_where_it_stuck() -> None:
    async def script(visitor: Visitor) -> None:
        await visitor.left()

    async with FakeBroker(script) as broker:
        short = settings(connect_timeout=timedelta(milliseconds=500))
        with pytest.raises(ConnectionFailedError, match=r"0\.5 s .* ApiVersions"):
            await Connection.open("127.0.0.1", broker.port, short)


@on_loop
async def test_a_cancelled_opening_leaves_no_socket() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def script(visitor: Visitor) -> None:
        await visitor.request()
        arrived.set()
        await visitor.left()
        gone.set()

    async with FakeBroker(script) as broker:
        opening = asyncio.create_task(opened(broker))
        await arrived.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await gone.wait()


@on_loop
async def test_versions_come_from_the_broker_even_in_many_pieces() -> None:
    async def script(visitor: Visitor) -> None:
        request = await visitor.request()
        answer = answer_frame(request, api_keys=api_keys(request.version, {JOIN_GROUP: (0, 1)}))
        visitor.raw(answer[:7])
        await visitor.sent()
        visitor.raw(answer[7:])
        await visitor.serve()

    async with FakeBroker(script) as broker:
        connection = await opened(broker)
        with pytest.raises(VersionNotSupportedError):
            await connection.send(HEARTBEAT_REQUEST, timeout=SOON)
        await closed(connection)


@on_loop
async def test_a_broker_in_good_health() -> None:
    async with FakeBroker(serve) as broker:
        connection = await opened(broker)
        for _ in range(3):
            assert (await beat(connection)).error is ErrorCode.none
        await closed(connection)
