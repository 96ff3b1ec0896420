"""A group as one look at it showed: plain values, decoded, without a broker behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from kafka_coop.errors import MalformedDataError
from kafka_coop.printable import shown
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, split_marks
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.types import (
    NO_PARTITIONS,
    Cluster,
    Generation,
    Partitions,
    Subscription,
    TopicPartition,
)

_TAIL: Final = 4
"""Characters of a member's id that tell it from others of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLook:
    """One member.

    Attributes:
        name: What to call it: its client id, with a number where several share one.
        subscription: What it joined with, its user data without the marks; None: not told
            (a group that is not stable, or of type consumer), or it does not parse.
        raw_user_data: The user data as sent, marks and all.
        marks: What it told the leader behind its user data; None: no member of ours.
        assigned: What it was given.
        target: What the broker means it to have in the end (KIP-848); None: the broker does not
            assign, or does not tell.
        assignment_marks: What its leader told it; None: that is no member of ours.
        problem: Why its bytes do not parse.
    """

    id: str
    name: str
    client_id: str
    host: str
    instance_id: str | None = None
    subscription: Subscription | None = None
    raw_user_data: bytes | None = None
    marks: SubscriptionMarks | None = None
    assigned: Partitions = NO_PARTITIONS
    target: Partitions | None = None
    assignment_marks: AssignmentMarks | None = None
    problem: str | None = None

    @property
    def place(self) -> str:
        """What its partitions stay with.

        A static member that is restarted in time gets a new id, and they stay (KIP-345).
        """
        return self.instance_id or self.id


@dataclass(frozen=True, kw_only=True)
class GroupLook:
    """One group at one moment.

    Attributes:
        state: The broker's word for it: Stable, Empty, PreparingRebalance, ….
        kind: ``classic``, or ``consumer`` (KIP-848).
        assignor: The strategy's name; empty where there is none yet.
        members: By name.
        cluster: Partitions of every topic that members subscribe to or commit to, and their
            racks where a member has one.
        committed: The group's committed offsets.
        ends: The ends of those partitions' logs.
        untold: Why members' subscriptions and user data are not known; empty: not for any fault.
        unread: Why there is no lag; None: there is.
    """

    id: str
    state: str
    kind: str
    assignor: str = ""
    coordinator: str = ""
    members: tuple[MemberLook, ...] = ()
    cluster: Cluster = field(default_factory=Cluster)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    untold: str = ""
    unread: str | None = None

    @cached_property
    def leader(self) -> MemberLook | None:
        """Who leads; None: not known.

        The broker tells members only. Ours mark the assignment that they give themselves; and
        one alone leads.
        """
        if self.kind != "classic":
            return None
        leading = [m for m in self.members if m.assignment_marks and _leads(m.assignment_marks)]
        if len(leading) == 1:
            return leading[0]
        return self.members[0] if len(self.members) == 1 else None

    @cached_property
    def generation(self) -> Generation | None:
        """The group's generation, where its leader is one of ours."""
        for member in self.members:
            if member.assignment_marks is not None and _leads(member.assignment_marks):
                return member.assignment_marks.leads
        return None

    @cached_property
    def follow_up(self) -> bool:
        """Whether the leader announced another round (KIP-429): something is on its way."""
        return any(m.assignment_marks and m.assignment_marks.follow_up for m in self.members)

    @cached_property
    def owners(self) -> Mapping[TopicPartition, MemberLook]:
        """Who was given what."""
        return {p: member for member in self.members for p in member.assigned}

    @cached_property
    def on_their_way(self) -> tuple[TopicPartition, ...]:
        """What a broker that assigns (KIP-848) means for others than have it now, in order."""
        return tuple(
            sorted(
                p
                for member in self.members
                for p in member.target or ()
                if self.owners.get(p) is not member
            )
        )

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics that members subscribe to.

        Where subscriptions are not told, those that somebody was given some of.
        """
        told = {
            t for m in self.members if m.subscription is not None for t in m.subscription.topics
        }
        hidden = self.kind == "consumer" or self.untold
        given = {p.topic for p in self.owners} if hidden else set()
        return frozenset(told | given)

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """Topics of the members' that no broker shows, in order.

        There are none of the name (any more), or these credentials may not see them.
        """
        named = self.topics | {p.topic for p in self.owners}
        return tuple(sorted(named - self.cluster.partitions.keys()))

    @cached_property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition that concerns the group, in order."""
        wanted = {
            TopicPartition(topic, p)
            for topic in self.topics
            for p in range(self.cluster.partitions.get(topic, 0))
        }
        return tuple(sorted(wanted | self.owners.keys() | self.committed.keys()))

    @cached_property
    def unowned(self) -> tuple[TopicPartition, ...]:
        """Partitions of subscribed topics that nobody was given."""
        return tuple(p for p in self.partitions if p.topic in self.topics and p not in self.owners)

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between what is committed and the log's end; None: not known."""
        end, committed = self.ends.get(partition), self.committed.get(partition)
        return None if end is None or committed is None else max(end - committed, 0)

    def _is_unread(self, partition: TopicPartition) -> bool:
        """Whether it has a lag that could not be read."""
        committed = partition in self.committed and partition not in self.ends
        return committed and self.unread is not None

    def lag_of(self, member: MemberLook) -> int | None:
        """The sum over what a member was given; None: not known of any, or not read of some."""
        if any(self._is_unread(p) for p in member.assigned):
            return None
        lags = [lag for p in member.assigned if (lag := self.lag(p)) is not None]
        return sum(lags) if lags else None

    @cached_property
    def total_lag(self) -> int | None:
        """The sum over all partitions with a committed offset; None: of none, or not all were read.

        What is left of it where a leader is away would look as if the group had caught up.
        """
        if self.unread is not None:
            return None
        lags = [lag for p in self.partitions if (lag := self.lag(p)) is not None]
        return sum(lags) if lags else None


def _leads(marks: AssignmentMarks) -> bool:
    return marks.leads is not None


def look_at_member(
    *,
    member_id: str,
    client_id: str,
    host: str,
    metadata: bytes,
    assignment: bytes,
    instance_id: str | None = None,
) -> MemberLook:
    """Decodes what a broker tells of a classic member; bytes of others may be anything."""
    subscription, raw, marks, problem = None, None, None, None
    if metadata:
        try:
            sent = decode_subscription(metadata)
        except MalformedDataError as error:
            problem = f"its subscription does not parse: {error}"
        else:
            raw = sent.user_data
            user_data, found = split_marks(raw)
            marks = found if isinstance(found, SubscriptionMarks) else None
            subscription = Subscription(
                topics=sent.topics,
                owned=sent.owned,
                generation=sent.generation,
                user_data=user_data,
                rack=sent.rack,
                instance_id=instance_id,
            )
    given, told = NO_PARTITIONS, None
    if assignment:
        try:
            decoded = decode_assignment(assignment)
        except MalformedDataError as error:
            problem = f"its assignment does not parse: {error}"
        else:
            given = decoded.partitions
            _, found = split_marks(decoded.user_data)
            told = found if isinstance(found, AssignmentMarks) else None
    return MemberLook(
        id=member_id,
        name=shown(client_id or member_id),
        client_id=client_id,
        host=host.lstrip("/"),
        instance_id=instance_id,
        subscription=subscription,
        raw_user_data=raw,
        marks=marks,
        assigned=given,
        assignment_marks=told,
        problem=problem,
    )


def named(members: list[MemberLook]) -> tuple[MemberLook, ...]:
    """The members in the order of their names; those of one name show the end of their id."""
    ids = defaultdict(list)
    for m in members:
        ids[m.name].append(m.id)
    tails = {name: _telling(several) for name, several in ids.items() if len(several) > 1}
    told_apart = [
        replace(m, name=f"{m.name}~{shown(m.id[-tails[m.name] :])}") if m.name in tails else m
        for m in members
    ]
    return tuple(sorted(told_apart, key=lambda m: (m.name, m.id)))


def _telling(ids: list[str]) -> int:
    """How many characters of their ends tell ids apart.

    Four, as a rule: but in every fourteenth group of a hundred that share a name two end alike,
    and whoever keeps them by name would lose one.
    """
    size = _TAIL
    while len({i[-size:] for i in ids}) < len(ids) and size < max(map(len, ids)):
        size += 1
    return size
