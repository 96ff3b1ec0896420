"""docs/UPGRADING.md, carried out: its tables are read, each step is taken under load."""

from __future__ import annotations

import logging
import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from integration_support import Member, code, in_background, members, shared, unique, until
from mixed_support import PARTITIONS, Guest, Trial, described, trial

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.member import Client

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.verdict(late=True),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("trial"),
]

RUNBOOK = (Path(__file__).parents[2] / "docs" / "UPGRADING.md").read_text()
STEP = re.compile(r"\| (\d) \| (?:is restarted|is replaced by ([\w-]+).*?) +\| `([\w,-]+)` \|")
STEPS = {int(n): (to, strategies.split(",")) for n, to, strategies in STEP.findall(RUNBOOK)}
KIP_848 = {"group.protocol": "consumer"}
MEMBERS = 2
PATIENT = {"session.timeout.ms": 45_000}
"""As by default: on a busy machine a member, or a broker, may get no turn for longer than the 10 s
that trials have else, which are no member's fault."""
MOST_MEMBERS = 3
"""Of the whole path: in its mixed rounds two of one kind stand beside one of the other."""


def test_the_runbook_is_understood() -> None:
    assert [*STEPS] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert STEPS[1] == ("kafka_coop", ["cooperative-sticky", "range"])
    assert STEPS[8] == ("confluent-kafka", ["range"])


def voted(*lists: list[str]) -> str:
    """What a group runs on by the runbook's first rule, if these are its members' lists."""
    shared_by_all = set.intersection(*map(set, lists))
    votes = Counter(next(s for s in own if s in shared_by_all) for own in lists)
    return max(votes, key=votes.__getitem__)


@pytest.mark.parametrize("origin", ["confluent", "java"])
def test_up_and_down_again_under_load(kafka: KafkaCluster, tmp_path: Path, origin: Client) -> None:
    with trial(kafka, tmp_path, PATIENT) as group:
        roster = begin(group, [origin] * MOST_MEMBERS, ["range"])
        cooperative: list[str] = []
        eager: list[str] = []
        for step, (replaced_by, strategies) in STEPS.items():
            client: Client = "ours" if replaced_by != "confluent-kafka" else origin
            roll(group, step, roster, [client] * MOST_MEMBERS, strategies)
            if client == "ours":
                (eager if "range" in strategies else cooperative).extend(roster)
        group.end_soundly()
        assert not group.in_trouble()
        assert not group.stopped_in_vain(*cooperative)
        assert {name.partition("-")[0] for name in eager} == {"1", "7"}
        for name in eager:
            left = left_after_revocations(group.events(name))
            assert len(left) > 1, "a round before it left"
            assert not any(left), f"{name} kept some"


def left_after_revocations(events: list[Event]) -> list[set[int]]:
    """What a member went on to own after each revocation."""
    owned: set[int] = set()
    left = []
    for event in events:
        if event.kind == "A":
            owned |= {*event.partitions}
        elif event.kind == "V" and event.partitions:
            owned -= {*event.partitions}
            left.append(owned.copy())
    return left


def begin(group: Trial, clients: list[Client], strategies: list[str]) -> dict[str, list[str]]:
    """Starts the members, and returns the strategies of each."""
    roster = {f"0-{place}": strategies for place in range(len(clients))}
    for name, client in zip(roster, clients, strict=True):
        group.start(name, client, strategies)
    group.until_shared(*roster)
    return roster


def roll(
    group: Trial,
    step: int,
    roster: dict[str, list[str]],
    clients: list[Client],
    strategies: list[str],
) -> None:
    """One rolling bounce: member by member, and after each the group is whole, on what it must."""
    for place, (old, client) in enumerate(zip(tuple(roster), clients, strict=True)):
        group.close(old)
        del roster[old]
        new = f"{step}-{place}"
        group.start(new, client, strategies)
        roster[new] = strategies
        group.until_shared(*roster)
        assert described(group).protocol_data == voted(*roster.values()), f"after {new}'s start"


def test_a_member_of_javas_takes_part_in_the_first_two_steps_and_the_last_three(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    ours: list[Client] = ["ours", "ours"]
    both: list[Client] = ["ours", "java"]
    javas: list[Client] = ["java", "java"]
    with trial(kafka, tmp_path) as group:
        roster = begin(group, javas, ["range"])
        for step, clients in [(1, both), (2, both), (5, ours), (6, both), (7, both), (8, javas)]:
            _, strategies = STEPS[step]
            roll(group, step, roster, clients, strategies)
        group.end_soundly()


def test_no_member_of_librdkafkas_takes_part_in_them() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    both = ",".join(STEPS[1][1])
    with pytest.raises(KafkaException, match="same protocol type"):
        Consumer({**config, "partition.assignment.strategy": both})


def test_librdkafkas_members_may_follow_after_step_6(kafka: KafkaCluster, tmp_path: Path) -> None:
    _, strategies = STEPS[6]
    with trial(kafka, tmp_path) as group:
        roster = begin(group, ["ours"] * MEMBERS, strategies)
        roll(group, 7, roster, ["confluent"] * MEMBERS, strategies)
        group.end_soundly()


# --- the wrong order -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group_on", "newcomer"),
    [
        ("range", "cooperative-sticky"),
        ("cooperative-sticky", "range"),
        ("cooperative-sticky", "constrained-cooperative-sticky"),
        ("constrained-cooperative-sticky", "cooperative-sticky"),
    ],
)
def test_a_step_left_out_is_refused_and_explained(
    kafka: KafkaCluster, group_on: str, newcomer: str
) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    one = Member(kafka, group, topic, partition_assignment_strategy=group_on)
    with members(one):
        shared(topic, 2, one)
        other = Member(kafka, group, topic, partition_assignment_strategy=newcomer)
        with members(other):
            until(lambda: bool(other.raised), one, other)
            assert_explained(other, newcomer)
            assert one.owned == ((topic, 0), (topic, 1))
            assert not one.raised


def test_and_so_it_is_in_a_group_of_librdkafkas(kafka: KafkaCluster) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    config = {"partition.assignment.strategy": "range"}
    with consumer_of_librdkafkas(kafka, group, topic, config) as theirs:

        def polled() -> int:
            assert theirs.poll(0.01) is None
            return len(theirs.assignment())

        until(lambda: polled() == 2)
        metadata = theirs.consumer_group_metadata()
        newcomer = Member(kafka, group, topic, partition_assignment_strategy="cooperative-sticky")
        with members(newcomer):
            until(lambda: polled() == 2 and bool(newcomer.raised), newcomer)
            assert_explained(newcomer, "cooperative-sticky")
        assert polled() == 2
        assert theirs.consumer_group_metadata() == metadata, "a round"


@pytest.mark.parametrize(
    ("group_on", "newcomer"),
    [
        ("cooperative-sticky", "range"),
        ("constrained-cooperative-sticky", "cooperative-sticky"),
    ],
)
def test_librdkafkas_newcomer_is_told_a_code_and_no_more(
    kafka: KafkaCluster, group_on: str, newcomer: str
) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    ours = Member(kafka, group, topic, partition_assignment_strategy=group_on)
    with members(ours):
        shared(topic, 2, ours)
        told = list(ours.told)
        config = {"partition.assignment.strategy": newcomer}
        with consumer_of_librdkafkas(kafka, group, topic, config) as theirs:
            error = first_error(theirs, ours)
            assert not theirs.assignment()
        assert error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert not error.fatal()
        assert newcomer not in error.str()
        assert ours.told == told
        assert not ours.raised


def test_javas_newcomer_is_told_no_more_either(kafka: KafkaCluster, tmp_path: Path) -> None:
    with trial(kafka, tmp_path) as group:
        begin(group, ["ours"], ["cooperative-sticky"])
        before = [e for e in group.events("0-0") if e.kind in "AVL"]
        group.start("theirs", "java", ["range"])

        def refusals() -> list[str]:
            return [e.text for e in group.events("theirs") if e.kind == "E"]

        group.until(lambda: bool(refusals()), "a refusal")
        assert "InconsistentGroupProtocolException" in refusals()[0]
        assert "range" not in refusals()[0].lower()
        assert [e for e in group.events("0-0") if e.kind in "AVL"] == before
        group.close("theirs")
        group.end_soundly()


def test_javas_default_keeps_a_group_on_range_until_step_2(
    kafka: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours that lists the same votes as it does."""
    with trial(kafka, tmp_path) as group, caplog.at_level(logging.WARNING, "kafka_coop"):
        group.start("theirs", "java", ())
        beside(group, "range,cooperative-sticky", runs_on="range")
        assert "for this member lists it before cooperative-sticky" in caplog.text
        caplog.clear()
        beside(group, "cooperative-sticky", runs_on="cooperative-sticky")
        assert not caplog.text
        group.end_soundly()


def beside(group: Trial, strategies: str, *, runs_on: str) -> None:
    """One of ours that lists these shares what there is with the other, and leaves."""
    config = {"partition_assignment_strategy": strategies, "session_timeout_ms": 10_000}
    ours = Guest(group, strategies, **config)
    half = PARTITIONS // 2
    with members(ours):
        until(lambda: len(ours.owned) == len(group.owned("theirs")) == half, ours)
        with in_background(ours.step):
            assert described(group).protocol_data == runs_on
        assert not ours.raised


def assert_explained(newcomer: Member, lists: str) -> None:
    assert code(newcomer.raised[0]) == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    told = str(newcomer.raised[0])
    assert f"(partition.assignment.strategy={lists})" in told
    assert "docs/UPGRADING.md" in told


@pytest.mark.parametrize(
    ("others", "mine", "said"),
    [
        ("range", "cooperative-sticky,range", "runs on 'range', not on 'cooperative-sticky'"),
        (
            "cooperative-sticky,range",
            "cooperative-sticky,range",
            "gives everything up in each rebalance, for it also lists range",
        ),
        (
            "range,cooperative-sticky",
            "range,cooperative-sticky",
            "for this member lists it before cooperative-sticky",
        ),
        (
            "cooperative-sticky",
            "constrained-cooperative-sticky,cooperative-sticky",
            "runs on 'cooperative-sticky', not on 'constrained-cooperative-sticky'",
        ),
    ],
)
def test_a_step_not_finished_is_warned_of_once(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture, others: str, mine: str, said: str
) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    warners = 2 if others == mine else 1  # a record is told of a moment after its callbacks
    with caplog.at_level(logging.WARNING, "kafka_coop"):
        one = Member(kafka, group, topic, partition_assignment_strategy=others)
        with members(one):
            shared(topic, 2, one)
            other = Member(kafka, group, topic, partition_assignment_strategy=mine)
            with members(other):
                until(lambda: caplog.text.count(said) >= warners, one, other)
                shared(topic, 2, one, other)
                one.consumer.enforce_rebalance("again")
                generation = other.consumer._backend.metadata().generation
                until(
                    lambda: other.consumer._backend.metadata().generation > generation, one, other
                )
                shared(topic, 2, one, other)
    assert caplog.text.count(said) == warners


def consumer_of_librdkafkas(
    kafka: KafkaCluster, group: str, topic: str, config: dict[str, str]
) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "log_level": 0,
            **config,
        }
    )
    consumer.subscribe([topic])
    return consumer


def first_error(theirs: Consumer, ours: Member) -> KafkaError:
    """The first that its poll returns, in a message; it gets nothing else."""
    errors: list[KafkaError] = []

    def told() -> bool:
        message = theirs.poll(0.01)
        if message is not None:
            error = message.error()
            assert error is not None
            errors.append(error)
        return bool(errors)

    until(told, ours)
    return errors[0]


def test_a_member_of_kip_848_cannot_take_our_group_over(kafka: KafkaCluster) -> None:
    """Trap 34: the broker does not convert assignments that carry user data.

    Those of ours do, under every strategy but `sticky`.
    """
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    ours = Member(kafka, group, topic)
    with members(ours):
        shared(topic, 2, ours)
        told = list(ours.told)
        with consumer_of_librdkafkas(kafka, group, topic, KIP_848) as theirs:
            error = first_error(theirs, ours)
            assert not theirs.assignment()
        assert error.code() == KafkaError._FATAL
        assert "group id does not exist" in error.str()
        assert ours.told == told


def test_in_a_group_of_kip_848_the_broker_assigns_and_we_say_so(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    with consumer_of_librdkafkas(kafka, group, topic, KIP_848) as theirs:

        def polled() -> int:
            theirs.poll(0.01)
            return len(theirs.assignment())

        until(lambda: polled() == 4)
        ours = Member(kafka, group, topic, session_timeout_ms=6000)
        with members(ours), caplog.at_level(logging.WARNING, "kafka_coop"):
            until(lambda: polled() == 2 and len(ours.owned) == 2, ours)
            assert "the broker assigns partitions" in caplog.text
            assert [code(e) for e in ours.raised] == [KafkaError.INCONSISTENT_GROUP_PROTOCOL]
            theirs.close()
            shared(topic, 4, ours)
