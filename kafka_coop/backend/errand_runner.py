"""Runs errands over sockets: what an errand waits for, awaited. One event loop's alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from kafka_coop.backend.errands import Ask, Changed, Errand, OutOfTime, Rest, Wanted
from kafka_coop.backend.standing import Standing
from kafka_coop.broker.pool import Brokers
from kafka_coop.errors import RequestFailedError
from kafka_coop.protocol.messages import ClusterMetadata, Node, Request, Response

T = TypeVar("T")


class ErrandRunner:
    """Awaits what errands wait for."""

    def __init__(self, *, brokers: Brokers, standing: Standing, request_timeout: timedelta) -> None:
        self._brokers = brokers
        self._standing = standing
        self._timeout = request_timeout

    async def run(self, errand: Errand[T], within: timedelta | None = None) -> T:
        """Returns what the errand returns.

        An errand that is out of time is told, and has the last word.
        """
        ends = (
            None if within is None else asyncio.get_running_loop().time() + within.total_seconds()
        )
        answer: Any = None
        try:
            while True:
                wanted = errand.send(answer)
                try:
                    async with asyncio.timeout_at(ends):
                        answer = await self._obtain(wanted)
                except TimeoutError:
                    errand.throw(OutOfTime())
                    raise AssertionError("an errand goes on out of time") from None
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            errand.close()

    async def _obtain(self, wanted: Wanted) -> Any:
        match wanted:
            case Ask(requests=requests):
                if len(requests) == 1:
                    return [await self._ask(*requests[0])]
                return await asyncio.gather(*(self._ask(*request) for request in requests))
            case Changed(at_most=at_most):
                return await self._standing.wait(at_most)
            case Rest(seconds=seconds):
                return await asyncio.sleep(seconds)

    async def _ask(self, node: Node | None, request: Request) -> Response | RequestFailedError:
        asked: Coroutine[Any, Any, Response] = (
            self._brokers.request_any(request, timeout=self._timeout)
            if node is None
            else self._brokers.request_node(node, request, timeout=self._timeout)
        )
        try:
            answer = await asked
        except RequestFailedError as error:
            return error
        if isinstance(answer, ClusterMetadata):
            self._brokers.learn(answer)
        return answer
