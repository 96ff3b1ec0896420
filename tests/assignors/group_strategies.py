"""Groups for the assignors' tests: by hypothesis, and by a seed where they are large."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st

from kafka_coop.types import Cluster, Generation, GroupAssignment, Partitions, Subscription

Group = dict[str, Subscription]


def seeded_group(
    seed: int,
    *,
    topics: tuple[int, int],
    partitions: tuple[int, int],
    members: tuple[int, int],
    chance: float = 0.5,
    owned: float = 0.8,
) -> tuple[Cluster, Group]:
    """A group with random subscriptions, in which members own what they might."""
    rng = random.Random(seed)
    counts = {f"t{i}": rng.randint(*partitions) for i in range(rng.randint(*topics))}
    names = [f"m{i}" for i in range(rng.randint(*members))]
    subscribed = {m: tuple(sorted(t for t in counts if rng.random() < chance)) for m in names}
    holds: dict[str, list[tuple[str, int]]] = {m: [] for m in names}
    for topic, count in counts.items():
        interested = [m for m in names if topic in subscribed[m]]
        favourite = rng.choice(interested) if interested else ""
        for partition in range(count):
            if interested and rng.random() < owned:
                # Half of a topic tends to lie with one member, so that there is something to move.
                owner = favourite if rng.random() < 0.5 else rng.choice(interested)
                holds[owner].append((topic, partition))
    return Cluster(partitions=counts), {
        m: Subscription(
            topics=subscribed[m], owned=Partitions.of(holds[m]), generation=Generation(1)
        )
        for m in names
    }


def in_racks(seed: int, cluster: Cluster, group: Group) -> tuple[Cluster, Group]:
    """The same group in three racks, some members in none; partitions have one or two replicas."""
    rng = random.Random(seed)
    racks = ("r0", "r1", "r2")
    places = {
        t: tuple(tuple(rng.sample(racks, rng.randint(1, 2))) for _ in range(n))
        for t, n in cluster.partitions.items()
    }
    return replace(cluster, replica_racks=places), {
        m: replace(s, rack=rng.choice((*racks, None))) for m, s in group.items()
    }


@st.composite
def small_groups(draw: st.DrawFn) -> tuple[Cluster, Group]:
    """Groups small enough to try every plan: franz-go's oracle sizes."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    cluster = Cluster(partitions={f"t{i}": n for i, n in enumerate(counts)})
    names = [f"m{i}" for i in range(draw(st.integers(1, 4)))]
    group: Group = {}
    everything = [(t, p) for t, n in cluster.partitions.items() for p in range(n)]
    for name in names:
        topics = draw(st.sets(st.sampled_from(sorted(cluster.partitions))))
        mine = draw(st.sets(st.sampled_from(everything), max_size=6))
        group[name] = Subscription(
            topics=tuple(sorted(topics)),
            owned=Partitions.of(mine),
            generation=Generation(draw(st.integers(-1, 2))),
        )
    return cluster, group


def next_round(group: Group, plan: GroupAssignment, generation: int) -> Group:
    """The group once everybody owns what the plan gives them."""
    return {
        m: Subscription(
            topics=s.topics,
            owned=plan[m].partitions,
            generation=Generation(generation),
            rack=s.rack,
            instance_id=s.instance_id,
        )
        for m, s in group.items()
    }
