"""A wire that fails with something under way."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from broker_harness import on_loop

from kafka_coop.broker.diagnosis import Peer
from kafka_coop.broker.wire import Wire
from kafka_coop.errors import ConnectionFailedError, RequestFailedError
from kafka_coop.protocol.messages import OffsetAndMetadata, OffsetCommit, OffsetFetch, Request
from kafka_coop.types import Generation, MemberId, Partitions, TopicPartition

MANY = [TopicPartition("a-topic", number) for number in range(20_000)]
COMMIT = OffsetCommit(
    group_id="g",
    generation=Generation(3),
    member_id=MemberId("m"),
    instance_id=None,
    offsets=dict.fromkeys(MANY, OffsetAndMetadata(offset=1)),
)
FETCH = OffsetFetch(group_id="g", partitions=Partitions.of(MANY))


@pytest.mark.parametrize(
    ("request_", "version", "recalled"), [(COMMIT, 7, True), (FETCH, 5, False)]
)
@on_loop
async def test_a_commit_that_was_given_up_does_not_arrive_later(
    request_: Request, version: int, recalled: bool
) -> None:
    """The broker, which is slow to read, is told that the connection was reset.

    Else it would find what the kernel had still to send, and then an end in order.
    """
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        port = server.getsockname()[1]
        wire = Wire(Peer(host="127.0.0.1", port=port), client_id="c", max_frame_bytes=1 << 20)
        await loop.create_connection(lambda: wire, "127.0.0.1", port)
        accepted, _ = server.accept()
        answer = wire.submit(request_, version)
        wire.fail(ConnectionFailedError("given up"))
        with pytest.raises(RequestFailedError):
            await answer
        await wire.gone()
        with accepted, contextlib.ExitStack() as expected:
            accepted.settimeout(10)
            if recalled:
                expected.enter_context(pytest.raises(ConnectionResetError))
            while accepted.recv(1 << 16):
                pass
