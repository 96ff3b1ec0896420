"""How long partitions had no owner, and how long nobody processed a record of theirs. Pure.

No protocol can keep a partition owned through every fault: who is killed is missed after its
session, and a network that is down is down. So a wait may last as long as

    a session for each member killed, one at least, and after a kill for each coordinator that goes
    + the longest fault under way + a slack

and whatever is longer is the group's own doing. A kill is under way for a session, for the group
does not know before: who is killed while it waits for the answer to JoinGroup is in the next
generation too, and its session begins there. So a partition whose owner was killed then waits for
two sessions; and for one more if the heir is killed, or the leader, before it has heard. It also
waits for one more with each coordinator that goes: the next one gives every member of the groups
that it loads a session of its own, those that are dead included.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.outcome import (
    COORDINATOR,
    KILL,
    MOVED,
    NANO,
    SLOW,
    SLOWEST,
    Injected,
    nanoseconds,
)
from kafka_coop.testing.trial.verdict import Tenure

MACHINE: Final = timedelta(seconds=5)
"""What a machine may add that runs all of it at once: a JVM that starts takes a core for seconds,
and a round ends with its slowest member. A broker that died is missed after 3 s besides."""

RECONNECT: Final = timedelta(seconds=2)
"""reconnect.backoff.max.ms, a second unless the user says otherwise, and what librdkafka adds by
chance. It doubles its wait with each refused connection, and begins anew only 10 s after the last
attempt, however well that went: after two faults of one broker a member may come back to it, and
its records, so much later than the network does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A time, in monotonic nanoseconds, in which something did not happen to a partition."""

    partition: int
    start: int
    end: int

    @property
    def lasting(self) -> int:
        """In nanoseconds."""
        return self.end - self.start


def ownerless(held: Sequence[Tenure], born: Mapping[int, int]) -> list[Wait]:
    """The times between two tenures of a partition, or between its birth and the first.

    A process that is stopped counts as owner until it hears otherwise: `silences` has that.

    Args:
        held: All tenures.
        born: When partitions came that were not there at first.
    """
    found, owned_until = [], dict(born)
    for tenure in sorted(held, key=lambda t: t.start):
        until = owned_until.get(tenure.partition, tenure.start)
        if tenure.start > until:
            found.append(Wait(partition=tenure.partition, start=until, end=tenure.start))
        owned_until[tenure.partition] = max(until, tenure.end)
    return found


def silences(
    journals: Mapping[str, Sequence[Event]], born: Mapping[int, int] | None = None
) -> list[Wait]:
    """The times between two records of a partition, whoever processed them."""
    lines: dict[int, list[int]] = {p: [at] for p, at in (born or {}).items()}
    for events in journals.values():
        for event in events:
            if event.kind == "R":
                lines.setdefault(event.partitions[0], []).append(event.at)
    return [
        Wait(partition=partition, start=start, end=end)
        for partition, line in lines.items()
        for start, end in itertools.pairwise(sorted(line))
    ]


def felt(faults: Sequence[Injected], session: timedelta) -> list[Injected]:
    """The faults as the group feels them.

    Who was killed is missed after a session; who was told to be slow may begin with it at the end.
    """
    missed, slow = nanoseconds(session), nanoseconds(SLOWEST)
    return [
        replace(
            f,
            until=max(f.excuses_until, f.at + (missed if f.name == KILL else 0))
            + (slow if f.name == SLOW else 0),
        )
        for f in faults
    ]


def too_long(
    waits: Sequence[Wait], faults: Sequence[Injected], session: timedelta, slack: timedelta
) -> list[str]:
    """The waits that no fault explains, longest first; each in words."""
    calm = nanoseconds(session + slack)
    one, known = nanoseconds(session), felt(faults, session)
    first = min((f.at for f in faults), default=0)
    found = []
    for wait in sorted(waits, key=lambda w: -w.lasting):
        if wait.lasting <= calm:
            break
        under_way = [f for f in known if f.at <= wait.end and f.until >= wait.start]
        longest = max((f.until - f.at for f in under_way), default=0)
        allowed = calm + longest + one * _further_sessions(under_way)
        if wait.lasting > allowed:
            found.append(
                f"partition {wait.partition}: {wait.lasting / NANO:.1f} s, allowed"
                f" {allowed / NANO:.1f}, from {(wait.start - first) / NANO:.1f} s on"
            )
    return found


def _further_sessions(under_way: Sequence[Injected]) -> int:
    """How many sessions may have to end, one after the other, beyond the first."""
    killed = sum(f.name == KILL for f in under_way)
    took_over = sum(f.name == MOVED or COORDINATOR in (f.roles or ()) for f in under_way)
    return max(killed - 1, 0) + (took_over if killed else 0)


def blame(faults: Sequence[Injected], waits: Sequence[Wait]) -> list[float | None]:
    """For each fault the longest wait that is charged to it, in seconds; None: none is.

    A wait is charged to one fault: the first that began in it, else the last before it. To charge
    all that lie in it would charge each with its neighbours' kills.
    """
    moments = [fault.at for fault in faults]
    longest: list[int | None] = [None] * len(faults)
    for wait in waits:
        at = bisect.bisect_left(moments, wait.start)
        if at == len(moments) or moments[at] >= wait.end:
            at -= 1
        if at >= 0:
            longest[at] = max(longest[at] or 0, wait.lasting)
    return [None if worst is None else worst / NANO for worst in longest]
