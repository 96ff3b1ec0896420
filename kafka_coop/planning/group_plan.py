"""`plan`, and the value it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts
from kafka_coop.assignors.plan import partitions_at
from kafka_coop.errors import AssignorFailedError
from kafka_coop.leader import lead
from kafka_coop.planning.columns import Earlier, PlanColumns
from kafka_coop.planning.members import PlanMember, member_after, read_member, strategy_maker
from kafka_coop.planning.reasons import ORDER
from kafka_coop.planning.table import table
from kafka_coop.planning.values import Balance, MemberPlan, PartitionPlan, Reason, Totals, Way
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import (
    Assignment,
    Assignor,
    Cluster,
    Generation,
    Partitions,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)

_LAST_GENERATION = 2**31 - 1


class GroupPlan:
    """One rebalance of a group, thought through. Immutable.

    Attributes:
        strategy: The strategy's name.
        cluster: What exists.
        members: Everyone, by id.
        names: What members are called in all that is said of them, by id; others, by their ids.
        warnings: What the leader would tell its operator.
        rounds: How many rounds it takes: 2 where something has to be revoked first (KIP-429).
        eager: Whether everybody stops and revokes everything, whatever moves in the end.
        assignment: Who owns what in the end.
    """

    def __init__(
        self,
        assignor: str | Assignor,
        cluster: Cluster,
        members: Mapping[str, PlanMember],
        *,
        since: GroupPlan | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._assignor = assignor
        self._make = strategy_maker(assignor)
        strategy = self._make()
        self.strategy = strategy.name
        self.eager = RebalanceProtocol.COOPERATIVE not in strategy.supported_protocols
        self.cluster = cluster
        self.members = members
        self.names = names or {}
        outcome = lead(
            strategy,
            cluster,
            {m: p.encoded for m, p in members.items()},
            instance_ids={m: p.sent.instance_id for m, p in members.items()},
        )
        if outcome.error is not None:
            raise AssignorFailedError(str(outcome.error)) from outcome.error.__cause__
        self.rounds = 2 if outcome.follow_up else 1
        self.warnings = outcome.warnings
        self.assignment = {m: outcome.intended[m].partitions for m in members}
        self._intended = outcome.intended
        recalled = Partitions.of(p for had in outcome.recalled.values() for p in had)
        self._at = PlanColumns(
            cluster,
            members,
            outcome.intended,
            outcome.withheld - recalled,  # those are where they were, a round later
            Earlier(cluster=since.cluster, assignment=since.assignment) if since else None,
            names=self.names,
        )

    # --- what it says ----------------------------------------------------------------------

    @property
    def partitions(self) -> tuple[PartitionPlan, ...]:
        """Every partition that somebody subscribes to, by topic and number."""
        return self._at.named(np.ones_like(self._at.moved))

    @property
    def moves(self) -> tuple[PartitionPlan, ...]:
        """Those that an owner who is there has to give up."""
        return self._at.named(self._at.moved)

    @property
    def placed(self) -> tuple[PartitionPlan, ...]:
        """Those that had no owner and get one."""
        return self._at.named((self._at.before == NOBODY) & (self._at.after != NOBODY))

    @property
    def unassigned(self) -> tuple[PartitionPlan, ...]:
        """Those that the strategy gives to nobody."""
        return self._at.named(self._at.after == NOBODY)

    @cached_property
    def totals(self) -> Totals:
        """How many partitions stay, move and so on."""
        at = self._at
        nobodys, owned = at.after == NOBODY, at.before != NOBODY
        return Totals(
            partitions=at.snapshot.size,
            kept=int((owned & (at.before == at.after)).sum()),
            moved=int(at.moved.sum()),
            placed=int((~owned & ~nobodys).sum()),
            unassigned=int(nobodys.sum()),
            withheld=int(at.withheld.sum()),
            interrupted=int(owned.sum() if self.eager else at.moved.sum()),
            fewest_moves=self._fewest_moves(),
        )

    @property
    def balance_before(self) -> Balance:
        """Partitions per member, as the group is."""
        return _balance(self._at.counts(self._at.before)[self._at.takers()])

    @property
    def balance_after(self) -> Balance:
        """Partitions per member, once the plan is carried out."""
        return _balance(self._at.counts(self._at.after)[self._at.takers()])

    @cached_property
    def by_member(self) -> tuple[MemberPlan, ...]:
        """What it means to each member, sorted by id."""
        at, group = self._at, self._at.snapshot
        before, after = at.counts(at.before), at.counts(at.after)
        kept = at.counts(np.where(at.before == at.after, at.after, NOBODY))
        waits = at.counts(np.where(at.withheld, at.after, NOBODY))
        return tuple(
            MemberPlan(
                member=name,
                topics=int(group.kind_sizes[group.kinds[m]]),
                before=int(before[m]),
                after=int(after[m]),
                gives=int(before[m] - kept[m]),
                gets=int(after[m] - kept[m]),
                waits=int(waits[m]),
                load_before=None if at.loads is None else float(at.loads[0][m]),
                load_after=None if at.loads is None else float(at.loads[1][m]),
            )
            for m, name in enumerate(at.names)
        )

    def ways(self) -> Iterator[Way]:
        """Everything that changes hands, together where all but the partitions agree."""
        at = self._at
        changed = np.flatnonzero(at.codes != ORDER.index(Reason.KEPT))
        columns = [c[changed] for c in (at.before, at.after, at.codes, at.withheld)]
        kinds, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        for kind, (source, destination, code, withheld) in enumerate(kinds.tolist()):
            yield Way(
                source=at.name(source),
                destination=at.name(destination),
                reason=ORDER[code],
                withheld=bool(withheld),
                partitions=partitions_at(at.snapshot, changed[which.ravel() == kind]),
            )

    def _fewest_moves(self) -> int:
        drains = append_marks(None, SubscriptionMarks(draining=True))
        claiming = {
            m: encode_subscription(
                Subscription(
                    topics=p.sent.topics,
                    owned=p.claim.owned,
                    generation=p.claim.generation,
                    user_data=drains if p.draining else None,
                )
            )
            for m, p in self.members.items()
        }
        best = lead("cooperative-sticky", self.cluster.partitions, claiming).intended
        owned = self._at.before != NOBODY
        return int((owned & (self._at.before != self._at.owners(best))).sum())

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return f"<GroupPlan of {len(self.members)} members, {self.strategy}: {self.totals}>"

    # --- what if ---------------------------------------------------------------------------

    def join(
        self,
        member: str,
        topics: Iterable[str] | None = None,
        *,
        instance_id: str | None = None,
        rack: str | None = None,
    ) -> GroupPlan:
        """What if, after this plan, one more member joins?

        Args:
            member: Its id.
            topics: What it subscribes to; None: everything that the others do.
            instance_id: ``group.instance.id``.
            rack: ``client.rack``.

        Raises:
            ValueError: The group has a member of that id.
            TypeError: ``topics`` is a text, whose letters nobody means.
        """
        if isinstance(topics, str):
            raise TypeError(f"topics expects a list of strings, got {topics!r}")
        if member in self._ids:
            raise ValueError(f"member {member!r} is in the group already: choose another id")
        wanted = {t for p in self.members.values() for t in p.sent.topics}
        if topics is not None:
            wanted = set(topics)
        subscription = Subscription(
            topics=tuple(sorted(wanted)), instance_id=instance_id, rack=rack
        )
        after = self._carried_out()
        after[member] = read_member(self._make, subscription)
        return self._next(members=after)

    def leave(self, *members: str) -> GroupPlan:
        """What if, after this plan, these members leave, or are killed?

        Args:
            members: Their ids or names.

        Raises:
            ValueError: The group has no such member.
        """
        for member in members:
            if member not in self._ids:
                known = ", ".join(m.member for m in self.by_member[:10]) or "none"
                raise ValueError(f"member {member!r} is not in the group; its members: {known}")
        gone = {self._ids[m] for m in members}
        after = self._carried_out()
        return self._next(members={m: p for m, p in after.items() if m not in gone})

    def grow(self, topic: str, partitions: int) -> GroupPlan:
        """What if, after this plan, a topic has this many partitions, or comes into being?

        Racks of the new partitions are not known, and so count as far from everybody.

        Raises:
            ValueError: The topic has more partitions now: Kafka's topics never shrink.
        """
        now = self.cluster.partitions.get(topic, 0)
        if partitions < now:
            raise ValueError(
                f"topic {topic!r} has {now} partitions; it can't shrink to {partitions}"
            )
        grown = {**self.cluster.partitions, topic: partitions}
        return self._next(cluster=replace(self.cluster, partitions=grown))

    def under(self, assignor: str | Assignor) -> GroupPlan:
        """What if, after this plan, the group changes to another strategy?

        One that goes by what its own members remember, as `sticky` and `stream-join-sticky` do,
        begins anew.

        Raises:
            ConfigurationError: No built-in strategy has this name.
        """
        make = strategy_maker(assignor)
        same = make().name == self.strategy
        generation = self._next_generation()
        members = {
            m: member_after(
                make,
                p.sent,
                Assignment(partitions=self.assignment[m]),
                generation,
                load=p.load,
                draining=p.draining,
                told=same,
            )
            for m, p in self._carried_out().items()
        }
        return self._next(assignor=assignor, members=members)

    def again(self) -> GroupPlan:
        """What if, after this plan, there is one more round, though nothing has changed?"""
        return self._next()

    @cached_property
    def _ids(self) -> Mapping[str, str]:
        """Members' ids by what they may be called: by their names, and by their ids."""
        called = {self.names[m]: m for m in self.members if m in self.names}
        return {**called, **{m: m for m in self.members}}

    def _next(
        self,
        *,
        assignor: str | Assignor | None = None,
        cluster: Cluster | None = None,
        members: Mapping[str, PlanMember] | None = None,
    ) -> GroupPlan:
        after = self._carried_out() if members is None else members
        return GroupPlan(
            assignor if assignor is not None else self._assignor,
            cluster or self.cluster,
            {m: after[m] for m in sorted(after)},
            since=self,
            names=self.names,
        )

    def _carried_out(self) -> dict[str, PlanMember]:
        """The members once all rounds of this plan are over."""
        loads = {TopicPartition(*p): v for m in self.members.values() for p, v in m.load.items()}
        return {
            m: member_after(
                self._make,
                p.sent,
                self._intended[m],
                self._next_generation(),
                load={q: loads[q] for q in self.assignment[m] if q in loads} if loads else {},
                draining=p.draining,
            )
            for m, p in self.members.items()
        }

    def _next_generation(self) -> Generation:
        last = max((p.claim.generation for p in self.members.values()), default=0)
        return Generation(min(last, _LAST_GENERATION - 1) + 1)  # what a member says may be anything


def _balance(counts: Counts) -> Balance:
    if not counts.size:
        return Balance(least=0, most=0, mean=0)
    return Balance(least=int(counts.min()), most=int(counts.max()), mean=float(counts.mean()))


def plan(
    assignor: str | Assignor,
    cluster: Cluster | Mapping[str, int],
    members: Mapping[str, Subscription | bytes],
    *,
    instance_ids: Mapping[str, str | None] | None = None,
    since: GroupPlan | None = None,
    names: Mapping[str, str] | None = None,
) -> GroupPlan:
    """Plans a group's next rebalance, as its leader would, and explains it.

    Args:
        assignor: A built-in strategy's name, or an assignor. An instance is copied.
        cluster: What exists: topic -> number of partitions, or a `Cluster` with racks too.
        members: Member id -> its Subscription, or the bytes of one as they travel in JoinGroup.
            A Subscription without user data gets what a member of this strategy would send that
            was given its `owned` under its `generation`.
        instance_ids: Member id -> ``group.instance.id``, which those bytes do not hold.
        since: The plan that the group came from. It tells which members and partitions are new,
            and who has left; without it, a member is new that owns nothing and has no generation.
        names: Member id -> what to call it. Strategies go by ids, of which some look at their
            order: a plan of a living group takes the ids that its coordinator gave.

    Returns:
        Who gets what, what moves, and why; printable.

    Raises:
        ConfigurationError: No built-in strategy has this name.
        AssignorFailedError: The strategy raised.
    """
    make = strategy_maker(assignor)
    world = cluster if isinstance(cluster, Cluster) else Cluster(partitions=dict(cluster))
    static = instance_ids or {}
    read = {m: read_member(make, members[m], instance_id=static.get(m)) for m in sorted(members)}
    return GroupPlan(assignor, world, read, since=since, names=names)
