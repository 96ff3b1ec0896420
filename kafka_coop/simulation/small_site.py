"""One member of a small group as a value, with its user and its connections."""

from __future__ import annotations

import io
import pickle
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

from kafka_coop.assignors import resolve
from kafka_coop.membership import effects as ef
from kafka_coop.membership import events as ev
from kafka_coop.membership.member import Member
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.membership.states import State
from kafka_coop.simulation.group import RequestToken
from kafka_coop.simulation.surroundings import Surroundings
from kafka_coop.simulation.user import UserHabits
from kafka_coop.types import Generation, GroupMetadata, Partitions, TopicPartition

if TYPE_CHECKING:
    from kafka_coop.simulation.process import Process

GROUP = "group"
TOPIC = "alpha"

SESSION, REBALANCE, HEARTBEAT = 3.0, 6.0, 1.0
"""The members' timeouts, seconds: of the box, where only ratios matter."""


@dataclass(slots=True)
class Lane:
    """One connection: requests on their way, the one that is parked, answers on their way."""

    requests: deque[tuple[RequestToken, Any]] = field(default_factory=deque)
    parked: RequestToken | None = None
    answers: deque[Any] = field(default_factory=deque)

    @property
    def busy(self) -> int:
        """How much is under way on it."""
        return len(self.requests) + len(self.answers) + (self.parked is not None)


@dataclass(slots=True)
class Box:
    """What the watcher looks at in a process' mailbox."""

    lease_until: float = float("-inf")
    left: bool = False


@dataclass(slots=True)
class Owner:
    """The user: what he owns, and where he is in it.

    Attributes:
        fresh: What he was given and has not delivered a record of.
    """

    habits: UserHabits
    owned: set[TopicPartition] = field(default_factory=set)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    fresh: set[TopicPartition] = field(default_factory=set)
    closing: bool = False


class Edges(Member):
    """A member whose edges are noted, for all states of an exploration."""

    seen: set[tuple[State, State]] = set()  # noqa: RUF012  # shared on purpose: states are copies

    def _enter(self, state: State) -> None:
        if state is not self.state:
            self.seen.add((self.state, state))
        super()._enter(state)


@dataclass(slots=True, eq=False)
class Site:
    """One member, its user, and its connections. To the watcher it is a process.

    Attributes:
        doing: The step that the user is at, and its actions that are still to come: there is one
            while its commit is under way.
        starts: Partition -> the generation it comes with, and where to begin.
    """

    name: str
    member: Member
    world: Surroundings
    user: Owner
    mailbox: Box = field(default_factory=Box)
    lanes: dict[str, Lane] = field(default_factory=lambda: {"main": Lane(), "join": Lane()})
    awaited: dict[RequestToken, tuple[type[Any], int]] = field(default_factory=dict)
    plans: deque[ev.AssignmentComputed] = field(default_factory=deque)
    steps: deque[ef.Step] = field(default_factory=deque)
    doing: tuple[ef.Step, deque[ef.Action]] | None = None
    starts: dict[TopicPartition, tuple[Generation, int]] = field(default_factory=dict)
    identity: GroupMetadata = field(default_factory=lambda: GroupMetadata(group_id=GROUP))
    commits_open: bool = False
    alive: bool = True
    stalled: bool = False
    sent: int = 0
    polled_at: float = 0.0
    dialect: None = None

    @staticmethod
    def on_the_agenda(time: float) -> float:
        """As of a process; there is one clock here."""
        return time

    @property
    def settings(self) -> MemberSettings:
        """As of a process."""
        return self.member.settings

    @property
    def as_process(self) -> Process:
        """What the watcher takes it for: it has all that the watcher asks of one."""
        return cast("Process", self)

    @property
    def under_way(self) -> int:
        """How many things of this member's are to happen, here or at the broker."""
        lanes = sum(lane.busy for lane in self.lanes.values())
        return lanes + len(self.plans) + len(self.steps) + (self.doing is not None)

    @property
    def visible(self) -> tuple[object, ...]:
        """What others' invariants depend on."""
        owned, positions = sorted(self.user.owned), sorted(self.user.positions.items())
        return self.alive, self.mailbox.lease_until, owned, positions


def plain(site: Site) -> bytes:
    """The site's bytes. Without the pickler's memory: that tells equal objects from the same one.

    What contains itself, and what is the same for good, is replaced by its name.
    """
    out = io.BytesIO()
    pickler = pickle.Pickler(out)
    pickler.fast = True
    pickler.dispatch_table = {
        MethodType: lambda m: (str, (m.__name__,)),
        MemberSettings: lambda s: (str, (s.client_id,)),
        Partitions: lambda p: (list, (list(p),)),
    }
    pickler.dump(
        (
            vars(site.member),
            (site.visible, sorted(site.user.fresh)),
            site.lanes,
            sorted((t, k.__name__, n) for t, (k, n) in site.awaited.items()),
            site.plans,
            site.steps,
            site.doing,
            sorted(site.starts.items()),
            site.identity,
            (site.commits_open, site.user.closing, site.mailbox.left, site.sent, site.polled_at),
        )
    )
    return out.getvalue()


def settings_of(number: int) -> MemberSettings:
    """Of the member with this number."""
    return MemberSettings(
        group_id=GROUP,
        assignors=(resolve("cooperative-sticky"),),
        client_id=f"m{number}",
        session_timeout=timedelta(seconds=SESSION),
        rebalance_timeout=timedelta(seconds=REBALANCE),
        request_timeout=timedelta(seconds=2),
        heartbeat_interval=timedelta(seconds=HEARTBEAT),
        seed=number,
    )
