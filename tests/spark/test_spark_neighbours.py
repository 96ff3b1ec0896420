"""Who shares a group with a query that keeps state, although nothing moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
        self.members: tuple[str, ...] = ("ours", "theirs")
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
            answer.set_result(self._group())
        return {groups[0]: answer}

    def _group(self) -> Any:
        given = {
            "ours": [TopicPartition("a", 0)],
            "theirs": [TopicPartition("a", 1), TopicPartition("other", 1)],
        }
        members = [
            SimpleNamespace(member_id=id_, assignment=SimpleNamespace(topic_partitions=given[id_]))
            for id_ in self.members
        ]
        return SimpleNamespace(state=self.state, members=members, partition_assignor="sticky")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(neighbours, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def look(of: Neighbours, rebalances: int) -> list[TopicPartition]:
    found = of.look(lambda topic: topic == "a", member="ours", rebalances=rebalances)
    assert not found.partitions or found.strategy == "sticky"
    return sorted(found.partitions)


def test_others_count_when_they_are_seen_again_and_are_looked_at_after_each_rebalance(
    clock: list[float],
) -> None:
    admin = Admin()
    group = Neighbours(admin, "g")  # type: ignore[arg-type]  # a stand-in
    theirs = [TopicPartition("a", 1)]
    found = []
    for rebalances in (1, 1, 1, 2, 2):
        found.append(look(group, rebalances))
        clock[0] += 1.1
    assert found == [[], theirs, [], theirs, []]
    assert admin.asked == 3


def test_who_leaves_as_we_come_does_not_count(clock: list[float]) -> None:
    """The run before, say, which is still in the first round."""
    admin = Admin()
    group = Neighbours(admin, "g")  # type: ignore[arg-type]  # a stand-in
    assert look(group, 1) == []
    admin.members = ("ours",)
    clock[0] += 1.1
    assert look(group, 1) == []
    clock[0] += 1.1
    assert look(group, 1) == []
    assert admin.asked == 2, "known"


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
    assert look(group, 1) == []
    clock[0] += 1.1
    assert look(group, 1) == [TopicPartition("a", 1)]


def two_that_share_what_nobody_has_read(box: Box, **options: str) -> Session:
    """The second one's partitions are the first one's no more, who has read nothing of them."""
    first, second = box.session(**options), box.session(**options)
    first.latest({}, limited=True)
    second.latest({}, limited=True)
    return second


def go_on(session: Session, *, until: Callable[[], bool] = lambda: False) -> None:
    """Asks as Spark does: who is in the group is known a moment after a round."""
    start = session.latest({}, limited=True)
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline, "it went on"
        start = session.latest(start, limited=True)


def knows(session: Session) -> Callable[[], bool]:
    """Whether it has looked at who else is in the group."""
    return lambda: session._neighbours._known is not None


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
    session = two_that_share_what_nobody_has_read(box, **options)
    member = session._member
    assert member is not None
    assert not member.moved
    Rendezvous(session._id).mark_stateful(aggregating=aggregates)
    if refused is None:
        go_on(session, until=knows(session))
        return
    told = rf"other members of .* have {box.topic}:.*Set checkpointLocation to .*{refused}"
    with pytest.raises(MembershipError, match=told if horizon is None else refused):
        go_on(session)


def test_one_that_keeps_no_state_and_one_that_is_alone_go_on(box: Box) -> None:
    session = two_that_share_what_nobody_has_read(box)
    start = session.latest({}, limited=True)
    assert session.latest(start, limited=True) == start
    assert not knows(session)(), "it has no need to"
    for one in box.sessions:
        one.close()
    alone = box.session()
    alone.latest({}, limited=True)
    Rendezvous(alone._id).mark_stateful(aggregating=True)
    go_on(alone, until=knows(alone))


def test_a_member_that_reads_other_topics_is_no_neighbour(box: Box) -> None:
    other = f"{box.topic}-other"
    box.kafka.create_topic(other, partitions=2)
    box.session(subscribe=other).latest({}, limited=True)
    session = box.session()
    session.latest({}, limited=True)
    Rendezvous(session._id).mark_stateful(aggregating=True)
    go_on(session, until=knows(session))


@pytest.mark.parametrize(
    ("strategy", "joins", "refused"),
    [
        ("cooperative-sticky", True, True),
        ("cooperative-sticky,stream-join-sticky", True, True),
        ("stream-join-sticky,cooperative-sticky", True, False),
        ("cooperative-sticky", False, False),
    ],
)
def test_a_join_that_shares_its_group_needs_its_partitions_together(
    box: Box, strategy: str, joins: bool, refused: bool
) -> None:
    other = f"{box.topic}-other"
    box.kafka.create_topic(other, partitions=2)
    session = two_that_share_what_nobody_has_read(
        box,
        subscribe=f"{box.topic},{other}",
        replayHorizon="3s",
        **{"kafka.partition.assignment.strategy": strategy},
    )
    Rendezvous(session._id).mark_stateful(aggregating=False, joining=joins)
    if not refused:
        go_on(session, until=knows(session))
        return
    with pytest.raises(MembershipError, match=r"cooperative-sticky may .*=stream-join-sticky"):
        go_on(session)
