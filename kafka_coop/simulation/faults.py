"""What happens to a simulated world from outside: users' wishes, crashes, faults, changes.

Each is a value, so that a schedule can be written down, printed and shortened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A member's process starts and subscribes; does nothing while one runs."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeploy:
    """The member's next process has these strategies: a rolling bounce, with Close and Start."""

    member: str
    strategies: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """SIGKILL."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """SIGSTOP, and SIGCONT some seconds later: heartbeats stop, too."""

    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """The process' clock jumps forward, while nothing else stands still.

    As where a suspended machine's network is kept alive for it, or its clock is set right.
    """

    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPoll:
    """The user is busy with his records for so long; the background goes on."""

    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCallbacks:
    """From now on each callback takes so long."""

    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowAssignor:
    """From now on the assignor takes so long where this member leads."""

    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubscribe:
    """subscribe() with other topics."""

    member: str
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """unsubscribe()."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """close(), after which the process ends."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """drain(): the user goes on, and closes once he owns nothing or this time is up.

    Other clients know of no such thing, nor does an eager group: they close at once.
    """

    member: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforce:
    """enforce_rebalance()."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNow:
    """commit(asynchronous=True)."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The process' connections are cut: one lane's, or all."""

    member: str
    lane: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Nothing gets through between the process and a broker (None: any) for some seconds."""

    member: str
    node_id: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNetwork:
    """The process' latencies are multiplied from now on."""

    member: str
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowTopic:
    """The topic has so many partitions more."""

    topic: str
    by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """The topic vanishes, if it exists."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """The topic comes into being, or comes back, if it does not exist."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCoordinator:
    """The group's coordinator moves to another broker (None: is nowhere until further notice)."""

    to: int | None
    loading: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailBroker:
    """A broker dies for some seconds; if it was the coordinator, another one is after ``takeover``.

    The last broker alive does not die.
    """

    node_id: int
    seconds: float
    takeover: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldMetadata:
    """A broker's metadata lag behind for some seconds."""

    node_id: int
    seconds: float


MemberFault: TypeAlias = (
    Crash
    | Stall
    | Jump
    | SlowPoll
    | SlowCallbacks
    | SlowAssignor
    | Resubscribe
    | Unsubscribe
    | Close
    | Drain
    | Enforce
    | CommitNow
    | Cut
    | Partition
    | SlowNetwork
)
"""What happens to a member's process, if it has one."""

Fault: TypeAlias = (
    Start
    | Redeploy
    | MemberFault
    | GrowTopic
    | DeleteTopic
    | CreateTopic
    | MoveCoordinator
    | FailBroker
    | HoldMetadata
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A fault and its time, virtual seconds."""

    at: float
    fault: Fault
