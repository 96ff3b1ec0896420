"""Committed offsets that are asked for behind a SyncGroup, before it is known whose are wanted.

The coordinator reads them when it has answered that request, as it would for a request that is
sent when the answer is here; half of a moved partition's way to its first record is saved.
"""

from __future__ import annotations

import asyncio

from kafka_coop.broker.wire import Behind
from kafka_coop.errors import RequestFailedError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetFetch, OffsetsFetched, Response
from kafka_coop.types import Generation, Partitions

_PATIENCE = 0.5
"""Seconds. It follows SyncGroup's answer at once; else one asks anew, on another connection."""


class Ahead:
    """One round's request. The event loop's alone.

    Args:
        group_id: Whose offsets.
        generation: The one that is being synced.
        partitions: What it may bring; none: nothing is asked for.

    Attributes:
        generation: The same.
        behind: What is to be sent behind SyncGroup; None: nothing.
    """

    def __init__(self, group_id: str, generation: Generation, partitions: Partitions) -> None:
        self.generation = generation
        self.behind: Behind | None = None
        self._answer: asyncio.Future[OffsetsFetched | None] = (
            asyncio.get_running_loop().create_future()
        )
        if partitions:
            request = OffsetFetch(group_id=group_id, partitions=partitions)
            self.behind = Behind(request=request, answered=self._take)
        else:
            self._answer.set_result(None)

    async def answer(self) -> OffsetsFetched | None:
        """The answer, once SyncGroup has its own; None: there is none that is of use."""
        await asyncio.wait([self._answer], timeout=_PATIENCE)
        return self._answer.result() if self._answer.done() else None

    def _take(self, outcome: Response | RequestFailedError) -> None:
        if isinstance(outcome, OffsetsFetched) and outcome.error is ErrorCode.none:
            self._answer.set_result(outcome)
        else:
            self._answer.set_result(None)
