"""A request that the coordinator has parked, and that is no longer wanted."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from kafka_coop.assignors import resolve
from kafka_coop.backend.classic import ClassicBackend
from kafka_coop.backend.interface import Observer
from kafka_coop.broker.pool import JOIN_LANE
from kafka_coop.config import parse
from kafka_coop.membership import effects as ef
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.messages import JoinGroup, Node, SyncGroup
from kafka_coop.types import Generation, MemberId

NODE = Node(node_id=1, host="broker-1", port=9092)
LONG = timedelta(minutes=5)
JOIN = ef.SendJoin(
    token=7,
    node=NODE,
    request=JoinGroup(
        group_id="g",
        session_timeout=LONG,
        rebalance_timeout=LONG,
        member_id=MemberId("me"),
        instance_id=None,
        protocols=(),
        reason="",
    ),
    timeout=LONG,
)
SYNC = ef.SendSync(
    token=7,
    node=NODE,
    request=SyncGroup(
        group_id="g",
        generation=Generation(1),
        member_id=MemberId("me"),
        instance_id=None,
        protocol_name="range",
        assignments={},
    ),
    timeout=LONG,
)


class Parking:
    """Brokers that answer nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.dropped: list[tuple[Node, str]] = []

    async def request_node(self, _node: Node, request: Any, **_more: Any) -> None:
        self.asked.append(type(request).__name__)
        await asyncio.Event().wait()

    def drop(self, node: Node, lane: str) -> None:
        self.dropped.append((node, lane))


def backend(brokers: Any) -> ClassicBackend:
    made = ClassicBackend(
        parse({"bootstrap.servers": "broker-1", "group.id": "g", "coop.watchdog": False}),
        MemberSettings(group_id="g", assignors=(resolve("range"),)),
        observer=Observer(),
        logger=logging.getLogger(__name__),
    )
    made._brokers = brokers
    return made


@pytest.mark.parametrize("sent", [JOIN, SYNC], ids=lambda sent: type(sent.request).__name__)
def test_its_connection_is_closed_and_nothing_comes_of_it(sent: ef.SendJoin | ef.SendSync) -> None:
    async def abort() -> None:
        brokers = Parking()
        it = backend(brokers)
        it._carry_out(sent)
        await asyncio.sleep(0)
        assert brokers.asked == [type(sent.request).__name__]
        (parked,) = it._tasks
        it._carry_out(ef.AbortParked(token=sent.token))
        await asyncio.wait([parked], timeout=1)
        assert parked.cancelled()
        assert brokers.dropped == [(NODE, JOIN_LANE)]
        await asyncio.sleep(0)
        assert not it._parked, "nor is it remembered"

    asyncio.run(abort())
