"""The watchdog's own process: waits for the end of its parent, then leaves in its name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import select
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import IO

from kafka_coop.broker.event_loop import run_in_own_loop
from kafka_coop.broker.pool import Brokers
from kafka_coop.config import ConnectionSettings
from kafka_coop.errors import ConfigurationError, RequestFailedError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    CoordinatorFound,
    FindCoordinator,
    GroupLeft,
    LeaveGroup,
    Node,
)
from kafka_coop.types import MemberId
from kafka_coop.watchdog.ward import Ward

_REASON = "the process of this consumer has died"

_TIMEOUT = timedelta(seconds=3)
"""For one request."""

_PATIENCE = 60.0
"""Seconds. A session is 45 unless set otherwise, and a failover may take half a minute: the
controller has to miss the broker, and its successor to load the group, whose members all begin
their sessions anew then. Who was dropped meanwhile is not known there, which ends it sooner."""

_QUIET = 2.0
"""Seconds within which it leaves where nothing is in its way. What is said later may be of use."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two attempts: a coordinator that only moved is back at once."""

_ROOM = 4096
"""Bytes that a pipe takes at once where it takes any."""

_AGAIN = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)

_SHORTEST_LOOK, _LONGEST_LOOK = 0.002, 1.0
"""Seconds between two looks at who the parent is, once the pipe has ended."""


_LONGEST_SESSION = 1800.0
"""Seconds: brokers allow no longer one unless told to (``group.max.session.timeout.ms``). By then
the group has dropped a member that beats no more."""


def main() -> None:
    """Runs until the member needs no watchdog any more, or had need of it."""
    # What connections warn of is the reason that is said, by who waits for no reader of it.
    logging.getLogger("kafka_coop").addHandler(logging.NullHandler())
    pipe = sys.stdin.buffer
    with contextlib.suppress(EOFError):
        parent: int = pickle.load(pipe)  # noqa: S301  # written by our own parent
        settings, ward = _last_words(pipe)
        if settings is None or ward is None or not ward.member_id:
            return
        if _has_ended(parent, within=_LONGEST_SESSION):
            run_in_own_loop(leave(ward, settings, say=_say_the_last))


def _last_words(pipe: IO[bytes]) -> tuple[ConnectionSettings | None, Ward | None]:
    """What the pipe says in the end. Half a message is none: its writer died over it."""
    settings: ConnectionSettings | None = None
    ward: Ward | None = None
    while True:
        try:
            said = pickle.load(pipe)  # noqa: S301  # written by our own parent
        except (EOFError, pickle.UnpicklingError):
            return settings, ward
        if isinstance(said, Ward):
            ward = said
        else:
            settings = said


def _has_ended(parent: int, *, within: float) -> bool:
    """Whether it ends in time. Its pipe has, which a living one may bring about, too.

    A process closes its descriptors a moment before its children get another parent. One that
    has called `exec` lives on, but its member does not: it would have one of us more each time.
    """
    look, until = _SHORTEST_LOOK, time.monotonic() + within
    while os.getppid() == parent:
        if time.monotonic() >= until:
            return False
        time.sleep(look)
        look = min(2 * look, _LONGEST_LOOK)
    return True


async def leave(
    ward: Ward,
    settings: ConnectionSettings,
    *,
    say: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Sends LeaveGroup for a member that can't any more.

    A member that the group has dropped meanwhile is not known there: it does no harm.

    Args:
        ward: The member.
        settings: How it connected. Certificates are read anew until they can be: they may be in
            exchange just now, a key without its certificate.
        say: Is told once, and soon, that it has not succeeded.
        clock: Seconds since some moment.
        sleep: Between two attempts.
    """
    began, pause = clock(), _SHORTEST_PAUSE
    brokers: Brokers | None = None
    node = ward.coordinator
    failure: str | None
    said = False
    try:
        while True:
            try:
                brokers = brokers or Brokers(settings)
                failure = await _attempt(brokers, ward, node)
            except (ConfigurationError, RequestFailedError) as error:
                failure = str(error)
            tried = clock() - began
            if failure is not None and tried >= _QUIET and not said:
                said = True
                say(_not_left(ward, failure))
            if failure is None or tried >= _PATIENCE:
                return
            node = None  # to be found anew
            await sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    finally:
        if brokers is not None:
            await brokers.close()


async def _attempt(brokers: Brokers, ward: Ward, node: Node | None) -> str | None:
    """Why another attempt may do better; None where there is nothing more to say."""
    request = LeaveGroup(
        group_id=ward.group_id,
        member_id=MemberId(ward.member_id),
        instance_id=None,
        reason=_REASON,
    )
    node = node or await _coordinator(brokers, ward.group_id)
    if node is None:
        return "no coordinator was found"
    answer = await brokers.request_node(node, request, timeout=_TIMEOUT)
    assert isinstance(answer, GroupLeft)
    return answer.error.name.upper() if answer.error in _AGAIN else None


async def _coordinator(brokers: Brokers, group_id: str) -> Node | None:
    found = await brokers.request_any(FindCoordinator(group_id=group_id), timeout=_TIMEOUT)
    assert isinstance(found, CoordinatorFound)
    return found.node


def _not_left(ward: Ward, failure: str) -> str:
    return (
        f"kafka_coop: the watchdog of group {ward.group_id!r} could not leave yet for a member "
        f"whose process has died. It goes on trying, {_PATIENCE:g} s in all, and says no more; "
        f"session.timeout.ms ends the member's session at the latest: {failure}\n"
    )


def _say_the_last(text: str) -> None:
    """On standard error, which it lets go of then: it is the dead process's own.

    Who reads that to its end, as a log shipper does, or ``subprocess.run(capture_output=True)``,
    has it when the last process that holds it has let go. It would wait for a minute.
    """
    if sys.stderr is None:  # closed in the parent: its number may be a socket's now
        return
    theirs = sys.stderr.fileno()
    _, has_room, _ = select.select([], [theirs], [], 0)
    if has_room:  # else nobody reads: it would wait for that, and not leave
        with contextlib.suppress(OSError):  # nobody will ever
            os.write(theirs, text.encode(errors="replace")[:_ROOM])
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, theirs)
    os.close(nowhere)
