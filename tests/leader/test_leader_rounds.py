"""Chains of rounds: members come, go, change their minds, miss rounds and come back as zombies."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from kafka_coop.assignors import known_names, resolve
from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import (
    NO_PARTITIONS,
    Assignor,
    Generation,
    GroupMetadata,
    Partitions,
    RebalanceProtocol,
    Subscription,
)

COOPERATIVE = [n for n in known_names() if n not in {"range", "roundrobin", "sticky"}]


@dataclass
class Group:
    """Members that do as they are told, each with its own instance of the strategy.

    Under KIP-429 each revokes what left, and goes on with what stayed; under the eager protocol
    everyone revokes everything before joining.
    """

    strategy: str
    cluster: dict[str, int]
    members: dict[str, Subscription] = field(default_factory=dict)
    generation: int = 0
    memories: dict[str, Assignor] = field(default_factory=dict)
    evicted: dict[str, Subscription] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    ours: set[str] = field(default_factory=set)
    """Those that set marks; who drains does."""
    outcome: LeaderOutcome | None = None
    """Of the last round: all are led by one member, which remembers."""

    @property
    def eager(self) -> bool:
        return RebalanceProtocol.COOPERATIVE not in resolve(self.strategy).supported_protocols

    def round(self, misses: Iterable[str] = ()) -> LeaderOutcome:
        """One round. Who misses its Sync goes on as before, with claims of the old generation."""
        self.generation += 1
        for name, sub in self.members.items():
            memory = self.memories.setdefault(name, resolve(self.strategy))
            kept = NO_PARTITIONS if self.eager else sub.owned.only(sub.topics)
            said = memory.subscription_user_data(sub.topics)
            if name in self.ours | self.draining:
                said = append_marks(said, SubscriptionMarks(draining=name in self.draining))
            self.members[name] = replace(sub, owned=kept, user_data=said)
        sent = {m: encode_subscription(s) for m, s in self.members.items()}
        recalled = self.outcome.recalled if self.outcome else {}
        outcome = self.outcome = lead(self.strategy, self.cluster, sent, recalled=recalled)
        assert outcome.error is None
        got = {m: decode_assignment(b) for m, b in outcome.assignments.items()}
        self.check({m: a.partitions for m, a in got.items()})
        generation = Generation(self.generation)
        for name in self.members.keys() - set(misses):
            self.memories[name].on_assignment(
                got[name], GroupMetadata(group_id="g", generation=generation)
            )
            self.members[name] = replace(
                self.members[name], owned=got[name].partitions, generation=generation
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

    def come_to_rest(self) -> None:
        """Everything is owned in the end, and one more round moves nothing."""
        self.settle(most=4)
        assert not self.unowned()
        before = {m: s.owned for m, s in self.members.items()}
        self.round()
        assert {m: s.owned for m, s in self.members.items()} == before, "no change, no change"

    def unowned(self) -> set[tuple[str, int]]:
        """What somebody ought to have and nobody has."""
        wanted = {t for s in self.members.values() for t in s.topics}
        owned = {(t, p): m for m, s in self.members.items() for t, p in s.owned}
        everything = {(t, p) for t, n in self.cluster.items() if t in wanted for p in range(n)}
        if self.strategy == "stream-join-sticky":
            # KIP-315: of the numbers that every topic has, what their members subscribe to.
            joined = min((self.cluster[t] for t in wanted), default=0)
            member_of = {p: m for (_, p), m in owned.items()}
            assert member_of.keys() == set(range(joined))
            everything = {
                (t, p)
                for t, p in everything
                if p < joined and t in self.members[member_of[p]].topics
            }
        return everything - owned.keys()


def change(group: Group, rng: random.Random, names: list[str]) -> list[str]:
    """One thing happens to the group. Returns who misses the round that follows."""
    present = sorted(group.members)
    kinds = ["join", "join", "leave", "topics", "grow", "zombie", "kill", "back", "lie"]
    match rng.choice(kinds):
        case "join" if len(present) < 12:
            topics = tuple(sorted(rng.sample(names, rng.randint(1, len(names)))))
            group.members[f"m{group.generation:04}"] = Subscription(topics=topics)
        case "leave" | "kill" if len(present) > 1:
            name = rng.choice(present)
            group.evicted[name] = group.members.pop(name)
        case "back" if group.evicted:  # a zombie, with claims of long ago
            name = rng.choice(sorted(group.evicted))
            group.members[name] = group.evicted.pop(name)
        case "lie" if present:  # claims twice over, of the same generation as their owners'
            name = rng.choice(present)
            topic = rng.choice(names)
            others = Partitions({topic: range(group.cluster[topic])})
            mine = group.members[name]
            group.members[name] = replace(mine, owned=mine.owned | others)
        case "topics" if present:
            name = rng.choice(present)
            topics = tuple(sorted(rng.sample(names, rng.randint(1, len(names)))))
            group.members[name] = replace(group.members[name], topics=topics)
        case "grow":
            group.cluster[rng.choice(names)] += rng.randint(1, 3)
        case "zombie" if present:
            return rng.sample(present, rng.randint(1, len(present)))
    return []


@pytest.mark.parametrize("strategy", known_names())
@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_changes_with_zombies_end_with_one_owner_each(strategy: str, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"t{i}" for i in range(5)]
    group = Group(strategy, {n: rng.randint(1, 8) for n in names})
    group.members = {f"m{i}": Subscription(topics=tuple(names)) for i in range(3)}
    for _ in range(120):
        group.round(misses=change(group, rng, names))
        if rng.random() < 0.4:
            group.come_to_rest()


@pytest.mark.parametrize("seed", range(6))
def test_beside_members_of_other_clients_too(seed: int) -> None:
    """Half set no marks, and are recalled from; half the leaders remember nothing of it."""
    rng = random.Random(seed)
    names = [f"t{i}" for i in range(5)]
    group = Group("cooperative-sticky", {n: rng.randint(1, 8) for n in names})
    group.members = {f"m{i}": Subscription(topics=tuple(names)) for i in range(4)}
    group.ours = {f"m{i:0{width}}" for i in range(0, 999, 2) for width in (1, 4)}
    recalls = 0
    for _ in range(120):
        group.round(misses=change(group, rng, names))
        recalls += bool(group.outcome and group.outcome.recalled)
        if rng.random() < 0.5:
            group.outcome = None
        if rng.random() < 0.4:
            group.come_to_rest()
    assert recalls > 5


@pytest.mark.parametrize("strategy", COOPERATIVE)
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


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("strategy", sorted({*known_names()} - {"range", "roundrobin"}))
def test_who_drains_is_relieved_in_two_rounds_and_nothing_else_moves(
    strategy: str, mixed: bool
) -> None:
    group = Group(strategy, {"t": 12, "u": 3})
    group.members = {m: Subscription(topics=("t", "u")) for m in ("a", "b", "c")}
    group.ours = {"a"} if mixed else {"a", "b", "c"}
    group.settle(most=3)
    before = {m: s.owned for m, s in group.members.items()}
    group.draining = {"a"}
    group.settle(most=2)
    assert not group.members["a"].owned
    assert not group.unowned()
    for other in ("b", "c"):
        assert not before[other] - group.members[other].owned
