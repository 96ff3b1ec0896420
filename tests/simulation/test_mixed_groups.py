"""Members of several kinds in one group: what holds nevertheless, and what a peer's fault costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from kafka_coop.leader import lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.messages import JoinGroup
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.protocol.user_data import decode_claim
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.check import run
from kafka_coop.simulation.dialects import DIALECTS, HARMLESS, PEERS
from kafka_coop.simulation.invariants import InvariantViolated, Watcher
from kafka_coop.simulation.planned_leave import LONGEST_IDLE
from kafka_coop.simulation.schedule import random_scenario
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import GROUP, MemberPlan, Scenario, Timing, World
from kafka_coop.types import NO_PARTITIONS, Cluster, Generation, MemberId, Partitions, Subscription

OWNED = Partitions({"alpha": [0, 2]})
RANGE, BOTH, COOPERATIVE = ("range",), ("range", "cooperative-sticky"), ("cooperative-sticky",)


def group(
    clients: Mapping[str, str],
    *incidents: tuple[float, ft.Fault],
    seed: int = 1,
    strategies: tuple[str, ...] = COOPERATIVE,
) -> Scenario:
    """Members that all run from the beginning on."""
    starts = [(0.05 * i, ft.Start(member=m)) for i, m in enumerate(clients)]
    return Scenario(
        seed=seed,
        topics={"alpha": 6},
        members={
            name: MemberPlan(
                topics=("alpha",),
                client=client,
                strategies=strategies,
                habits=UserHabits(poll_interval=0.2),
            )
            for name, client in clients.items()
        },
        timing=Timing(session=2.0, rebalance=3.0),
        incidents=tuple(ft.Incident(at=at, fault=fault) for at, fault in (*starts, *incidents)),
        quiet_at=max([at for at, _ in incidents], default=3.0) + 1.0,
    )


def joined(client: str, generation: int = 7, applied: int = 5) -> Subscription:
    """What the leader reads of a member of ours that speaks as this client does."""
    ours = Subscription(
        topics=("alpha",),
        owned=OWNED,
        generation=Generation(applied),
        user_data=append_marks(b"\0\0\0\5", SubscriptionMarks(rejoin=3)),
    )
    request = JoinGroup(
        group_id=GROUP,
        session_timeout=timedelta(seconds=2),
        rebalance_timeout=timedelta(seconds=3),
        member_id=MemberId("m"),
        instance_id=None,
        protocols=(("cooperative-sticky", encode_subscription(ours)),),
    )
    sent = DIALECTS[client].join(request, Generation(generation), NO_PARTITIONS)
    return decode_subscription(sent.protocols[0][1])


@pytest.mark.parametrize("client", PEERS)
def test_peers_say_no_marks(client: str) -> None:
    said = joined(client)
    assert said.owned == OWNED
    assert split_marks(said.user_data) == (said.user_data, None)


def test_java_claims_the_newest_generation() -> None:
    assert joined("java").generation == 7
    assert joined("java").user_data == b"\0\0\0\7"


def test_librdkafka_says_its_partitions_twice() -> None:
    claim = decode_claim(joined("librdkafka").user_data)
    assert claim is not None
    assert (claim.owned, claim.generation) == (OWNED, 5)


def test_kafka_python_says_no_generation() -> None:
    said = joined("kafka-python")
    assert (said.generation, said.user_data) == (-1, b"")


@pytest.mark.parametrize("client", [*PEERS, *HARMLESS])
def test_the_group_settles_beside_a_peer(client: str) -> None:
    scenario = group(
        {"m0": client, "m1": "", "m2": client, "m3": ""},
        (2.0, ft.Close(member="m1")),
        (3.0, ft.Start(member="m1")),
        (4.0, ft.Crash(member="m0")),
    )
    verdict = run(scenario)
    assert not verdict.violated, verdict.text
    assert verdict.deliveries


def zombie(client: str, seed: int) -> World:
    """m0 is stopped for longer than its session, and goes on while m1 has its partitions."""
    stop = ft.Stall(member="m0", seconds=4.0)
    world = World(group({"m0": client, "m1": ""}, (2.0, stop), (7.0, stop), seed=seed))
    world.run_until(12.0)
    settle(world)
    return world


@pytest.mark.parametrize("client", PEERS)
def test_a_peer_that_was_stopped_delivers_what_others_own_and_commits_none_of_it(
    client: str,
) -> None:
    twice = [zombie(client, seed).watcher.delivered_twice for seed in range(6)]
    assert any(twice), "it holds no lease: invariant 1 ends with its session"
    assert max(twice) <= 2, "one poll each time: then it hears that it is out"


def test_ours_that_was_stopped_delivers_nothing_of_others() -> None:
    worlds = [zombie("", seed) for seed in range(12)]
    assert not any(w.watcher.delivered_twice for w in worlds)
    assert any(w.watcher.held_back_polls for w in worlds)


def with_peers(peers: tuple[str, ...], seed: int = 1, timing: Timing | None = None) -> World:
    """Two of ours, of which m0 leads, and these; three partitions each."""
    clients = {"m0": "", "m1": "", **{f"m{2 + i}": peer for i, peer in enumerate(peers)}}
    scenario = replace(
        group(clients, seed=seed),
        topics={"alpha": 3 * len(clients)},
        timing=timing or Timing(session=2.0, rebalance=3.0),
    )
    world = World(scenario)
    world.run_until(4.0)
    settle(world)
    view = world.cluster.coordinator.group(GROUP)
    assert view is not None
    assert view.leader == world.processes["m0"].member.member_id
    return world


@pytest.mark.parametrize("leaver", ["m0", "m1"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("peers", [*[(peer,) for peer in PEERS], PEERS])
def test_a_planned_leave_beside_peers_leaves_nothing_idle_for_longer_than_a_round(
    peers: tuple[str, ...], seed: int, leaver: str
) -> None:
    """They hear of the round that relieves it with their heartbeats, and of the next at once."""
    world = with_peers(peers, seed)
    before = owned(world)
    assert len(before[leaver]) >= len(peers)
    world.watcher.watch_idleness()
    world.processes[leaver].user.drain(20.0)
    world.run_until(world.agenda.now + 10.0)
    assert not world.processes[leaver].alive
    assert 0.0 < world.watcher.longest_idle < LONGEST_IDLE
    after = owned(world)
    assert set.union(*after.values()) == set.union(*before.values())
    heir = {"m0": "m1", "m1": "m0"}[leaver]
    view = world.cluster.coordinator.group(GROUP)
    assert view is not None
    ours_leads = view.leader == world.processes[heir].member.member_id
    assert ours_leads or leaver == "m0", "else the coordinator has chosen a peer"
    if ours_leads:
        lost = {name: before[name] - after[name] for name in before if name != leaver}
        assert not any(lost.values()), "nothing else moves"


def test_a_leaver_whose_user_is_slow_has_the_peers_back_once_and_not_again_and_again() -> None:
    """It joins the next round before it has given up, and claims what others wait for."""
    world = with_peers(("java", "librdkafka"), timing=Timing(session=20.0, rebalance=60.0))
    before, began = owned(world), world.cluster.coordinator.generation(GROUP)
    leaver = world.processes["m1"]
    leaver.user.callback_time = 20.0
    leaver.user.drain(60.0)
    world.run_until(world.agenda.now + 15.0)
    assert leaver.user.owned, "he is still at it"
    assert world.cluster.coordinator.generation(GROUP) - began <= 3
    for peer in ("m2", "m3"):
        assert owned(world)[peer] == before[peer], "it has back what was recalled"
    world.run_until(world.agenda.now + 30.0)
    assert not leaver.alive
    assert world.cluster.coordinator.generation(GROUP) - began <= 4


@pytest.mark.parametrize("slow", ["m1", "m2"])
def test_who_is_far_away_can_follow_though_the_others_are_recalled(slow: str) -> None:
    """Its SyncGroup comes when they have begun the next round: it has to join once more first."""
    world = with_peers(("java", "librdkafka"), timing=Timing(session=20.0, rebalance=60.0))
    began = world.cluster.coordinator.generation(GROUP)
    world.network.slow[world.processes[slow].name] = 300.0
    world.processes["m1"].user.drain(60.0)
    world.run_until(world.agenda.now + 40.0)
    assert not world.processes["m1"].alive
    assert world.cluster.coordinator.generation(GROUP) - began <= 6
    assert set.union(*owned(world).values()) == set(range(12))


def ended(*clients: str, seed: int = 1) -> tuple[str, World]:
    """What is violated in a group whose first member leads, and how it ends."""
    names = {f"m{number}": client for number, client in enumerate(clients)}
    world = World(group(names, (3.0, ft.Enforce(member="m1")), seed=seed))
    try:
        world.run_until(world.scenario.quiet_at)
        settle(world)
    except InvariantViolated as found:
        return found.invariant, world
    return "", world


def owned(world: World) -> dict[str, set[int]]:
    return {
        name: {partition.partition for partition in process.user.owned}
        for name, process in world.processes.items()
    }


ALL = set(range(6))


def test_fresh_claims_on_one_partition_beat_each_other_for_one_round() -> None:
    """Java's, after a Sync it has missed: nobody has the partition until both have joined again."""
    cluster = Cluster(partitions={"alpha": 2})
    both = {"m0": claim([0], 5), "m1": claim([0, 1], 5)}
    first = lead("cooperative-sticky", cluster, both)
    assert list(first.withheld) == [("alpha", 0)]
    assert first.follow_up
    again = {"m0": claim([], 6), "m1": claim([1], 6)}
    second = lead("cooperative-sticky", cluster, again)
    assert not second.withheld
    given = [decode_assignment(data).partitions for data in second.assignments.values()]
    assert sorted(p for part in given for p in part) == [("alpha", 0), ("alpha", 1)]


def claim(partitions: list[int], generation: int) -> bytes:
    return encode_subscription(
        Subscription(
            topics=("alpha",),
            owned=Partitions({"alpha": partitions}),
            generation=Generation(generation),
        )
    )


@pytest.mark.parametrize("seed", range(3))
def test_claims_of_no_generation_cost_one_round_more_at_most(seed: int) -> None:
    """kafka-python's, after an eviction."""
    stop = (2.0, ft.Stall(member="m1", seconds=4.0))
    generations = {}
    for client in ("", "kafka-python"):
        world = World(group({"m0": "", "m1": client}, stop, seed=seed))
        world.run_until(6.5)
        settle(world)
        view = world.cluster.coordinator.group(GROUP)
        assert view is not None
        generations[client] = view.generation
    assert generations["kafka-python"] <= generations[""] + 1


@pytest.mark.parametrize("client", HARMLESS)
def test_who_sends_no_subscription_gets_nothing(client: str) -> None:
    violated, world = ended("", client, "")
    assert not violated
    assert owned(world)["m1"] == set()
    assert owned(world)["m0"] | owned(world)["m2"] == ALL


@pytest.mark.parametrize("seed", range(3))
def test_a_greedy_leader_starves_the_others_and_doubles_nothing(seed: int) -> None:
    """What it claims is withheld from everybody else for as long as it does: 3 can't be kept."""
    violated, world = ended("greedy", "", "", seed=seed)
    assert violated == "3"
    assert owned(world)["m1"] == owned(world)["m2"] == set()


def test_a_greedy_member_passes_for_the_owner_before_the_owner_hears_of_it() -> None:
    """Claims of a generation to come beat the true ones: 1 can't be kept either."""
    assert "1" in {ended("", "", "greedy", seed=seed)[0] for seed in range(3)}


@pytest.mark.parametrize("seed", range(3))
def test_who_owned_what_a_greedy_member_claims_gives_it_up_in_that_round(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have and commit it for so long, and no longer: then it is as with a greedy leader."""
    monkeypatch.setattr(Watcher, "_check_alone", lambda *_: None)
    monkeypatch.setattr(Watcher, "_check_commit", lambda *_: None)
    violated, world = ended("", "", "greedy", seed=seed)
    assert violated == "3"
    assert max(len(owners) for owners in world.watcher.owners.values()) == 1


@pytest.mark.parametrize(("leader", "violated"), [("doubling", "1"), ("withholding", "3")])
def test_members_take_a_hostile_leader_s_plan_on_trust(leader: str, violated: str) -> None:
    """As in every client. The damage is the whole group's."""
    found, world = ended(leader, "", "")
    assert found == violated
    if leader == "doubling":
        doubled = [p for p, owners in world.watcher.owners.items() if len(owners) > 1]
        assert doubled
    else:
        assert owned(world) == {"m0": set(), "m1": set(), "m2": set()}


def bounced(clients: tuple[str, ...], *stages: tuple[str, ...], halfway: bool) -> World:
    """Rolls the group from stage to stage; ``halfway``: half of the last roll is left out."""
    names = [f"m{i}" for i in range(len(clients))]
    incidents: list[tuple[float, ft.Fault]] = []
    at = 2.0
    for number, stage in enumerate(stages[1:], start=2):
        last = number == len(stages)
        for name in names[: len(names) // 2] if last and halfway else names:
            incidents += [
                (at, ft.Close(member=name)),
                (at + 0.3, ft.Redeploy(member=name, strategies=stage)),
                (at + 0.5, ft.Start(member=name)),
            ]
            at += 1.0
    world = World(group(dict(zip(names, clients, strict=True)), *incidents, strategies=stages[0]))
    world.run_until(world.scenario.quiet_at)
    settle(world)
    return world


@pytest.mark.parametrize("halfway", [False, True])
@pytest.mark.parametrize("clients", [("", "", ""), ("java", "", "java"), ("", "java", "")])
def test_two_bounces_up_and_down(clients: tuple[str, ...], halfway: bool) -> None:
    up = bounced(clients, RANGE, BOTH, COOPERATIVE, halfway=halfway)
    view = up.cluster.coordinator.group(GROUP)
    assert view is not None
    assert view.protocol_name == "cooperative-sticky"
    down = bounced(clients, COOPERATIVE, BOTH, RANGE, halfway=halfway)
    view = down.cluster.coordinator.group(GROUP)
    assert view is not None
    assert view.protocol_name == "range"


def test_every_fifth_schedule_is_mixed() -> None:
    scenarios = [random_scenario(seed) for seed in range(4, 400, 5)]
    clients = {p.client for s in scenarios for p in s.members.values()}
    assert clients == {"", *PEERS, *HARMLESS}
    assert any(isinstance(i.fault, ft.Redeploy) for s in scenarios for i in s.incidents)
    pure = [random_scenario(seed) for seed in range(40) if seed % 5 != 4]
    assert {p.client for s in pure for p in s.members.values()} == {""}
