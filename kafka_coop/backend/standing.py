"""How the member stands, for the errands that wait for it to change. One event loop's alone."""

from __future__ import annotations

import asyncio

from kafka_coop.protocol.messages import Node
from kafka_coop.types import GroupMetadata


class Standing:
    """The coordinator and the identity that requests beside the machine's own are to use."""

    def __init__(self, group_id: str) -> None:
        self.coordinator: Node | None = None
        self.identity = GroupMetadata(group_id=group_id)
        self.commits_open = False
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Wakes everyone who waits."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, at_most: float) -> None:
        """Returns after the next change, or after ``at_most`` seconds."""
        try:
            async with asyncio.timeout(at_most):
                await self._changed.wait()
        except TimeoutError:
            pass
