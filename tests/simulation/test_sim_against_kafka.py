"""The same scripts in the box and against a real Kafka: the same story, word for word.

A script writes down what it is answered, members by their names, not their ids. Timeouts are
short, as they take real time there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from coordinator_box import (
    ORDERS_0,
    Box,
    Peer,
    Stage,
    fetch,
    finish_round,
    join_round,
    rejoin_all,
    stable_group,
)
from integration_support import unique
from real_group import KafkaBox
from whole_group import BoxedStage, Play, RealStage

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import GroupJoined, GroupSynced
from kafka_coop.simulation.group import RequestToken
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.local import LocalKafka
from kafka_coop.types import Generation, MemberId

pytestmark = pytest.mark.kafka

DELAY = timedelta(milliseconds=500)
LONG = timedelta(seconds=30)
SHORT = timedelta(seconds=2)
SETTINGS = CoordinatorSettings(
    initial_rebalance_delay=DELAY, min_session_timeout=timedelta(milliseconds=100)
)
BOTH = (("range", b"r"), ("coop", b"c"))

Story = list[object]


class Cast:
    """The members of a script, by name."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.story: Story = []
        self._names: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}

    def peer(
        self,
        name: str,
        *,
        static: bool = False,
        session: timedelta = LONG,
        rebalance: timedelta = LONG,
        protocols: tuple[tuple[str, bytes], ...] = (("coop", b"v1"),),
        join_group_version: int = 9,
    ) -> Peer:
        peer = self._peers[name] = Peer(
            self.stage,
            name,
            instance_id=name if static else None,
            session=session,
            rebalance=rebalance,
            protocols=protocols,
            client=Client(client_id=name, join_group_version=join_group_version),
        )
        return peer

    def restarted(self, former: Peer, name: str) -> Peer:
        """A new process with the former's instance id."""
        peer = self.peer(name, session=former.session, rebalance=former.rebalance)
        peer.instance_id, peer.protocols = former.instance_id, former.protocols
        peer.client = former.client
        return peer

    def name(self, member_id: str) -> str:
        for name, peer in self._peers.items():
            if peer.member_id:
                self._names.setdefault(peer.member_id, name)
        return self._names.get(member_id, member_id and "somebody")

    def tell(self, *what: object) -> None:
        self.story.append(what)

    def tell_parked(self, token: RequestToken) -> RequestToken:
        """Also sees to it that the request has arrived before another connection's next one."""
        self.tell(self.stage.is_parked(token))
        return token

    def tell_joined(self, answer: GroupJoined) -> None:
        self.tell(
            answer.error.name,
            answer.generation,
            answer.protocol_type,
            answer.protocol_name,
            self.name(answer.leader),
            answer.skip_assignment,
            self.name(answer.member_id),
            sorted((self.name(m.member_id), m.instance_id, m.metadata) for m in answer.members),
        )

    def tell_group(self) -> None:
        seen = self.stage.describe()
        self.tell(
            seen.state,
            sorted((self.name(m), bool(plan)) for m, plan in seen.assignments.items()),
        )

    def tell_synced(self, answer: GroupSynced) -> None:
        self.tell(answer.error.name, answer.protocol_type, answer.protocol_name)


Script = Callable[[Cast], None]


def rejoins(cast: Cast) -> None:
    """A follower's unchanged, the leader's, and changed ones."""
    a, b = cast.peer("a"), cast.peer("b")
    stable_group(cast.stage, a, b)
    b.join()
    cast.tell_joined(b.joined())
    cast.tell_group()
    a.join()
    cast.tell_group()
    cast.tell(b.beat(), b.commit(5), b.sync().error, b.sync().assignment)
    b.join()
    for peer in (a, b):
        cast.tell_joined(peer.joined())
    a.join()  # repeated while the group completes: the leader's, then the follower's
    b.join()
    cast.tell_joined(a.joined())
    cast.tell_joined(b.joined())
    waiting = cast.tell_parked(b.send_sync())
    a.protocols = (("coop", b"v2"),)
    a.join()
    cast.tell_synced(cast.stage.answer(waiting, GroupSynced))
    cast.tell_group()


def by_state(cast: Cast) -> None:
    """Heartbeats, commits and syncs in every state."""
    a, b = cast.peer("a"), cast.peer("b")
    a.member_id, a.generation = MemberId("ghost"), Generation(3)
    cast.tell(a.beat(), a.sync().error, a.leave())
    cast.tell(a.commit(1))
    a.member_id, a.generation = MemberId(""), Generation(-1)
    cast.tell(a.commit(2), fetch(cast.stage).offsets)
    cast.tell_group()
    join_round(cast.stage, a, b)
    cast.tell_group()
    cast.tell(a.beat(), b.beat(), a.commit(3), b.commit(3))
    finish_round(a, b)
    cast.tell(a.beat(), b.commit(4), cast.peer("c").commit(5))
    for stale in (0, 2):
        b.generation = Generation(stale)
        cast.tell(b.beat(), b.commit(6), b.sync().error)
    b.generation = Generation(1)
    b.protocol_name = "range"
    cast.tell(b.sync().error)
    a.join()
    cast.tell(b.beat(), b.commit(7), b.sync().error, fetch(cast.stage).offsets)
    cast.tell(b.leave())
    cast.tell_joined(a.joined())
    cast.tell(b.beat(), b.commit(8), b.leave())
    a.sync()
    cast.tell(a.leave(), a.beat(), a.commit(9), a.sync().error)
    cast.tell_group()
    cast.tell(cast.peer("d").commit(10), fetch(cast.stage).offsets[ORDERS_0].offset)
    a.join()
    cast.tell(a.join_error())


def static_restarts(cast: Cast) -> None:
    a, b = cast.peer("a", static=True), cast.peer("b", static=True)
    stable_group(cast.stage, a, b)
    b2 = cast.restarted(b, "b2")
    b2.protocols = (("coop", b"v2"),)
    b2.join()
    cast.tell_joined(b2.joined())
    cast.tell(b2.sync().assignment == b"for " + b.member_id.encode())
    cast.tell(b.beat(), b.commit(1), b.sync().error, b.leave())
    b.join()
    cast.tell(b.join_error())
    a2 = cast.restarted(a, "a2")
    a2.join()
    cast.tell_joined(a2.joined())
    cast.tell_group()
    a2.join()
    a3 = cast.restarted(a2, "a3")  # while its JoinGroup is parked
    a3.join()
    cast.tell(a2.join_error())
    b2.join()
    cast.tell_joined(a3.joined())
    cast.tell_joined(b2.joined())
    waiting = cast.tell_parked(b2.send_sync())
    b3 = cast.restarted(b2, "b3")  # while its SyncGroup is parked
    b3.join()
    cast.tell_synced(cast.stage.answer(waiting, GroupSynced))
    cast.tell_group()
    b3.instance_id = None
    b3.member_id = b.member_id
    cast.tell(b3.beat())


def older_clients(cast: Cast) -> None:
    """JoinGroup 8 knows nothing of KIP-814; 3 needs no id first (KIP-394)."""
    a = cast.peer("a", static=True, join_group_version=8)
    b = cast.peer("b", static=True, join_group_version=8)
    stable_group(cast.stage, a, b)
    a2 = cast.restarted(a, "a2")
    a2.join()
    cast.tell_joined(a2.joined())
    cast.tell(a2.sync().error)
    old = cast.peer("old", join_group_version=3)
    cast.tell_parked(old.send_join())
    cast.tell(a2.beat())


def static_restart_before_its_sync(cast: Cast) -> None:
    """The id that never synced costs one more round."""
    a = cast.peer("a", static=True, rebalance=SHORT)
    b = cast.peer("b", static=True, rebalance=SHORT)
    join_round(cast.stage, a, b)
    a.sync()
    b2 = cast.restarted(b, "b2")
    b2.join()
    cast.tell_joined(b2.joined())
    cast.tell(b2.sync().error, a.beat())
    cast.stage.wait(2.2)
    cast.tell(a.beat(), b2.beat())


def unsynced_members(cast: Cast) -> None:
    """Alive, but it never syncs: removed at the rebalance timeout."""
    a, b = cast.peer("a", rebalance=SHORT), cast.peer("b", rebalance=SHORT)
    join_round(cast.stage, a, b)
    a.sync()
    cast.tell(b.beat())
    cast.stage.wait(2.2)
    cast.tell(a.beat(), b.beat())
    cast.tell_group()


def unrejoined_members(cast: Cast) -> None:
    """The dynamic one is dropped at the rebalance timeout, the static one at the next."""
    a = cast.peer("a", rebalance=SHORT)
    b = cast.peer("b", rebalance=SHORT)
    c = cast.peer("c", static=True, rebalance=SHORT)
    stable_group(cast.stage, a, b, c)
    a.join()
    cast.stage.until_answered(a.join_token)
    cast.tell_joined(a.joined())
    cast.tell(b.beat(), c.beat())
    c.generation = a.generation
    cast.tell(c.beat())
    a.sync()
    cast.tell_group()
    cast.stage.wait(2.2)
    cast.tell(c.beat(), a.beat())


def expiring_sessions(cast: Cast) -> None:
    """In the stable group, as the last one missing, and not while a request is parked."""
    a = cast.peer("a", session=timedelta(seconds=1))
    b = cast.peer("b", session=timedelta(seconds=3))
    stable_group(cast.stage, a, b)
    a.join()
    cast.stage.wait(1.5)
    cast.tell_parked(a.join_token)
    cast.stage.until_answered(a.join_token)  # b's session ends
    cast.tell_joined(a.joined())
    cast.tell(b.beat())
    a.sync()
    cast.stage.wait(1.5)
    cast.tell_group()
    cast.tell(a.beat())


def leaving(cast: Cast) -> None:
    a, b, c = (cast.peer(name) for name in "abc")
    stable_group(cast.stage, a, b)
    c.member_id = cast.stage.answer(c.send_join(), GroupJoined).member_id
    cast.tell(c.leave(), a.beat())  # pending, and yet a round begins
    a.join()
    cast.tell(a.leave(), a.join_error())
    b.join()
    cast.tell_joined(b.joined())
    d = cast.peer("d")
    d.join()
    # Requests on two connections overtake each other: b, the first to be read, would only be
    # told the round that it is in.
    wait_until(lambda: b.beat() is ErrorCode.rebalance_in_progress, "d's join is not read")
    b.join()
    b.joined()
    d.joined()
    waiting = cast.tell_parked(d.send_sync())
    cast.tell(d.leave(), cast.stage.is_parked(waiting))
    cast.tell_group()


def superseded_requests(cast: Cast) -> None:
    """Sent again on another connection, the first is never answered."""
    a, b = cast.peer("a"), cast.peer("b")
    stable_group(cast.stage, a, b)
    first = cast.tell_parked(a.send_join())
    second = cast.tell_parked(a.send_join())  # a counts once: b is still awaited
    b.join()
    cast.tell(cast.stage.answer(second, GroupJoined).error, cast.stage.is_parked(first))
    a.join_token = second
    a.joined()
    b.joined()
    third = cast.tell_parked(b.send_sync())
    fourth = cast.tell_parked(b.send_sync())
    cast.tell(a.sync().error)
    cast.tell(cast.stage.answer(fourth, GroupSynced).error, cast.stage.is_parked(third))


def plans(cast: Cast) -> None:
    """A follower's, a second one, and one without the follower."""
    a, b = cast.peer("a"), cast.peer("b")
    join_round(cast.stage, a, b)
    waiting = cast.tell_parked(b.send_sync({a.member_id: b"stolen", b.member_id: b"stolen"}))
    cast.tell(a.sync({a.member_id: b"A", "stranger": b"X"}).assignment)
    cast.tell(cast.stage.answer(waiting, GroupSynced).assignment)
    cast.tell(a.sync({a.member_id: b"second"}).assignment)
    cast.tell_group()


def choosing_protocols(cast: Cast) -> None:
    a = cast.peer("a", protocols=BOTH)
    b = cast.peer("b", protocols=BOTH)
    stable_group(cast.stage, a, b)
    cast.tell_joined(a.joined())
    c = cast.peer("c", protocols=(("sticky", b""),))
    c.join()
    cast.tell(c.join_error())
    none = cast.peer("none", protocols=())
    none.join()
    cast.tell(none.join_error())
    b.protocols = BOTH[::-1]
    b.join()
    cast.tell_group()
    d = cast.peer("d", protocols=(("coop", b"d"),))
    d.join()
    a.join()
    cast.tell_joined(a.joined())
    for peer in (b, d):
        cast.tell_joined(peer.joined())
    e = cast.peer("e", session=timedelta(minutes=31))
    e.join()
    cast.tell(e.join_error())


SCRIPTS: tuple[Script, ...] = (
    rejoins,
    by_state,
    static_restarts,
    older_clients,
    static_restart_before_its_sync,
    unsynced_members,
    unrejoined_members,
    expiring_sessions,
    leaving,
    superseded_requests,
    plans,
    choosing_protocols,
)


def failover_when_stable(cast: Cast) -> None:
    a, b = cast.peer("a", protocols=BOTH), cast.peer("b", protocols=BOTH)
    stable_group(cast.stage, a, b)
    a.commit(7)
    cast.stage.fail_over()
    cast.tell_group()
    cast.tell(a.beat(), b.beat(), fetch(cast.stage).offsets)
    cast.tell(b.sync().assignment == b"for " + b.member_id.encode())
    b.join()  # unchanged, but of its protocols the log kept one
    cast.tell_parked(b.join_token)
    a.join()
    finish_round(a, b)
    cast.tell_group()


def failover_between_join_and_plan(cast: Cast) -> None:
    """The log's generation is the last one with a plan: the next round repeats the number."""
    a, b, c = (cast.peer(name) for name in "abc")
    stable_group(cast.stage, a, b)
    c.join()
    rejoined = (a, b)
    for peer in rejoined:
        peer.join()
    for peer in (a, b, c):
        cast.tell_joined(peer.joined())
    cast.stage.fail_over()
    cast.tell_group()
    cast.tell(a.beat(), b.beat(), c.beat())
    cast.tell(a.sync().error, c.commit(1))
    c.join()
    cast.tell(c.join_error())
    rejoin_all(a, b)
    cast.tell(a.generation)
    cast.tell_group()


def failover_of_an_emptied_group(cast: Cast) -> None:
    a = cast.peer("a")
    stable_group(cast.stage, a)
    a.leave()
    cast.stage.fail_over()
    cast.tell_group()
    b = cast.peer("b")
    stable_group(cast.stage, b)
    cast.tell(b.generation)


FAILOVERS: tuple[Script, ...] = (
    failover_when_stable,
    failover_between_join_and_plan,
    failover_of_an_emptied_group,
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    delay = str(round(DELAY.total_seconds() * 1000))
    with LocalKafka(properties={"group.initial.rebalance.delay.ms": delay}) as kafka:
        kafka.create_topic("orders", partitions=4)
        yield kafka


@pytest.mark.parametrize("script", SCRIPTS + FAILOVERS, ids=lambda script: script.__name__)
def test_the_box_tells_kafkas_story(script: Script, kafka: LocalKafka) -> None:
    simulated = Cast(Box(SETTINGS))
    script(simulated)
    stage = KafkaBox(kafka, script.__name__)
    stage.until_serving()
    real = Cast(stage)
    try:
        script(real)
    finally:
        stage.close()
    assert simulated.story == real.story


PLAYS = {
    "cooperative": Play(
        steps=(
            ("start", "a"),
            ("start", "b"),
            ("start", "c"),
            ("grow", "3"),
            ("drain", "b"),
            ("close", "b"),
            ("crash", "c"),
            ("start", "d"),
            ("close", "a"),
        )
    ),
    "stalled beyond its session": Play(
        steps=(("start", "a"), ("start", "b"), ("start", "c"), ("stall", "b"), ("close", "a"))
    ),
    "eager": Play(
        strategy="range",
        steps=(("start", "a"), ("start", "b"), ("grow", "3"), ("close", "a"), ("start", "c")),
    ),
    "static restart": Play(
        static="bc",
        steps=(("start", "a"), ("start", "b"), ("start", "c"), ("restart", "b"), ("close", "a")),
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYS)
def test_whole_members_live_the_same_story_in_the_box_and_on_kafka(
    name: str, kafka: LocalKafka
) -> None:
    """Generations, assignments and callbacks, one after the other."""
    play, topic = PLAYS[name], unique("whole")
    box = BoxedStage(topic, 6, play)
    with RealStage(kafka, topic, 6, unique("group"), play) as real:
        for step in play.steps:
            expected = box.play(step)
            assert (step, real.play(step, expected)) == (step, expected)
        real.until_told(box.told)
        assert real.told == box.told
    if name == "stalled beyond its session":
        assert "lost" in {kind for kind, _ in box.told["b"].callbacks}
