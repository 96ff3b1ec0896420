"""`check_assignor`: our strategies pass; each wrong one fails, for its own reason, in little."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest

from kafka_coop.assignors import CooperativeSticky, known_names, resolve
from kafka_coop.testing import AssignorCheckError, check_assignor
from kafka_coop.testing.assignor import Rule
from kafka_coop.types import (
    Assignment,
    Assignor,
    Cluster,
    GroupAssignment,
    GroupMetadata,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
)

At = tuple[str, int]
Given = dict[str, list[At]]
COOPERATIVE = (RebalanceProtocol.COOPERATIVE,)


def dealt(cluster: Cluster, group: GroupSubscription) -> Given:
    """A right plan: every partition to the first of its subscribers in turn."""
    given: Given = {m: [] for m in group}
    for topic, count in sorted(cluster.partitions.items()):
        takers = sorted(m for m in group if topic in group[m].topics)
        for partition, member in zip(range(count), cycle(takers), strict=False):
            given[member].append((topic, partition))
    return given


@dataclass
class Dealing:
    """Right, but for what `spoil` makes of its plan."""

    spoil: Callable[[Given, Cluster, GroupSubscription], object] = lambda *_: None
    protocols: tuple[RebalanceProtocol, ...] = COOPERATIVE
    name: str = "dealing"
    seen: list[Assignment] = field(default_factory=list)

    @property
    def supported_protocols(self) -> tuple[RebalanceProtocol, ...]:
        return self.protocols

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        return None

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.seen.append(assignment)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:
        given = dealt(cluster, group)
        self.spoil(given, cluster, group)
        return {m: Assignment(partitions=Partitions.of(p)) for m, p in given.items()}


def drop(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    for partitions in given.values():
        if len(partitions) > 1:
            partitions.pop()


def repeat(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    for member in given:
        if "t0" in group[member].topics and "t0" in cluster.partitions:
            given[member].append(("t0", 0))


def trespass(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    for taker in given:
        for giver in given.keys() - {taker}:
            foreign = [p for p in given[giver] if p[0] not in group[taker].topics]
            given[taker] += foreign
            given[giver] = [p for p in given[giver] if p not in foreign]


def invent(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    for member in given:
        given[member] += [(t, cluster.partitions[t]) for t, _ in given[member]]


def invite(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    given["a stranger"] = []


def first_come(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    everything = [p for partitions in given.values() for p in partitions]
    for member in group:  # in the order that they are in
        given[member] = [p for p in everything if p[0] in group[member].topics]
        everything = [p for p in everything if p not in given[member]]


def guess(draw: Callable[[list[str]], str]) -> Callable[..., None]:
    def spoil(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
        everything = [p for partitions in given.values() for p in partitions]
        for member in given:
            given[member] = []
        for topic, partition in everything:
            able = sorted(m for m in group if topic in group[m].topics)
            given[draw(able)].append((topic, partition))

    return spoil


def scribble_on_cluster(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    partitions: Any = cluster.partitions
    partitions["scratch"] = 1


def scribble_on_group(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    members: Any = group
    if len(group) > 1:
        members.pop(max(group))


def fail(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    if len(group) > 2:
        raise ZeroDivisionError("three is a crowd")


def trust(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    for subscription in group.values():
        (subscription.user_data or b"").decode("ascii")


def swing(given: Given, cluster: Cluster, group: GroupSubscription) -> None:
    """Whoever owns t0-0 must give it to somebody else."""
    for member in given:
        given[member] = [p for p in given[member] if p != ("t0", 0)]
    able = sorted(m for m in group if "t0" in group[m].topics)
    if able and "t0" in cluster.partitions:
        owners = [m for m in able if ("t0", 0) in group[m].owned]
        given[next((m for m in able if m not in owners), able[0])].append(("t0", 0))


WRONG = {
    "drops a partition": (drop, Rule.COMPLETE),
    "assigns twice": (repeat, Rule.ONCE),
    "assigns to a member that does not subscribe": (trespass, Rule.SUBSCRIBED),
    "invents a partition": (invent, Rule.EXISTS),
    "assigns to a stranger": (invite, Rule.IN_THE_GROUP),
    "depends on the order of members": (first_come, Rule.ORDER),
    "is random": (guess(random.choice), Rule.REPEATABLE),
    "is random beyond reproduction": (guess(random.SystemRandom().choice), Rule.REPEATABLE),
    "changes the cluster": (scribble_on_cluster, Rule.PURE),
    "changes the group": (scribble_on_group, Rule.PURE),
    "raises": (fail, Rule.RETURNS),
    "trusts what others send": (trust, Rule.HOSTILE),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_assignor_is_caught_for_the_right_reason_in_little(what: str) -> None:
    spoil, rule = WRONG[what]
    with pytest.raises(AssignorCheckError) as caught:
        check_assignor(lambda: Dealing(spoil))
    assert caught.value.rule is rule
    assert f"Dealing breaks a rule: {rule.value}" in str(caught.value)
    assert "cluster = Cluster(partitions={" in str(caught.value)
    found = caught.value.situation
    assert found is not None
    if what == "is random beyond reproduction":
        return  # nor can it be made smaller
    assert len(found.group) <= 3
    assert sum(found.cluster.partitions.values()) <= 3
    assert not found.events
    assert not any(s.owned for s in found.group.values())


def test_what_is_never_at_rest_is_shown_round_by_round() -> None:
    with pytest.raises(AssignorCheckError, match="round by round") as caught:
        check_assignor(lambda: Dealing(swing))
    assert caught.value.rule in {Rule.ENDS, Rule.AT_REST}
    assert "1. m0 " in str(caught.value)


class Amnesiac(Dealing):
    """Plans from what it was told last, which other leaders were not."""

    def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:
        given = dealt(cluster, group)
        plan = {m: Assignment(partitions=Partitions.of(p)) for m, p in given.items()}
        names = sorted(plan)
        return (
            dict(zip(names, [plan[m] for m in reversed(names)], strict=True)) if self.seen else plan
        )


def test_a_plan_from_the_leaders_own_memory_is_never_at_rest() -> None:
    with pytest.raises(AssignorCheckError) as caught:
        check_assignor(Amnesiac, subscriptions="equal")
    assert caught.value.rule in {Rule.AT_REST, Rule.ENDS}


class Answers(Dealing):
    def __init__(self, plan: object = None, user_data: object = None) -> None:
        super().__init__()
        self.plan, self.user_data = plan, user_data

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Any:
        return super().assign(cluster, group) if self.plan is None else self.plan

    def subscription_user_data(self, topics: tuple[str, ...]) -> Any:
        return self.user_data


def listed(partitions: Any, user_data: Any = b"") -> Assignment:
    """With fields of other types than the strategy's author was told."""
    return Assignment(partitions=partitions, user_data=user_data)


class Forgets(Dealing):
    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        raise KeyError("unknown")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Answers(plan=[]), "assign.. returned list, not a mapping"),
        (lambda: Answers(plan={"m0": ["t0"]}), "member 'm0' is given is of type list, not Assign"),
        (lambda: Answers(plan={"m0": listed([("t0", 0)])}), "type list, not Partitions: make them"),
        (lambda: Answers(plan={"m0": listed(Partitions(), "x")}), "user data of .* 'x', not bytes"),
        (lambda: Answers(user_data="text"), "returned 'text', not bytes or None"),
        (Forgets, "on_assignment.. raised KeyError: 'unknown'"),
        (object, "object lacks name, supported_protocols"),
        (lambda: Dealing(name=""), "name is '', not a text"),
        (lambda: Dealing(protocols=()), "supported_protocols is "),
    ],
)
def test_what_is_no_assignor_is_told_so(make: Callable[[], Assignor], text: str) -> None:
    with pytest.raises(AssignorCheckError, match=text):
        check_assignor(make)


def test_what_can_not_be_called_is_no_assignor() -> None:
    value: Any = 7
    with pytest.raises(AssignorCheckError, match="int lacks name"):
        check_assignor(value)


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("name", known_names())
def test_our_own_strategies_pass(name: str, racks: bool) -> None:
    """Stream-join-sticky leaves out what can't be joined; see also the next test."""
    check_assignor(
        lambda: resolve(name), examples=30, racks=racks, complete=name != "stream-join-sticky"
    )


@pytest.mark.parametrize("name", known_names())
def test_our_own_strategies_pass_where_all_topics_are_alike(name: str) -> None:
    check_assignor(lambda: resolve(name), examples=30, subscriptions="equal", equal_partitions=True)


def test_an_instance_and_a_class_are_taken_too() -> None:
    mine = CooperativeSticky()
    check_assignor(mine, examples=10)
    check_assignor(CooperativeSticky, examples=10)
    assert mine.subscription_user_data(()) == CooperativeSticky().subscription_user_data(())


def test_an_eager_one_gives_everything_up_between_rounds() -> None:
    check_assignor(lambda: Dealing(protocols=(RebalanceProtocol.EAGER,)), examples=40)


def test_limits_are_kept() -> None:
    seen: list[tuple[int, int]] = []

    def note(given: Mapping[str, object], cluster: Cluster, group: GroupSubscription) -> None:
        seen.append((len(group), len(cluster.partitions)))

    check_assignor(lambda: Dealing(note), examples=20, members=2, topics=1, partitions=2)
    assert max(topics for _, topics in seen) == 1
    assert max(members for members, _ in seen) <= 5, "two, and one more for each event"
