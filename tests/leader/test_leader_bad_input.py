"""Bad input, one kind after the other: each has a defined result under every strategy.

Zero members and zero partitions are `test_leader_pipeline.test_nobody_and_nothing`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import chain
from typing import Any, cast

import numpy as np
import pytest
from garbage import survives

from kafka_coop.assignors import CooperativeSticky, known_names
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot, snapshot_of
from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.primitives import encode_string
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Cluster, Generation, GroupSubscription, Partitions, Subscription

every_strategy = pytest.mark.parametrize("name", known_names())


def subscription(
    *topics: str, owned: Mapping[str, list[int]] | None = None, generation: int = 1
) -> bytes:
    return encode_subscription(
        Subscription(
            topics=topics, owned=Partitions(owned or {}), generation=Generation(generation)
        )
    )


def raw(topics: list[str], owned: list[tuple[str, list[int]]], generation: int) -> bytes:
    """A subscription of version 2 as written: nothing is sorted, or left out for being odd."""
    parts = [struct.pack(">hi", 2, len(topics)), *map(encode_string, topics), struct.pack(">i", -1)]
    parts.append(struct.pack(">i", len(owned)))
    for topic, numbers in owned:
        parts += [encode_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join((*parts, struct.pack(">i", generation)))


def given(outcome: LeaderOutcome) -> dict[str, list[int]]:
    """Everybody's partitions of topic ``t``; there are no others."""
    sets = {m: decode_assignment(b).partitions for m, b in outcome.assignments.items()}
    assert all(p.topics() in {(), ("t",)} for p in sets.values())
    return {m: p.get("t").tolist() for m, p in sets.items()}


@every_strategy
def test_a_topic_that_nobody_knows_is_watched_and_assigned_to_nobody(name: str) -> None:
    outcome = lead(name, {"t": 2}, {"m": subscription("t", "ghost", owned={"ghost": [0, 7]})})
    assert given(outcome) == {"m": [0, 1]}
    assert outcome.topics == ("ghost", "t")
    assert not outcome.follow_up
    assert outcome.error is None


def test_a_million_members_and_one_partition() -> None:
    alike = subscription("t")
    outcome = lead("cooperative-sticky", {"t": 1}, {f"m{n}": alike for n in range(1_000_000)})
    assert len(outcome.assignments) == 1_000_000
    idle = min(outcome.assignments.values(), key=len)
    busy = [data for data in outcome.assignments.values() if data != idle]
    assert [decode_assignment(data).partitions for data in busy] == [Partitions({"t": [0]})]


@every_strategy
def test_two_members_of_one_instance_id_share_what_there_is(name: str) -> None:
    """The coordinator lets it be one; if it ever does not, nothing is owned twice."""
    members = {"m": subscription("t"), "n": subscription("t")}
    outcome = lead(name, {"t": 4}, members, instance_ids={"m": "same", "n": "same"})
    assert sorted(chain(*given(outcome).values())) == [0, 1, 2, 3]
    assert outcome.error is None


@every_strategy
def test_topics_and_partitions_named_twice_count_once(name: str) -> None:
    twice = raw(["t", "t"], [("t", [1, 0, 1]), ("t", [0])], 1)
    outcome = lead(name, {"t": 4}, {"m": twice, "n": subscription("t")})
    assert outcome.subscriptions["m"].topics == ("t",)
    assert outcome.subscriptions["m"].owned == Partitions({"t": [0, 1]})
    withheld = outcome.withheld.get("t").tolist()
    assert sorted(chain(*given(outcome).values(), withheld)) == [0, 1, 2, 3]
    assert outcome.error is None


@every_strategy
def test_negative_and_huge_partition_numbers_are_claims_on_nothing(name: str) -> None:
    absurd = raw(["t"], [("t", [-(2**31), -1, 0, 2, 3, 2**31 - 1])], 1)
    outcome = lead(name, {"t": 2}, {"m": absurd})
    assert given(outcome) == {"m": [0, 1]}
    assert not outcome.follow_up
    assert outcome.error is None


def test_the_highest_generation_there_is_beats_the_one_it_wraps_to() -> None:
    """A group would have to rebalance every second for 68 years; one round then costs a move."""
    members = {
        "last": raw(["t"], [("t", [0, 1])], 2**31 - 1),
        "wrapped": raw(["t"], [("t", [0, 1])], -(2**31)),
        "zero": raw(["t"], [("t", [0, 1])], 0),
    }
    outcome = lead("cooperative-sticky", {"t": 2}, members)
    assert outcome.subscriptions["wrapped"].generation == -1, "a negative one is none"
    kept = given(outcome)
    assert len(kept["last"]) == 1
    assert kept["wrapped"] == kept["zero"] == []
    assert outcome.follow_up, "the others have to be told to stop, and one of them gets the rest"


@every_strategy
def test_generations_that_wrap_are_survived_by_every_strategy(name: str) -> None:
    members = {
        f"m{n}": raw(["t"], [("t", [n])], generation)
        for n, generation in enumerate((2**31 - 1, -(2**31), -1, 0))
    }
    outcome = lead(name, {"t": 4}, members)
    assert given(outcome) == {f"m{n}": [n] for n in range(4)}
    assert outcome.error is None


@every_strategy
def test_who_subscribes_to_nothing_gets_nothing_and_is_asked_to_let_go(name: str) -> None:
    members = {"idle": subscription(), "former": subscription(owned={"t": [0]})}
    assert given(lead(name, {"t": 2}, members)) == {"idle": [], "former": []}
    outcome = lead(name, {"t": 2}, {**members, "m": subscription("t", owned={"t": [1]})})
    eager = name in {"range", "roundrobin", "sticky"}
    assert given(outcome) == {"idle": [], "former": [], "m": [0, 1] if eager else [1]}
    assert outcome.follow_up is not eager


def test_garbage_metadata_are_survived() -> None:
    """The short form of ``python tests/leader/garbage.py``, which goes on for a million."""
    assert sum(survives(seed) for seed in range(40)) > 0


class Raising(CooperativeSticky):
    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self._raised = raised

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Any:
        raise self._raised


def test_a_strategy_that_exits_has_failed_and_everyone_keeps_what_they_own() -> None:
    members = {"m": subscription("t", owned={"t": [1]}), "n": subscription("t")}
    outcome = lead(Raising(SystemExit("config missing")), {"t": 2}, members)
    assert given(outcome) == {"m": [1], "n": []}
    assert "SystemExit: config missing" in str(outcome.error)


def test_who_plans_on_the_main_thread_may_interrupt_the_strategy() -> None:
    with pytest.raises(KeyboardInterrupt):
        lead(Raising(KeyboardInterrupt()), {"t": 2}, {"m": subscription("t")})


def test_in_another_thread_nobody_interrupts_and_the_strategy_has_failed() -> None:
    members = {"m": subscription("t", owned={"t": [1]})}
    outcome = lead(Raising(KeyboardInterrupt()), {"t": 2}, members, interruptible=False)
    assert given(outcome) == {"m": [1]}
    assert "KeyboardInterrupt" in str(outcome.error)


def test_what_a_strategy_writes_into_the_cluster_is_not_written_into_its_members() -> None:
    """Its member would find other topics than it had joined with, and rebalance at each look."""

    class Writing(CooperativeSticky):
        def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
            cast("dict[str, int]", cluster.partitions).clear()
            return super().assign(cluster, group)

    cluster = Cluster(partitions={"t": 2})
    assert given(lead(Writing(), cluster, {"m": subscription("t")})) == {"m": [0, 1]}
    assert cluster.partitions == {"t": 2}


class Filling(CooperativeSticky):
    """Derived from one of ours, with a column of its own."""

    def __init__(self, owner: list[int], user_data: bytes | Mapping[str, bytes] = b"") -> None:
        super().__init__()
        self._filled = np.array(owner, np.int32)
        self._user_data = user_data

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        return Plan(snapshot_of(cluster, group), self._filled.copy(), user_data=self._user_data)


def test_a_derived_strategy_that_forgets_a_members_user_data_has_failed() -> None:
    members = {"m": subscription("t", owned={"t": [1]}), "n": subscription("t")}
    outcome = lead(Filling([0, 1], {"m": b"x"}), {"t": 2}, members)
    assert given(outcome) == {"m": [1], "n": []}
    assert "KeyError: 'n'" in str(outcome.error)
    assert lead(Filling([0, 1], {"m": b"x", "n": b""}), {"t": 2}, members).error is None


@pytest.mark.parametrize("owner", [[0], [0, 2], [0, -2]])
def test_a_derived_strategy_with_a_column_of_another_group_has_failed(owner: list[int]) -> None:
    members = {"m": subscription("t", owned={"t": [1]}), "n": subscription("t")}
    outcome = lead(Filling(owner), {"t": 2}, members)
    assert given(outcome) == {"m": [1], "n": []}
    assert "ValueError" in str(outcome.error)


def test_a_derived_strategy_assigns_to_subscribers_alone() -> None:
    outcome = lead(Filling([0, 1]), {"t": 2}, {"m": subscription("t"), "n": subscription()})
    assert given(outcome) == {"m": [0], "n": []}
    assert "1 partitions went to members not subscribed to them" in str(outcome.error)


def test_a_derived_strategy_that_writes_into_its_snapshot_has_failed() -> None:
    """Its plan would be what everyone owns already, and nothing be withheld from its new owner."""

    class Scribbling(CooperativeSticky):
        def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
            snapshot = snapshot_of(cluster, group)
            owner = snapshot.owned.owner
            owner[0] = 1
            return Plan(snapshot, owner)

    members = {"m": subscription("t", owned={"t": [0, 1]}), "n": subscription("t")}
    outcome = lead(Scribbling(), {"t": 2}, members)
    assert given(outcome) == {"m": [0, 1], "n": []}
    assert "read-only" in str(outcome.error)


def test_a_mapping_that_fails_for_a_member_has_failed() -> None:
    """And is not taken for one that gives it nothing."""

    class Elsewhere(CooperativeSticky):
        def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
            own = Snapshot(cluster, dict(group))
            return Plan(own, np.zeros(2, np.int32), user_data={"n": b""})

    members = {"m": subscription("t", owned={"t": [1]}), "n": subscription("t")}
    outcome = lead(Elsewhere(), {"t": 2}, members)
    assert given(outcome) == {"m": [1], "n": []}
    assert "KeyError: 'm'" in str(outcome.error)


@pytest.mark.parametrize("notes", [None, "all of it", (1,)])
def test_notes_that_are_none_are_the_strategys_failure(notes: Any) -> None:
    class Noted(CooperativeSticky):
        def assign(self, cluster: Cluster, group: GroupSubscription) -> Any:
            plan = super().assign(cluster, group)
            plan.notes = notes
            return plan

    outcome = lead(Noted(), {"t": 2}, {"m": subscription("t", owned={"t": [1]})})
    assert given(outcome) == {"m": [1]}
    assert "the notes of the plan are" in str(outcome.error)
