"""Finding the group's coordinator, and noticing that it is gone."""

from __future__ import annotations

from collections.abc import Callable

from kafka_coop.errors import Failure, RequestFailedError
from kafka_coop.membership.backoff import backoff
from kafka_coop.membership.effects import CoordinatorChanged, Effect, SendFindCoordinator
from kafka_coop.membership.events import CoordinatorAnswered
from kafka_coop.membership.failures import failure_of_code, failure_of_exception, is_hopeless
from kafka_coop.membership.responses import FIND_COORDINATOR, Reaction
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FindCoordinator, Node


class Discovery:
    """Where the coordinator is, as far as we know."""

    def __init__(self, settings: MemberSettings, new_token: Callable[[], int]) -> None:
        self._settings = settings
        self._new_token = new_token
        self._token: int | None = None
        self._attempt = 0
        self._not_before = 0.0
        self.node: Node | None = None

    def ensure(self, now: float) -> tuple[Effect, ...]:
        """Asks for the coordinator unless it is known, asked for, or asked for too lately."""
        if self.node is not None or self._token is not None or now < self._not_before:
            return ()
        self._token = self._new_token()
        request = FindCoordinator(group_id=self._settings.group_id)
        return (SendFindCoordinator(token=self._token, request=request),)

    def forget(self, now: float) -> tuple[Effect, ...]:
        """The coordinator does not answer, or says that it is none.

        The next look-up waits one backoff: the broker that sent us there may go on doing so
        until it has heard of the change, and the two would send us to and fro.
        """
        if self.node is None:
            return ()
        self.node = None
        self._not_before = now + self._pause(0)
        return (CoordinatorChanged(node=None),)

    def answered(
        self, event: CoordinatorAnswered, now: float
    ) -> tuple[tuple[Effect, ...], Failure | None]:
        """Returns the effects, and the failure that the user must hear of, if any."""
        if event.token != self._token:
            return (), None
        self._token = None
        answer = event.answer
        if isinstance(answer, RequestFailedError):
            self._retry_later(now)
            return (), failure_of_exception(answer) if is_hopeless(answer) else None
        if answer.error is ErrorCode.none and answer.node is not None:
            self._attempt = 0
            self.node = answer.node
            return (CoordinatorChanged(node=self.node),), None
        self._retry_later(now)
        if FIND_COORDINATOR[answer.error] is Reaction.RAISE:
            what = f"finding the coordinator of group {self._settings.group_id!r}"
            return (), failure_of_code(answer.error, what, detail=answer.message)
        return (), None

    def deadline(self) -> float | None:
        """When `ensure` should be called again; None: no time will change anything."""
        if self.node is not None or self._token is not None:
            return None
        return self._not_before

    def _retry_later(self, now: float) -> None:
        self._not_before = now + self._pause(self._attempt)
        self._attempt += 1

    def _pause(self, attempt: int) -> float:
        s = self._settings
        return backoff(attempt, base=s.retry_backoff, cap=s.retry_backoff_max, seed=s.seed)
