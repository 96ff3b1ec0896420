"""The rules for one plan: what `assign` returns for a snapshot."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from kafka_coop.assignors.checking import assignment_of, what_is_wrong
from kafka_coop.errors import text_of
from kafka_coop.planning.table import runs
from kafka_coop.testing.assignor.situation import Situation
from kafka_coop.testing.assignor.violation import AssignorCheckError, Rule
from kafka_coop.types import (
    Assignment,
    Assignor,
    Cluster,
    Generation,
    GroupMetadata,
    Partitions,
    Subscription,
)

Maker: TypeAlias = Callable[[], Assignor]

_REPEATS = 2
"""How often the same is asked: who answers by chance seldom says the same so often."""


def check_interface(assignor: object) -> None:
    """Whether it looks like an assignor at all."""
    if wrong := what_is_wrong(assignor):
        raise AssignorCheckError(Rule.INTERFACE, (wrong,))


def as_member_sends(make: Maker, subscription: Subscription) -> bytes | None:
    """What a member says that was given what it claims."""
    member = make()
    if subscription.generation >= 0:
        owned = Assignment(partitions=subscription.owned)
        tell(member, owned, subscription.generation)
    return user_data_of(member, subscription)


def tell(member: Assignor, assignment: Assignment, generation: Generation) -> None:
    """Calls `on_assignment`."""
    metadata = GroupMetadata(group_id="check", generation=generation)
    called("on_assignment", lambda: member.on_assignment(assignment, metadata))


def user_data_of(member: Assignor, subscription: Subscription) -> bytes | None:
    """Calls `subscription_user_data`."""
    data: object = called(
        "subscription_user_data", lambda: member.subscription_user_data(subscription.topics)
    )
    if data is not None and not isinstance(data, bytes):
        raise AssignorCheckError(
            Rule.RETURNS, (f"subscription_user_data() returned {data!r}, not bytes or None",)
        )
    return data


def check_plan(make: Maker, situation: Situation, *, complete: bool) -> None:
    """Everything that can be said of one snapshot."""
    world = situation.cluster
    group = {m: replace(s, user_data=as_member_sends(make, s)) for m, s in situation.group.items()}
    plan = _plan_alone(make(), world, group)
    _check_partitions(world, group, plan, complete=complete)
    check_repeats(make, situation)
    _check_order(make, world, group, plan)
    noisy = {m: replace(s, user_data=situation.noise.get(m, s.user_data)) for m, s in group.items()}
    try:
        plan = _planned(make(), world, noisy)
    except AssignorCheckError as error:
        raise AssignorCheckError(Rule.HOSTILE, error.details) from error
    _check_partitions(world, group, plan, complete=complete)


def check_complete(world: Cluster, group: Mapping[str, Subscription], got: set[At]) -> None:
    """Every partition that somebody subscribes to is among these."""
    wanted = {t for s in group.values() for t in s.topics} & world.partitions.keys()
    left = {(t, p) for t in wanted for p in range(world.partitions[t])} - got
    if left:
        raise AssignorCheckError(Rule.COMPLETE, (f"nobody has {runs(Partitions.of(left))}",))


At: TypeAlias = tuple[str, int]


def called(method: str, call: Callable[[], object]) -> object:
    """What a method of the assignor returns; it must not raise."""
    try:
        return call()
    except Exception as error:
        told = f"{method}() raised {text_of(error)}"
        raise AssignorCheckError(Rule.RETURNS, (told,)) from error


def _plan_alone(
    assignor: Assignor, world: Cluster, group: dict[str, Subscription]
) -> dict[str, Partitions]:
    """Its plan; it is given copies, to see whether it writes to them."""
    mine = Cluster(partitions=dict(world.partitions), replica_racks=world.replica_racks)
    theirs = copy.deepcopy(group)
    answer = called("assign", lambda: assignor.assign(mine, theirs))
    changed = ["cluster.partitions"] * (mine.partitions != world.partitions)
    changed += ["group"] * (theirs != group)
    if changed:
        raise AssignorCheckError(Rule.PURE, (f"it changed {' and '.join(changed)}",))
    return _read(answer, group)


def _planned(
    assignor: Assignor, world: Cluster, group: dict[str, Subscription]
) -> dict[str, Partitions]:
    return _read(called("assign", lambda: assignor.assign(world, group)), group)


def _read(plan: object, group: dict[str, Subscription]) -> dict[str, Partitions]:
    if not isinstance(plan, Mapping):
        told = f"assign() returned {type(plan).__name__}, not a mapping of assignments"
        raise AssignorCheckError(Rule.RETURNS, (told,))
    for member in plan:
        try:
            assignment_of(member, plan)
        except TypeError as error:
            told = f"assign() returned a plan in which {error}"
            raise AssignorCheckError(Rule.RETURNS, (told,)) from None
    if strangers := [m for m in plan if m not in group]:
        raise AssignorCheckError(Rule.IN_THE_GROUP, (f"it assigned to {strangers[0]!r}",))
    return {m: plan[m].partitions if m in plan else Partitions() for m in group}


def _check_partitions(
    world: Cluster,
    group: dict[str, Subscription],
    plan: dict[str, Partitions],
    *,
    complete: bool,
) -> None:
    had: dict[At, str] = {}
    for member, partitions in plan.items():
        for topic, number in partitions:
            at = f"{topic}-{number}"
            if not 0 <= number < world.partitions.get(topic, 0):
                raise AssignorCheckError(Rule.EXISTS, (f"{member} was given {at}",))
            if topic not in group[member].topics:
                told = f"{member} was given {at}, and subscribes to {group[member].topics}"
                raise AssignorCheckError(Rule.SUBSCRIBED, (told,))
            if (topic, number) in had:
                told = f"{at} was given to {had[topic, number]} and to {member}"
                raise AssignorCheckError(Rule.ONCE, (told,))
            had[topic, number] = member
    if complete:
        check_complete(world, group, set(had))


def check_repeats(make: Maker, situation: Situation, *, times: int = _REPEATS) -> None:
    """Whether it says the same, asked once more, and so does another that has seen nothing."""
    group = {m: replace(s, user_data=as_member_sends(make, s)) for m, s in situation.group.items()}
    mine = make()
    first = _planned(mine, situation.cluster, group)
    for _ in range(times):
        for asked in (mine, make()):
            again = _planned(asked, situation.cluster, group)
            if again != first:
                raise AssignorCheckError(Rule.REPEATABLE, _differing(first, again))


def _check_order(
    make: Maker, world: Cluster, group: dict[str, Subscription], plan: dict[str, Partitions]
) -> None:
    backwards = Cluster(
        partitions=dict(reversed(list(world.partitions.items()))), replica_racks=world.replica_racks
    )
    for other, others in (
        (world, dict(reversed(group.items()))),
        (backwards, group),
    ):
        again = _planned(make(), other, others)
        if again != plan:
            what = "members" if other is world else "topics"
            told = _differing(plan, again)
            raise AssignorCheckError(Rule.ORDER, (*told, f"({what} in reverse)"))


def _differing(one: dict[str, Partitions], other: dict[str, Partitions]) -> tuple[str, ...]:
    return tuple(
        f"{m} was given {runs(one[m]) or 'nothing'}, then {runs(other[m]) or 'nothing'}"
        for m in one
        if one[m] != other[m]
    )
