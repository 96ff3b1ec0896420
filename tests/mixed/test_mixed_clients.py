"""Groups of ours, confluent-kafka's, Java's and kafka-python's members, led by each of them.

Who joins an empty group first leads it until it leaves: the coordinator's log says so after each
change. Everyone journals; the judge reads the journals of all, and nothing else.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from integration_support import in_background, members
from mixed_support import PARTITIONS, PATIENCE, Guest, trial, without_kafka_python

from kafka_coop import CoopConsumer
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.trial.crew import CLIENTS
from kafka_coop.testing.trial.member import Client

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.verdict(late=True),
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("trial"),
    without_kafka_python,
]

MOST_GENERATIONS = 4
"""A change of the roster is at most a round, a follow-up, and one of either for a late comer."""


def led_by(leader: Client) -> list[Client]:
    return [leader, *(client for client in CLIENTS if client != leader)]


@pytest.mark.parametrize("leader", CLIENTS)
def test_cooperative_members_share_a_group_whoever_leads(
    kafka: KafkaCluster, tmp_path: Path, leader: Client
) -> None:
    clients = led_by(leader)
    with trial(kafka, tmp_path) as group:
        for number, client in enumerate(clients, 1):
            before = group.generation()
            group.start(client, client)
            group.until_shared(*clients[:number])
            assert group.generation() - before <= MOST_GENERATIONS
            assert group.leader() == leader
        group.until_everyone_works()
        before = group.generation()
        group.close(clients[1])
        group.until_shared(clients[0], *clients[2:])
        group.kill(clients[2])
        group.until_shared(clients[0], clients[3])
        group.start("late", clients[1])
        group.until_shared(clients[0], clients[3], "late")
        assert group.generation() - before <= 3 * MOST_GENERATIONS
        assert group.leader() == leader
        group.until_everyone_works()
        group.end_soundly()
        # A cooperative member that keeps a partition is never told to give it up.
        assert [e for e in group.events("ours") if e.kind == "V" and e.partitions]
        assert not [e for e in group.events("ours") if e.kind == "L"]
        assert not group.stopped_in_vain("ours", *(["late"] if clients[1] == "ours" else []))


@pytest.mark.parametrize("leader", [client for client in CLIENTS if client != "ours"])
def test_whoever_leads_believes_one_of_ours_that_has_yet_to_give_up(
    kafka: KafkaCluster, tmp_path: Path, leader: Client
) -> None:
    """It joins the others' next round as the owner of what the last one took: its user is busy.

    Strategies that look at the newest claims alone must find this one among them.
    """
    entered, go_on = threading.Event(), threading.Event()

    def wait(_: CoopConsumer, __: list[TopicPartition]) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    with trial(kafka, tmp_path) as group:
        group.start(leader, leader)
        group.until_shared(leader)
        ours = Guest(group, "ours")
        with members(ours), in_background(ours.step):
            group.until(lambda: len(group.owned(leader)) == len(ours.owned), "half for each")
            ours.hooks["revoked"] = wait
            try:
                group.start("late", leader)
                group.until(lambda: len(group.owned("late")) > 0, "what the leader gives up")
                assert entered.wait(PATIENCE)
                assert not group.owned("late") & {p for _, p in ours.owned}
            finally:
                go_on.set()
            group.until(lambda: len(group.owned("late")) == PARTITIONS // 3, "its share")
            assert group.leader() == leader
            group.end_soundly()


@pytest.mark.parametrize(
    ("leader", "other", "heir"),
    [
        ("java", "confluent", "ours"),
        ("confluent", "ours", "java"),
        ("ours", "java", "confluent"),
        ("kafka-python", "ours", "java"),
    ],
)
def test_a_leader_that_is_killed_last_is_followed_by_who_is_left(
    kafka: KafkaCluster, tmp_path: Path, leader: Client, other: Client, heir: Client
) -> None:
    with trial(kafka, tmp_path) as group:
        for client in (leader, other, heir):
            group.start(client, client)
            group.until_shared(*group.running)
        group.until_everyone_works()
        group.kill(other)
        group.until_shared(leader, heir)
        assert group.leader() == leader
        group.kill(leader)
        group.until_shared(heir)
        assert group.leader() == heir
        group.start("late", other)
        group.until_shared(heir, "late")
        assert group.leader() == heir
        group.until_everyone_works()
        group.end_soundly()


@pytest.mark.parametrize("leader", CLIENTS)
def test_eager_members_share_a_group_whoever_leads(
    kafka: KafkaCluster, tmp_path: Path, leader: Client
) -> None:
    clients = led_by(leader)
    with trial(kafka, tmp_path) as group:
        for number, client in enumerate(clients, 1):
            before = group.generation()
            group.start(client, client, ["range"])
            group.until_shared(*clients[:number])
            assert group.generation() - before <= MOST_GENERATIONS
            assert group.leader() == leader
        group.until_everyone_works()
        before = group.generation()
        group.close(clients[1])
        group.until_shared(clients[0], *clients[2:])
        group.kill(clients[2])
        group.until_shared(clients[0], clients[3])
        assert group.generation() - before <= 2 * MOST_GENERATIONS
        assert group.leader() == leader
        group.end_soundly()
        assert group.stopped_in_vain("ours"), "that is what eager is"
