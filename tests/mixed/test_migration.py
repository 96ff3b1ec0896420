"""docs/MIGRATION.md, carried out under load: from classic to consumer on both paths, and back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError
from integration_support import code, group_description, in_background, members, shared, until
from mixed_support import PARTITIONS, Guest, Trial, trial

from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.trial.journal import Event
from kafka_coop.testing.trial.member import Client

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.verdict(late=True),
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("trial"),
]

GUIDE = (Path(__file__).parents[2] / "docs" / "MIGRATION.md").read_text()
BOUNCES = re.findall(
    r"rolling bounce to `partition\.assignment\.strategy=([\w,-]+)`, one to `([\w,-]+)`", GUIDE
)
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
MEMBERS = 2

_NAMES = (f"m{n}" for n in itertools.count())


def classic(strategies: str = "cooperative-sticky") -> dict[str, Any]:
    return {"session_timeout_ms": 10_000, "partition_assignment_strategy": strategies}


def test_the_guide_is_understood() -> None:
    assert BOUNCES == [("cooperative-sticky,sticky", "sticky")]


class Roster:
    """The members of a group, polled by turns; one is replaced at a time."""

    def __init__(self, group: Trial, **config: Any) -> None:
        self.group = group
        self.crew = [Guest(group, next(_NAMES), **config) for _ in range(MEMBERS)]
        self.gone: list[Guest] = []

    def step(self) -> None:
        for member in self.crew:
            member.step()

    def settle(self) -> None:
        """Polls until each has its share, and has processed something of it."""
        shared(self.group.topic, PARTITIONS, *self.crew)
        until(lambda: all(member.records for member in self.crew), *self.crew)

    def replace(self, place: int, **config: Any) -> None:
        old = self.crew.pop(place)
        self.gone.append(old)
        with in_background(self.step):
            old.consumer.close()
        self.crew.insert(place, Guest(self.group, next(_NAMES), **config))
        self.settle()

    def bounce(self, **config: Any) -> None:
        """A rolling one: member by member, and the group is whole after each."""
        for place in range(MEMBERS):
            self.replace(place, **config)

    def close(self) -> None:
        for member in (*self.crew, *self.gone):
            member.consumer.close()


def the_broker_assigns(member: Guest) -> bool:
    """It was told so, once."""
    told = [code(error) for error in member.raised]
    return told == [KafkaError.INCONSISTENT_GROUP_PROTOCOL]


def losses(group: Trial) -> list[Event]:
    """Each on_lost of any member."""
    return [e for journal in group.journals().values() for e in journal if e.kind == "L"]


def state(group: Trial) -> ConsumerGroupState:
    found: ConsumerGroupState = group_description(group.kafka, group.group).state
    return found


def test_all_stop_and_those_of_the_new_protocol_go_on_at_the_committed_offsets(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    with trial(kafka, tmp_path) as group:
        before = Roster(group, **classic())
        with members(*before.crew):
            before.settle()
        assert state(group) is ConsumerGroupState.EMPTY
        after = Roster(group, **CONSUMER)
        with members(*after.crew):
            after.settle()
            with in_background(after.step):
                group.until_read()
        verdict = group.verdict()
        assert verdict.sound, str(verdict)
        assert verdict.repeated == 0
        assert not [m.raised for m in (*before.crew, *after.crew) if m.raised]


def test_a_rolling_bounce_there_and_back_without_a_pause(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    ((both, eager),) = BOUNCES
    with trial(kafka, tmp_path) as group:
        roster = Roster(group, **classic())
        try:
            roster.settle()
            for strategies in (both, eager):
                roster.bounce(**classic(strategies))
            assert not [m.raised for m in (*roster.crew, *roster.gone) if m.raised]
            last = roster.crew[-1]
            roster.replace(0, **CONSUMER)  # now the broker assigns, to members of either protocol
            until(lambda: bool(last.raised), *roster.crew)
            roster.replace(1, **CONSUMER)
            assert the_broker_assigns(last)
            roster.replace(0, **classic())
            first = roster.crew[0]
            assert the_broker_assigns(first)
            roster.replace(1, **classic())
            with in_background(roster.step):
                group.until_read()
        finally:
            roster.close()
        verdict = group.verdict()
        assert verdict.sound, str(verdict)
        assert not losses(group)
        assert [m for m in (*roster.gone, *roster.crew) if m.raised] == [last, first]


class Mixed(Roster):
    """Members of ours, and another client's process, which leads."""

    LEADER = "theirs"

    def __init__(self, group: Trial, leads: Client, strategy: str) -> None:
        group.start(self.LEADER, leads, [strategy])
        group.until(lambda: len(group.owned(self.LEADER)) == PARTITIONS, "a first member")
        super().__init__(group, **classic(strategy))

    def is_shared(self) -> bool:
        """Each has its share, and nothing two have."""
        owned = [self.group.owned(self.LEADER), *({p for _, p in m.owned} for m in self.crew)]
        fair = min(map(len, owned)) >= PARTITIONS // len(owned)
        return fair and sorted(p for o in owned for p in o) == [*range(PARTITIONS)]

    def settle(self) -> None:
        until(self.is_shared, *self.crew)
        until(lambda: all(member.records for member in self.crew), *self.crew)


@pytest.fixture
def led_by(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[[Client, str], Mixed]]:
    """Makes a settled group that this client leads; in the end it is closed."""
    with trial(kafka, tmp_path) as group, ExitStack() as closing:

        def made(leads: Client, strategy: str) -> Mixed:
            mixed = Mixed(group, leads, strategy)
            closing.callback(mixed.close)
            mixed.settle()
            assert group.leader() == Mixed.LEADER
            assert not [m.raised for m in mixed.crew if m.raised]
            return mixed

        yield made


@pytest.mark.parametrize(
    ("leads", "strategy"),
    [("java", "cooperative-sticky"), ("confluent", "range"), ("confluent", "roundrobin")],
)
def test_members_whose_leaders_assignments_carry_nothing_are_turned_over_and_told(
    led_by: Callable[[Client, str], Mixed], leads: Client, strategy: str
) -> None:
    """The broker takes them over as they are."""
    mixed = led_by(leads, strategy)
    ours = tuple(mixed.crew)
    mixed.crew.append(newcomer := Guest(mixed.group, next(_NAMES), **CONSUMER))
    mixed.settle()
    until(lambda: all(member.raised for member in ours), *mixed.crew)
    end_soundly(mixed)
    assert all(the_broker_assigns(member) for member in ours)
    assert not newcomer.raised
    assert not newcomer.errors


def test_cooperative_members_that_librdkafka_leads_are_not_turned_over(
    led_by: Callable[[Client, str], Mixed],
) -> None:
    """Its assignments return to each member, itself included, what that sent as user data."""
    mixed = led_by("confluent", "cooperative-sticky")
    ours = tuple(mixed.crew)
    before = [list(member.told) for member in ours]
    mixed.crew.append(newcomer := Guest(mixed.group, next(_NAMES), **CONSUMER))
    until(lambda: bool(newcomer.errors), *mixed.crew)
    error = newcomer.errors[0].error()
    assert error is not None
    assert error.fatal()
    assert "the broker does not upgrade it" in error.str()
    mixed.crew.remove(newcomer)
    newcomer.consumer.close()
    assert mixed.is_shared()
    assert [member.told for member in ours] == before, "they noticed nothing"
    end_soundly(mixed)
    assert not losses(mixed.group)
    assert not [m.raised for m in ours if m.raised]


def end_soundly(mixed: Mixed) -> None:
    """Nothing is lost, nothing had two owners, and no commit of ours was refused."""
    group = mixed.group
    with in_background(mixed.step):
        group.until_read()
    mixed.close()
    verdict = group.verdict()
    assert verdict.sound, str(verdict)
    taken = [taken for m in mixed.crew for _, commit in m.commits for taken in commit.values()]
    assert taken
    assert {error for _, error in taken} == {""}
