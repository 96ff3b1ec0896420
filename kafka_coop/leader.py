"""What the group leader computes: everyone's subscription in, everyone's assignment out.

A pipeline of named steps, pure from end to end:

    decode ─► validate claims ─► balance ─► check the plan ─► withhold transfers ─► encode

Members' bytes are arbitrary input: a member whose bytes do not parse subscribes to nothing, and
the group goes on without it. An assignor is a user's code: if it raises, or returns something
that is no plan, everyone keeps what is rightfully theirs and nothing else is placed. In either
case no partition is assigned twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice

import numpy as np

from kafka_coop.assignors import is_built_in, resolve
from kafka_coop.assignors.checking import EAGER_EVERYWHERE, checked
from kafka_coop.assignors.columns import Counts, Flags
from kafka_coop.assignors.figures import NO_FIGURES, PlanFigures, figures
from kafka_coop.assignors.plan import Plan, partitions_at
from kafka_coop.assignors.snapshot import Snapshot, SnapshotGroup, claimed_generations
from kafka_coop.assignors.withholding import everything, may_go_ahead, withhold
from kafka_coop.errors import AssignorFailedError, text_of
from kafka_coop.protocol.assignment import encode_assignments
from kafka_coop.protocol.group import GroupColumns
from kafka_coop.protocol.group_decoding import decode_group
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks, split_marks
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Assignor,
    Cluster,
    Generation,
    GroupAssignment,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
    TopicPartition,
)

_BEATS_PER_SECOND = 100
_SMALL_GROUP = 20
_SHORTEST_INTERVAL = timedelta(milliseconds=10)
_ALONE = timedelta(milliseconds=100)
_LONGEST_INTERVAL = timedelta(seconds=3)

_BRIEF = 256
"""Members and partitions, together: any strategy of ours is done within some milliseconds."""

_MOST_WARNINGS = 10

_NO_MARKS = SubscriptionMarks()

_UNMARKED = frozenset({"sticky"})
"""Strategies whose peers choke on marks: Sarama's members send an assignment's user data back
with their next subscription, and its leader refuses bytes that it does not know there."""

_SHARED = "cooperative-sticky"
"""The one cooperative strategy that other clients have, too."""

_GENERATION_IN_USER_DATA = frozenset({"cooperative-sticky", "constrained-cooperative-sticky"})
"""Strategies whose members say in their user data which generation their claims are of."""

_JOINING = frozenset({"stream-join-sticky"})
"""Strategies for which a member's topics belong together. Who drains and kept one of them, because
nobody else subscribes to it yet, would keep its numbers, and those of the others be nobody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderOutcome:
    """What a leader has to send, and how it came about.

    Attributes:
        assignments: Member id -> ConsumerProtocolAssignment bytes, for every member.
        subscriptions: What the members sent, decoded; those that did not parse are empty.
        intended: The plan as the assignor meant it, less what it had no right to assign.
        withheld: What is in the plan but given to nobody yet: a member must revoke it first
            (KIP-429).
        recalled: Member id -> what of these it had, and is to have again: a member of another
            client, which hears of the follow-up round at once this way, and not with its next
            heartbeat (`kafka_coop.assignors.withholding`).
        follow_up: Another round must come: something was withheld, or somebody has to revoke.
        topics: Every topic that some member subscribes to, sorted, existing or not: the leader
            watches them all.
        error: Why the assignor's plan was not followed, or not to the letter; None where it was.
        warnings: What an operator should know, one sentence each.
        figures: What the plan costs.
    """

    assignments: dict[str, bytes]
    subscriptions: GroupSubscription
    intended: GroupAssignment
    withheld: Partitions = NO_PARTITIONS
    recalled: Mapping[str, Partitions] = field(default_factory=dict)
    follow_up: bool = False
    topics: tuple[str, ...] = ()
    error: AssignorFailedError | None = None
    warnings: tuple[str, ...] = ()
    figures: PlanFigures = NO_FIGURES


def run_assignor(
    assignor: str | Assignor,
    cluster: Cluster | Mapping[str, int],
    members: Mapping[str, bytes],
    *,
    instance_ids: Mapping[str, str | None] | None = None,
) -> dict[str, bytes]:
    """Computes exactly what the group leader sends: bytes in and bytes out.

    Args:
        assignor: A built-in strategy's name, or an assignor.
        cluster: What exists: topic -> number of partitions, or a `Cluster` with racks too.
        members: Member id -> ConsumerProtocolSubscription, version prefix included.
        instance_ids: Member id -> ``group.instance.id`` of the static members.

    Returns:
        Member id -> ConsumerProtocolAssignment, version prefix included, for every member.

    Raises:
        ConfigurationError: No built-in strategy has this name.
    """
    return lead(assignor, cluster, members, instance_ids=instance_ids).assignments


def lead(
    assignor: str | Assignor,
    cluster: Cluster | Mapping[str, int],
    members: Mapping[str, bytes],
    *,
    instance_ids: Mapping[str, str | None] | None = None,
    leader: str = "",
    generation: Generation = NO_GENERATION,
    recalled: Mapping[str, Partitions] | None = None,
    announced: bool = False,
    commits_while_joining: bool = True,
    interruptible: bool = True,
) -> LeaderOutcome:
    """Runs the leader's step of one rebalance.

    Args:
        assignor: A built-in strategy's name, or an assignor.
        cluster: What exists: topic -> number of partitions, or a `Cluster` with racks too.
        members: Member id -> ConsumerProtocolSubscription, version prefix included.
        instance_ids: Member id -> ``group.instance.id`` of the static members.
        leader: The leader's member id: its own assignment is marked so.
        generation: The round's, for that mark.
        recalled: `LeaderOutcome.recalled` of the round before, whoever led it.
        announced: `LeaderOutcome.follow_up` of the round before.
        commits_while_joining: Whether the coordinator takes commits while members join.
        interruptible: Whether a KeyboardInterrupt out of the assignor is the user's Ctrl-C, who
            plans on the main thread. No other thread gets one: there the assignor has failed.

    Returns:
        The assignments and how they came about. Never raises for what members sent or the
        assignor did: see `LeaderOutcome.error`.

    Raises:
        ConfigurationError: No built-in strategy has this name.
        KeyboardInterrupt: As said.
    """
    strategy = resolve(assignor) if isinstance(assignor, str) else assignor
    given = cluster if isinstance(cluster, Cluster) else Cluster(partitions=cluster)
    # A strategy that writes into it would have its member find the topics changed, and rebalance.
    racks = None if given.replica_racks is None else dict(given.replica_racks)
    world = Cluster(partitions=dict(given.partitions), replica_racks=racks)
    decoded = _decode(members, instance_ids or {}, joined=strategy.name in _JOINING)
    snapshot = _validate_claims(strategy, world, decoded.planned, recalled)
    group = SnapshotGroup(snapshot, decoded.loads)
    plan, error = _balance(strategy, group, interruptible=interruptible)
    # Of a user's strategy that this leader takes for eager, others may have a version that is not:
    # they claim what they have still. Nobody has under one that is eager with every client.
    eager = strategy.name in EAGER_EVERYWHERE
    recall = strategy.name == _SHARED and not recalled
    granted = everything(plan) if eager else withhold(plan, decoded.peers, recall=recall)
    back = _by_owner(plan, granted.recalled)
    topics = _all_topics(decoded.subscriptions)
    interval = None if decoded.peers.any() else suggested_heartbeat_interval(len(members))
    ahead = (
        commits_while_joining
        and not announced
        and may_go_ahead(snapshot, granted, peers=decoded.peers, busy=decoded.busy)
    )
    marks = AssignmentMarks(follow_up=granted.follow_up, ahead=ahead, heartbeat_interval=interval)
    return LeaderOutcome(
        assignments=_encode(
            strategy,
            Plan(snapshot, granted.owner, user_data=plan.user_data),
            for_peers=marks,
            for_ours=replace(marks, recalled=back),
            peers=decoded.peers,
            leader=leader,
            generation=generation,
        ),
        subscriptions=decoded.subscriptions,
        intended=plan,
        withheld=partitions_at(snapshot, np.flatnonzero(granted.waits)),
        recalled=back,
        follow_up=granted.follow_up,
        topics=topics,
        error=error,
        warnings=(*decoded.warnings, *_unseen(topics, given), *plan.notes),
        figures=figures(snapshot, plan.owner, granted),
    )


def is_brief(assignor: Assignor, cluster: Cluster, members: Mapping[str, bytes]) -> bool:
    """Whether `lead` is over in milliseconds, so that a caller can wait for it.

    For strategies of this package, and small groups: another's may compute, or wait for something,
    as long as it likes.
    """
    return is_built_in(assignor) and len(members) + sum(cluster.partitions.values()) <= _BRIEF


def suggested_heartbeat_interval(members: int) -> timedelta:
    """How often each member should beat, so that the whole group stays within a budget.

    Of a group that is all ours. Beside members of other clients nothing is suggested: ours then
    beat as often as they do (`kafka_coop.membership.pulse.DEFAULT_INTERVAL`).

    Returns:
        A hundred beats a second for the group: 200 ms for twenty members, 3 s for three hundred
        and more. Fewer than twenty may spend up to four hundred: a small group's round is short,
        and most of what a plain `close()` costs would be the wait for the next beat. 12.5 ms for
        five members, 10 ms for less; with twice as much a `close()` among five cost 14 ms more
        (docs/BENCHMARKS.md). The more often a member beats, the sooner it learns of a rebalance,
        and takes over what a member that left has left behind. A beat costs half a millisecond to a
        whole one of CPU. Who is alone has nothing to take over.
    """
    if members <= 1:
        return _ALONE
    share = min(1.0, members / _SMALL_GROUP)
    interval = timedelta(seconds=members * share / _BEATS_PER_SECOND)
    return min(max(interval, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)


# --- decode --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoded:
    """What the members sent.

    Attributes:
        subscriptions: As decoded, user data without its marks.
        planned: The same, but that members who drain subscribe only to what nobody else does: all
            that others can take is to move away, and they get nothing new.
        loads: What each member says its partitions cost, where it says so.
        peers: Per member, whether it is of another client: those set no marks.
        busy: Per member, whether its user is about to take long over what it has to give up.
    """

    subscriptions: GroupColumns
    planned: GroupColumns
    loads: dict[str, Mapping[TopicPartition, float]]
    peers: Flags
    busy: Flags
    warnings: tuple[str, ...]


def _decode(
    members: Mapping[str, bytes], instance_ids: Mapping[str, str | None], *, joined: bool
) -> _Decoded:
    group, malformed = decode_group(members)
    split = _SplitMarks()
    said = [split[data] for data in group.user_data]
    subscriptions = replace(
        group,
        user_data=[user_data for user_data, _ in said],
        instance_ids=list(map(instance_ids.get, group.members)),
    )
    planned, loads = subscriptions, {}
    if any(marks is not _NO_MARKS for _, marks in split.values()):
        loads = {m: marks.load for m, (_, marks) in zip(group, said, strict=True) if marks.load}
        draining = np.array([marks.draining for _, marks in said], np.bool_)
        if draining.any():
            planned = subscriptions.relieving(draining, joined=joined)
    return _Decoded(
        subscriptions=subscriptions,
        planned=planned,
        loads=loads,
        peers=np.array([marks is _NO_MARKS for _, marks in said], np.bool_),
        busy=np.array([marks.busy for _, marks in said], np.bool_),
        warnings=_at_most(
            _MOST_WARNINGS,
            (
                f"member {member!r} gets nothing: its subscription does not parse: {error}"
                for member, error in malformed.items()
            ),
            len(malformed),
        ),
    )


class _SplitMarks(dict[bytes | None, tuple[bytes | None, SubscriptionMarks]]):
    """Takes the marks off user data; members who send the same have it done once.

    There are two trailers at most: the member's, and its strategy's (a load) before it. That is the
    strategy's own data and stays: one derived from `LoadAwareSticky` may plan for a part of the
    group. Marks of an assignment, which some clients send back, count for nothing.
    """

    def __missing__(self, data: bytes | None) -> tuple[bytes | None, SubscriptionMarks]:
        found = _NO_MARKS
        user_data = rest = data
        for _ in range(2):
            rest, marks = split_marks(rest)
            if isinstance(marks, SubscriptionMarks):
                found = SubscriptionMarks(
                    draining=found.draining or marks.draining,
                    load=found.load or marks.load,
                    busy=found.busy or marks.busy,
                )
            if not found.load:
                user_data = rest
        self[data] = user_data, found
        return user_data, found


# --- validate claims -----------------------------------------------------------------------


def _validate_claims(
    strategy: Assignor,
    cluster: Cluster,
    group: GroupColumns,
    recalled: Mapping[str, Partitions] | None,
) -> Snapshot:
    """Indexes the group and decides whose claims stand (`Snapshot.judge`)."""
    if strategy.name not in _GENERATION_IN_USER_DATA:
        return Snapshot(cluster, group, recalled=recalled)
    return Snapshot(cluster, group, generations=claimed_generations(group), recalled=recalled)


# --- balance, and check the plan -----------------------------------------------------------


def _balance(
    strategy: Assignor, group: SnapshotGroup, *, interruptible: bool
) -> tuple[Plan, AssignorFailedError | None]:
    """Runs the assignor; if it fails, everyone keeps what is rightfully theirs.

    SystemExit is a failure, too: from a thread it could not end the process, only the membership's
    event loop, or leave the group waiting for this round's SyncGroup.
    """
    snapshot = group.snapshot
    try:
        returned = strategy.assign(snapshot.cluster, group)
        if isinstance(returned, Plan) and is_built_in(strategy):
            plan = returned
        else:
            plan = checked(snapshot, returned)
    except BaseException as cause:
        if interruptible and isinstance(cause, KeyboardInterrupt):
            raise
        error = AssignorFailedError(
            f"assignor {strategy.name!r} failed ({text_of(cause)}); "
            "members keep what they own, nothing else is assigned until the next rebalance: "
            "enforce_rebalance() starts one"
        )
        error.__cause__ = cause
        return Plan(snapshot, snapshot.owned.owner.copy(), notes=(str(error),)), error
    if plan is returned or not plan.notes:
        return plan, None
    return plan, AssignorFailedError(
        f"assignor {strategy.name!r} returned what can't be assigned: {'; '.join(plan.notes)}; "
        "the rest of its plan is followed"
    )


# --- encode --------------------------------------------------------------------------------


def _by_owner(plan: Plan, positions: Counts) -> dict[str, Partitions]:
    members = plan.snapshot.members
    return {
        members[plan.owner[at]]: partitions_at(plan.snapshot, positions[i : i + 1])
        for i, at in enumerate(positions.tolist())
    }


def _encode(
    strategy: Assignor,
    granted: Plan,
    *,
    for_peers: AssignmentMarks,
    for_ours: AssignmentMarks,
    peers: Flags,
    leader: str,
    generation: Generation,
) -> dict[str, bytes]:
    members = granted.snapshot.members
    user_data = [granted.data_for(member) for member in members]
    if strategy.name not in _UNMARKED:
        said = list(zip(user_data, peers.tolist(), strict=True))
        # Sarama's members, all of them eager, send back what they get, in place of their own.
        eager = RebalanceProtocol.COOPERATIVE not in strategy.supported_protocols
        silent = eager and for_peers == AssignmentMarks()
        marked = {
            (data, peer): data
            if peer and silent
            else append_marks(data, for_peers if peer else for_ours)
            for data, peer in set(said)
        }
        leads = replace(for_ours, leads=generation)
        user_data = [
            append_marks(data, leads) if member == leader else marked[data, peer]
            for member, (data, peer) in zip(members, said, strict=True)
        ]
    return dict(zip(members, encode_assignments(granted.sets(), user_data), strict=True))


def _at_most(most: int, warnings: Iterable[str], size: int) -> tuple[str, ...]:
    """Cuts a list that other members can make as long as they like."""
    first = tuple(islice(warnings, most))
    return first if size <= most else (*first, f"… and {size - most} more like these")


def _unseen(topics: tuple[str, ...], cluster: Cluster) -> tuple[str, ...]:
    """Who subscribes to such a topic may see it, and hears of nothing: it is healthy, and idle."""
    unseen = [topic for topic in topics if topic not in cluster.partitions]
    if not unseen:
        return ()
    named = ", ".join(unseen[:_MOST_WARNINGS]) + ", …" * (len(unseen) > _MOST_WARNINGS)
    said = (
        f"nobody gets a partition of {named}: members subscribe to it, and this leader does not see"
        " it. It does not exist, or this member has no right to describe it"
    )
    return (said,)


def _all_topics(group: GroupColumns) -> tuple[str, ...]:
    return tuple(sorted(group.names[n] for n in group.wanted().tolist()))
