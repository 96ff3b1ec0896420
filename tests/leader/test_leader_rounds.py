"""Chains of rounds: members come, go, change their minds, miss rounds and come back as zombies."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Generation, Partitions, Subscription

STRATEGIES = [
    "cooperative-sticky",
    "constrained-cooperative-sticky",
    "fairest-sticky",
    "load-aware-sticky",
]


@dataclass
class Group:
    """Members under KIP-429: each revokes what left, and goes on with what stayed."""

    strategy: str
    cluster: dict[str, int]
    members: dict[str, Subscription] = field(default_factory=dict)
    generation: int = 0

    def round(self, misses: Iterable[str] = ()) -> LeaderOutcome:
        """One round. Who misses its Sync goes on as before, with claims of the old generation."""
        self.generation += 1
        for name, sub in self.members.items():
            kept = sub.owned.only(sub.topics)
            self.members[name] = replace(sub, owned=kept)  # KIP-429: revoked before the join
        sent = {m: encode_subscription(s) for m, s in self.members.items()}
        outcome = lead(self.strategy, self.cluster, sent)
        got = {m: decode_assignment(b).partitions for m, b in outcome.assignments.items()}
        self.check(got)
        for name in self.members.keys() - set(misses):
            self.members[name] = replace(
                self.members[name], owned=got[name], generation=Generation(self.generation)
            )
        return outcome

    def check(self, got: dict[str, Partitions]) -> None:
        """Whatever is new to a member is claimed by nobody else; nothing is given twice."""
        seen: set[tuple[str, int]] = set()
        for name, partitions in got.items():
            here = {(t, p) for t, p in partitions}
            assert not here & seen
            seen |= here
            came = partitions - self.members[name].owned
            for other in self.members.keys() - {name}:
                assert came.isdisjoint(self.members[other].owned)

    def settle(self, most: int) -> int:
        """Rounds until the leader announces no further one."""
        for count in range(1, most + 1):
            if not self.round().follow_up:
                return count
        pytest.fail(f"no end after {most} rounds")

    def unowned(self) -> set[tuple[str, int]]:
        wanted = {t for s in self.members.values() for t in s.topics}
        everything = {(t, p) for t, n in self.cluster.items() if t in wanted for p in range(n)}
        return everything - {(t, p) for s in self.members.values() for t, p in s.owned}


def change(group: Group, rng: random.Random, names: list[str]) -> list[str]:
    """One thing happens to the group. Returns who misses the round that follows."""
    present = sorted(group.members)
    match rng.choice(["join", "join", "leave", "topics", "grow", "zombie", "kill"]):
        case "join" if len(present) < 12:
            topics = tuple(sorted(rng.sample(names, rng.randint(1, len(names)))))
            group.members[f"m{group.generation:04}"] = Subscription(topics=topics)
        case "leave" | "kill" if len(present) > 1:
            del group.members[rng.choice(present)]
        case "topics" if present:
            name = rng.choice(present)
            topics = tuple(sorted(rng.sample(names, rng.randint(1, len(names)))))
            group.members[name] = replace(group.members[name], topics=topics)
        case "grow":
            group.cluster[rng.choice(names)] += rng.randint(1, 3)
        case "zombie" if present:
            return rng.sample(present, rng.randint(1, len(present)))
    return []


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_changes_with_zombies_end_with_one_owner_each(strategy: str, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"t{i}" for i in range(5)]
    group = Group(strategy, {n: rng.randint(1, 8) for n in names})
    group.members = {f"m{i}": Subscription(topics=tuple(names)) for i in range(3)}
    for _ in range(100):
        group.round(misses=change(group, rng, names))
        if rng.random() < 0.4:
            group.settle(most=4)
            assert not group.unowned()
            before = {m: s.owned for m, s in group.members.items()}
            group.round()
            assert {m: s.owned for m, s in group.members.items()} == before, "no change, no change"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_zombie_back_with_old_claims_costs_its_successor_nothing(strategy: str) -> None:
    group = Group(strategy, {"t": 6})
    group.members = {m: Subscription(topics=("t",)) for m in ("a", "b", "c")}
    group.settle(most=3)
    zombie = group.members.pop("a")
    group.settle(most=3)
    kept = {m: s.owned for m, s in group.members.items()}
    group.members["a"] = zombie
    outcome = group.round()
    assert outcome.follow_up
    for name, owned in kept.items():
        lost = owned - group.members[name].owned
        assert strategy == "fairest-sticky" or len(lost) == 1, "a third of six is two each"
    group.settle(most=3)
    assert not group.unowned()


def test_a_member_of_a_client_that_sends_no_generation_shares_the_group() -> None:
    """kafka-python: every claim of its is the oldest; uncontested it is honoured all the same."""
    group = Group("cooperative-sticky", {"t": 6})
    group.members = {
        "a": Subscription(topics=("t",), owned=Partitions({"t": [0, 1, 2]})),
        "b": Subscription(topics=("t",), owned=Partitions({"t": [2, 3]}), generation=Generation(4)),
    }
    outcome = group.round()
    assert outcome.follow_up
    assert not Partitions({"t": [0, 1]}) - group.members["a"].owned
    assert not Partitions({"t": [2, 3]}) - group.members["b"].owned
    group.settle(most=3)
    assert len(group.members["a"].owned) == len(group.members["b"].owned) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_drains_is_relieved_in_two_rounds_and_nothing_else_moves(strategy: str) -> None:
    group = Group(strategy, {"t": 12, "u": 3})
    group.members = {m: Subscription(topics=("t", "u")) for m in ("a", "b", "c")}
    group.settle(most=3)
    before = {m: s.owned for m, s in group.members.items()}
    drains = append_marks(group.members["a"].user_data, SubscriptionMarks(draining=True))
    group.members["a"] = replace(group.members["a"], user_data=drains)
    group.settle(most=2)
    assert not group.members["a"].owned
    assert not group.unowned()
    for other in ("b", "c"):
        assert not before[other] - group.members[other].owned
