"""Groups under faults, with real processes and brokers: one owner, nothing lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewPartitions, NewTopic
from integration_support import Member, members, publish, shared, unique, until

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.local import LocalKafka
from kafka_coop.testing.trial import judge_again
from kafka_coop.testing.trial.controllers import active_controller, prefer
from kafka_coop.testing.trial.faults import FAULTS, place_of
from kafka_coop.testing.trial.outcome import SLOW, Plan
from kafka_coop.testing.trial.run import SAFE, run

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.alone,
    pytest.mark.verdict(late=True),
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("trial"),
]


_OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    patience = timedelta(minutes=5)
    with LocalKafka(brokers=3, proxied=True, properties=SAFE, start_timeout=patience) as kafka:
        yield kafka


def test_two_minutes_of_random_faults(three: LocalKafka, tmp_path: Path) -> None:
    plan = Plan(faults=32, lasting=timedelta(minutes=2), members=6)
    result = run(plan, tmp_path, three)
    assert result.sound, str(result)
    assert result.complete
    assert {fault.name for fault in result.faults} == {*FAULTS}
    assert result.committed == result.ends
    assert result.handovers > plan.partitions
    assert judge_again.main(["--journals", str(tmp_path)]) == 0, "what lies there says the same"


def test_a_minute_of_random_faults_beside_other_clients(three: LocalKafka, tmp_path: Path) -> None:
    plan = Plan(faults=15, lasting=timedelta(minutes=1), members=6, others=3)
    result = run(plan, tmp_path, three)
    assert result.sound, str(result)
    assert result.complete
    assert len(result.others) >= plan.others
    assert judge_again.main(["--journals", str(tmp_path)]) == 0, "what lies there says the same"


def test_exactly_once_under_random_faults(three: LocalKafka, tmp_path: Path) -> None:
    plan = Plan(
        faults=15,
        lasting=timedelta(minutes=1),
        members=4,
        rate=50,
        partitions=12,
        transactions=True,
    )
    result = run(plan, tmp_path, three)
    assert result.sound, str(result)
    assert result.complete, result
    assert result.copied == result.produced


def test_a_controller_leads_and_a_partition_goes_where_it_is_preferred(three: LocalKafka) -> None:
    assert active_controller(three.admin_servers) in three.brokers
    topic = f"preferred-{time.time_ns()}"
    three.create_topic(topic, replication_factor=3)
    admin = three.admin()

    def leader() -> int:
        return admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader

    before = leader()
    new = next(broker for broker in three.brokers if broker != before)
    prefer(three.admin_servers, topic, 0, [new, *(b for b in three.brokers if b != new)])
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(30)
    wait_until(lambda: leader() == new, "it leads on")


def test_where_no_broker_answers_nobody_leads() -> None:
    with pytest.raises(ConnectionError):
        active_controller("127.0.0.1:1,127.0.0.1:2")


def test_the_active_controller_is_killed_and_nothing_else(three: LocalKafka) -> None:
    """Neither the group's coordinator nor a partition's leader: the group does not notice.

    What only a controller can do, growth, comes when there is one again.
    """
    topic = unique("t")
    three.create_topic(topic)
    with members(member := Member(three, unique("g"), topic)):
        shared(topic, 1, member)  # the brokers have a topic for groups' offsets since now
    controller = active_controller(three.admin_servers)
    others = [broker for broker in three.brokers if broker != controller]
    topic = unique("t")
    # Without a replica there, nothing of it has to be elected anew.
    placed = [others if p % 2 else others[::-1] for p in range(4)]
    admin = three.admin()
    (made,) = admin.create_topics(
        [NewTopic(topic, len(placed), replica_assignment=placed)]
    ).values()
    made.result(30)
    config = {"session_timeout_ms": 10_000, "topic_metadata_refresh_interval_ms": 500}
    first = Member(three, _coordinated_by(three, others[0]), topic, **config)
    second = Member(three, first.group, topic, **config)
    with members(first, second):
        shared(topic, 4, first, second)
        told = [list(m.told) for m in (first, second)]
        three.kill_broker(controller)
        try:
            publish(three, topic, 5, *range(4))
            until(lambda: len(first.records + second.records) == 20, first, second)
            until(lambda: _leads_anew(three, controller), first, second)
            assert [m.told for m in (first, second)] == told
            wait_until(
                lambda: _grown(three, NewPartitions(topic, 6, [others, others])), "no growth"
            )
            until(lambda: len(first.owned) == len(second.owned) == 3, first, second)
            publish(three, topic, 5, 4, 5)
            until(lambda: len(first.records + second.records) == 30, first, second)
        finally:
            wait_until(lambda: _leads_anew(three, controller), "nobody leads")
            three.start_broker(controller)
    assert not [m.raised for m in (first, second) if m.raised]


def _coordinated_by(kafka: LocalKafka, broker: int) -> str:
    """A group of which this broker is the coordinator.

    Other tests' faults move coordinators: in the end all of them may prefer the same broker, so
    that no name would do.
    """
    group = unique("g")
    admin = kafka.admin()

    def led_by() -> int:
        partitions = admin.list_topics(_OFFSETS, timeout=30).topics[_OFFSETS].partitions
        partition = partitions[place_of(group, len(partitions))]
        if partition.leader != broker:
            others = [b for b in partition.replicas if b != broker]
            prefer(kafka.admin_servers, _OFFSETS, partition.id, [broker, *others])
            admin.elect_leaders(ElectionType.PREFERRED).result(30)
        return partition.leader

    wait_until(lambda: led_by() == broker, f"{group} is not coordinated by broker {broker}")
    return group


def _grown(kafka: LocalKafka, wanted: NewPartitions) -> bool:
    """Asks for it anew each time: brokers go on naming the dead one as whom to ask for a while."""
    admin = kafka.admin()
    (asked,) = admin.create_partitions([wanted], request_timeout=5).values()
    with contextlib.suppress(KafkaException):
        asked.result()
    topic = admin.list_topics(wanted.topic, timeout=30).topics[wanted.topic]
    return len(topic.partitions) == wanted.new_total_count


def _leads_anew(kafka: LocalKafka, before: int) -> bool:
    try:
        return active_controller(kafka.admin_servers) not in (before, -1)
    except ConnectionError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(three: LocalKafka, tmp_path: Path, fault: str) -> None:
    count = 1 if fault == "brokers restarted in turn" else 3  # it takes as long as three
    plan = Plan(
        faults=count,
        lasting=timedelta(seconds=30),
        members=4,
        partitions=12,
        rate=100,
        only=(fault,),
    )
    result = run(plan, tmp_path, three)
    assert result.sound, str(result)
    assert [f.name for f in result.faults] == [fault] * count
    assert not [f.what for f in result.faults if f.in_vain], "it was killed instead"
    if fault == SLOW:
        assert result.outlived, "who is done first begins a round that others do not hold up"
