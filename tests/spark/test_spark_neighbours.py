"""Who shares a group with a query that keeps state, although nothing moves."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from spark_sessions import Box

from kafka_coop.spark import neighbours
from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.neighbours import Neighbours
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.session import Session
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.types import TopicPartition

STABLE = ConsumerGroupState.STABLE


@pytest.fixture
def box(kafka: KafkaCluster) -> Iterator[Box]:
    """Of a real broker: the embedded one describes no groups."""
    made = Box(kafka)
    yield made
    made.close()


class Admin:
    """Knows one group, with a member that is ours and another one."""

    def __init__(self) -> None:
        self.asked = 0
        self.state = STABLE
        self.error: BaseException | None = None

    def describe_consumer_groups(
        self, groups: list[str], *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        assert request_timeout > 0
        self.asked += 1
        answer: Future[Any] = Future()
        if self.error is not None:
            answer.set_exception(self.error)
        else:
            answer.set_result(SimpleNamespace(state=self.state, members=_members()))
        return {groups[0]: answer}


def _members() -> list[Any]:
    def member(id_: str, *given: TopicPartition) -> Any:
        return SimpleNamespace(
            member_id=id_, assignment=SimpleNamespace(topic_partitions=list(given))
        )

    theirs = (TopicPartition("a", 1), TopicPartition("other", 1))
    return [member("ours", TopicPartition("a", 0)), member("theirs", *theirs)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(neighbours, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def look(of: Neighbours, rebalances: int) -> list[TopicPartition]:
    return sorted(of.partitions({"a"}, member="ours", rebalances=rebalances))


def test_it_is_looked_once_after_each_rebalance_at_what_others_have_of_these_topics() -> None:
    admin = Admin()
    group: Any = Neighbours(admin, "g")  # type: ignore[arg-type]  # a stand-in
    found = [look(group, rebalances) for rebalances in (1, 1, 2, 2)]
    theirs = [TopicPartition("a", 1)]
    assert found == [theirs, [], theirs, []]
    assert admin.asked == 2


@pytest.mark.parametrize(
    ("state", "error", "hold"),
    [
        (ConsumerGroupState.COMPLETING_REBALANCING, None, 1.0),
        (STABLE, KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE)), 10.0),
        (STABLE, TimeoutError(), 10.0),
    ],
)
def test_where_it_is_not_told_it_is_asked_again_a_little_later(
    clock: list[float], state: Any, error: BaseException | None, hold: float
) -> None:
    admin = Admin()
    admin.state, admin.error = state, error
    group = Neighbours(admin, "g")  # type: ignore[arg-type]  # a stand-in
    assert look(group, 1) == []
    admin.state, admin.error = STABLE, None
    clock[0] += hold - 0.1
    assert look(group, 1) == []
    assert admin.asked == 1
    clock[0] += 0.2
    assert look(group, 1) == [TopicPartition("a", 1)]


def two_that_share_what_nobody_has_read(box: Box, **options: str) -> tuple[Session, Session]:
    """The second one's partition is the first one's no more, who has read nothing of it."""
    first, second = box.session(**options), box.session(**options)
    first.latest({}, limited=True)
    second.latest({}, limited=True)
    return first, second


@pytest.mark.parametrize(
    ("horizon", "aggregates", "refused"),
    [
        (None, False, "set replayHorizon"),
        (None, True, "a group of its own"),
        ("3s", True, "aggregates"),
        ("3s", False, None),
    ],
)
def test_a_query_that_keeps_state_is_refused_beside_others_before_anything_moves(
    box: Box, horizon: str | None, aggregates: bool, refused: str | None
) -> None:
    options = {} if horizon is None else {"replayHorizon": horizon}
    _, session = two_that_share_what_nobody_has_read(box, **options)
    start = session.latest({}, limited=True)
    member = session._member
    assert member is not None
    assert not member.moved
    Rendezvous(session._id).mark_stateful(aggregating=aggregates)
    if refused is None:
        assert session.latest(start, limited=True) == start
        return
    with pytest.raises(MembershipError, match=rf"other members of .* have {box.topic}:.*{refused}"):
        session.latest(start, limited=True)


def test_one_that_keeps_no_state_and_one_that_is_alone_go_on(box: Box) -> None:
    _, session = two_that_share_what_nobody_has_read(box)
    start = session.latest({}, limited=True)
    assert session.latest(start, limited=True) == start
    for one in box.sessions:
        one.close()
    alone = box.session()
    begun = alone.latest({}, limited=True)
    Rendezvous(alone._id).mark_stateful(aggregating=True)
    assert alone.latest(begun, limited=True) == begun
    assert alone._neighbours._seen is not None, "it has looked"


@pytest.mark.parametrize(
    ("strategy", "topics", "joins", "refused"),
    [
        ("cooperative-sticky", 2, True, True),
        ("stream-join-sticky,cooperative-sticky", 2, True, True),
        ("stream-join-sticky", 2, True, False),
        ("range", 2, True, False),
        ("cooperative-sticky", 1, True, False),
        ("cooperative-sticky", 2, False, False),
    ],
)
def test_a_join_that_is_to_share_its_group_needs_its_partitions_together(
    box: Box, strategy: str, topics: int, joins: bool, refused: bool
) -> None:
    other = f"{box.topic}-other"
    box.kafka.create_topic(other, partitions=2)
    session = box.session(
        subscribe=",".join([box.topic, other][:topics]),
        replayHorizon="3s",
        **{"kafka.partition.assignment.strategy": strategy},
    )
    start = session.latest({}, limited=True)
    Rendezvous(session._id).mark_stateful(aggregating=False, joining=joins)
    if not refused:
        assert session.latest(start, limited=True) == start
        return
    with pytest.raises(MembershipError, match=r"cooperative-sticky may .*=stream-join-sticky"):
        session.latest(start, limited=True)
