"""What is under way, who joins it meanwhile, and how nothing is reported."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.backend.promises import Promise
from kafka_coop.client.commits import Commits
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.kafka_errors import CommitException, CommitFailedException
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Partitions
from kafka_coop.types import TopicPartition as Partition

CONFIG: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
THERE = Partition("t", 0)
ALL = Partitions.of([THERE])


@contextmanager
def under_kip_848(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CoopConsumer, list[int]]]:
    """A consumer with group.protocol=consumer, and the offsets that librdkafka is to commit."""
    sent: list[int] = []

    def commit(offsets: Mapping[Partition, OffsetAndMetadata]) -> dict[Partition, ErrorCode]:
        sent.extend(at.offset for at in offsets.values())
        return dict.fromkeys(offsets, ErrorCode.none)

    monkeypatch.setattr(GroupFetcher, "hears", lambda *_: True)
    config = {**CONFIG, "group.protocol": "consumer"}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        monkeypatch.setattr(consumer._fetcher, "commit", commit)
        yield consumer, sent


class Coordinator:
    """Stands in for `Backend.commit`; answers when told to.

    Attributes:
        asked: The offset of each commit, in order.
        away: It answers nothing by itself.
        says: Its answer.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.away = True
        self.says = {THERE: ErrorCode.none}
        self._waiting: list[Promise[dict[Partition, ErrorCode]]] = []

    def commit(
        self, offsets: Mapping[Partition, OffsetAndMetadata], _: timedelta
    ) -> Promise[dict[Partition, ErrorCode]]:
        self.asked += [at.offset for at in offsets.values()]
        self._waiting.append(Promise())
        if not self.away:
            self.answer()
        return self._waiting[-1]

    def answer(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(self.says)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def consumer(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoopConsumer]:
    """It owns a partition, by hand, of which offset 5 is to be committed."""
    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as made:
        monkeypatch.setattr(made._backend, "commit", coordinator.commit)
        made.assign([TopicPartition("t", 0, 5)])
        yield made
        coordinator.away = False
        coordinator.answer()


# --- the periodic one ----------------------------------------------------------------------


def auto_commit(commits: Commits) -> None:
    commits.attend(commits.auto_commit_due)


def test_auto_commits_do_not_pile_up_while_the_coordinator_is_away(
    consumer: CoopConsumer, coordinator: Coordinator
) -> None:
    commits = consumer._commits
    auto_commit(commits)
    consumer.seek(TopicPartition("t", 0, 7))
    for _ in range(300):
        auto_commit(commits)
    assert coordinator.asked == [5]
    coordinator.answer()
    auto_commit(commits)
    assert coordinator.asked == [5, 7], "the next one takes the newest"
    auto_commit(commits)
    assert coordinator.asked == [5, 7]


@pytest.mark.parametrize(
    "gives_up",
    [lambda consumer: consumer._commits.commit_before_release(ALL), CoopConsumer.close],
    ids=["revoked", "closed"],
)
def test_the_commit_of_what_is_given_up_waits_for_no_auto_commits_end(
    consumer: CoopConsumer, coordinator: Coordinator, gives_up: Callable[[CoopConsumer], None]
) -> None:
    """Its place in the line is behind that one's, and it has the newest positions."""
    auto_commit(consumer._commits)
    consumer.seek(TopicPartition("t", 0, 9))
    coordinator.away = False
    gives_up(consumer)
    assert coordinator.asked == [5, 9]


@pytest.mark.parametrize(
    "lets_go",
    [
        CoopConsumer.unassign,
        CoopConsumer.unsubscribe,
        lambda consumer: consumer.assign([TopicPartition("t", 0)]),
        lambda consumer: consumer.assign([]),
        lambda consumer: consumer.incremental_unassign([TopicPartition("t", 0)]),
    ],
    ids=["unassign", "unsubscribe", "assign again", "assign nothing", "incremental_unassign"],
)
def test_what_is_let_go_of_by_hand_is_auto_committed_as_confluents(
    consumer: CoopConsumer, coordinator: Coordinator, lets_go: Callable[[CoopConsumer], None]
) -> None:
    consumer.seek(TopicPartition("t", 0, 9))
    lets_go(consumer)
    assert coordinator.asked == [9]


# --- while consume gathers -----------------------------------------------------------------


class Gathering:
    """Stands in for the fetcher while `consume` gathers: two records, and then what happens.

    Attributes:
        happens: In the second slice, in which nothing comes.
    """

    def __init__(self, consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happens: Callable[[], object]
        self._position = 5
        monkeypatch.setattr(consumer._fetcher, "take", self._take)
        monkeypatch.setattr(consumer._fetcher, "positions", self._positions)

    def _take(self, n: int, _: float) -> list[Message]:
        if self._position == 5:
            self._position += 2
            return [Message(topic="t", partition=0, offset=offset) for offset in (5, 6)]
        self.happens()
        return []

    def _positions(self, partitions: Partitions) -> dict[Partition, OffsetAndMetadata]:
        return dict.fromkeys(partitions, OffsetAndMetadata(offset=self._position))


def test_what_consume_has_gathered_and_not_returned_is_not_committed(
    consumer: CoopConsumer, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread's commit, or a signal handler's that ends the process then."""
    gathering = Gathering(consumer, monkeypatch)
    gathering.happens = lambda: consumer.commit(offsets=None)
    assert len(consumer.consume(10, timeout=0.2)) == 2
    assert set(coordinator.asked) == {5}
    consumer.commit()
    assert coordinator.asked[-1] == 7, "returned: the user's from now on"


def test_consume_returns_nothing_from_before_a_seek_while_it_gathers(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = Gathering(consumer, monkeypatch)
    gathering.happens = lambda: consumer.seek(TopicPartition("t", 0, 9))
    assert consumer.consume(10, timeout=0.2) == []


def test_consume_returns_nothing_of_what_is_unassigned_while_it_gathers(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = Gathering(consumer, monkeypatch)
    gathering.happens = lambda: consumer.incremental_unassign(consumer.assignment())
    assert consumer.consume(10, timeout=0.2) == []


def test_under_kip_848_nothing_gathered_outlives_a_revocation_nor_is_committed_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There librdkafka has on_revoke called while `consume` waits for more."""
    with under_kip_848(monkeypatch) as (consumer, sent):
        backend: Any = consumer._backend
        with consumer._lock:
            backend._assigned(ALL)
        gathering = Gathering(consumer, monkeypatch)
        gathering.happens = lambda: backend._revoked(ALL) if consumer.assignment() else None
        assert consumer.consume(10, timeout=0.2) == []
        assert not consumer.assignment()
        assert sent == [5]


# --- while it is looked through ------------------------------------------------------------


class Nosy(Partitions):
    """Another thread's commit begins whenever it is asked what it holds."""

    __slots__ = ("commits",)
    commits: Commits

    def __contains__(self, of: object) -> bool:
        self.commits.commit_later(None, [TopicPartition("t", 0, 6)])
        return super().__contains__(of)


def test_what_others_commit_while_revoked_ones_are_waited_for(
    consumer: CoopConsumer, coordinator: Coordinator
) -> None:
    coordinator.away = False
    for offset in (1, 2):
        consumer.commit(offsets=[TopicPartition("t", 0, offset)])
    nosy = Nosy({"t": [0]})
    nosy.commits = consumer._commits
    consumer._commits.wait_for(nosy)
    assert coordinator.asked == [1, 2, 6, 6]


def test_what_another_thread_commits_in_on_revoke_is_sent_before_the_partition_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under KIP-848 the thread that sends it is shut out until then: both waited for 30 s."""
    with (
        under_kip_848(monkeypatch) as (consumer, sent),
        consumer._lock,
        ThreadPoolExecutor(1) as other,
    ):
        other.submit(consumer.commit, offsets=[TopicPartition("t", 0, 5)]).result()
        assert not sent
        began = time.monotonic()
        consumer._commits.wait_for(ALL)
        assert sent == [5]
        assert time.monotonic() - began < 10


# --- a part of it --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.offset_metadata_too_large, CommitException),
        (ErrorCode.illegal_generation, CommitFailedException),
    ],
)
def test_a_commit_that_fails_for_one_partition_raises_and_tells_of_each(
    consumer: CoopConsumer, coordinator: Coordinator, error: ErrorCode, kind: type[CommitException]
) -> None:
    """As confluent's and Java's: who commits and goes on would believe that all is committed."""
    coordinator.away = False
    coordinator.says = {THERE: ErrorCode.none, Partition("t", 1): error}
    both = [TopicPartition("t", 0, 6), TopicPartition("t", 1, 7)]
    with pytest.raises(kind, match=r"t\[1\]") as raised:
        consumer.commit(offsets=both, asynchronous=False)
    for exception in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert exception.args[0].code() == error
        told = [(p.partition, p.offset, p.error and p.error.code()) for p in exception.partitions]
        assert told == [(0, 6, None), (1, 7, error)]


# --- nothing to commit ---------------------------------------------------------------------


@pytest.mark.parametrize("made", [CoopConsumer, Consumer], ids=["ours", "confluent's"])
def test_nothing_to_commit_is_reported_as_confluents_reports_it(made: Any) -> None:
    told: list[tuple[KafkaError, list[TopicPartition]]] = []
    config = {
        **CONFIG,
        "enable.auto.offset.store": False,
        "on_commit": lambda error, partitions: told.append((error, partitions)),
    }
    consumer = made(config, **({"registry": CollectorRegistry()} if made is CoopConsumer else {}))
    try:
        consumer.assign([TopicPartition("t", 0, 5)])
        assert consumer.commit() is None
        assert consumer.commit(offsets=[]) is None
        assert not told, "reports come inside poll"
        for _ in range(100):
            consumer.poll(0.05)
            if len(told) == 2:
                break
        assert [error.code() for error, _ in told] == [KafkaError._NO_OFFSET] * 2
        partitions = [[(p.topic, p.partition, p.offset) for p in ps] for _, ps in told]
        assert partitions == [[("t", 0, OFFSET_INVALID)], []]
        asked: list[dict[str, Any]] = [{}, {"offsets": []}]
        for nothing in asked:
            with pytest.raises(KafkaException) as raised:
                consumer.commit(asynchronous=False, **nothing)
            assert raised.value.args[0].code() == KafkaError._NO_OFFSET
    finally:
        consumer.close()
    assert len(told) == 2


def test_an_on_commit_that_commits_again_lets_poll_return() -> None:
    """It tries again whatever failed: that there is nothing to commit is told at once."""
    told: list[KafkaError | None] = []

    def on_commit(error: KafkaError | None, _: list[TopicPartition]) -> None:
        told.append(error)
        if error is not None and len(told) < 1000:  # so that the test ends
            made.commit()

    config = {**CONFIG, "enable.auto.offset.store": False, "on_commit": on_commit}
    with CoopConsumer(config, registry=CollectorRegistry()) as made:
        made.assign([TopicPartition("t", 0, 5)])
        made.commit()
        made.poll(0)
        assert len(told) == 1
        made.poll(0)
        assert len(told) == 2, "it is told with the next one"
        made.poll(0.1)
        assert len(told) < 100, "a poll that waits tells in its slices"


@pytest.mark.parametrize("logical", [OFFSET_INVALID, OFFSET_BEGINNING, OFFSET_END])
@pytest.mark.parametrize("made", [CoopConsumer, Consumer], ids=["ours", "confluent's"])
def test_to_store_what_is_no_offset_leaves_nothing_to_commit(made: Any, logical: int) -> None:
    """For instance `position`, before a start is known: it would undo what the group has."""
    config = {**CONFIG, "enable.auto.offset.store": False}
    consumer = made(config, **({"registry": CollectorRegistry()} if made is CoopConsumer else {}))
    try:
        consumer.assign([TopicPartition("t", 0, 5)])
        for before in (logical, 7):
            consumer.store_offsets(offsets=[TopicPartition("t", 0, before)])
            consumer.store_offsets(offsets=[TopicPartition("t", 0, logical)])
            with pytest.raises(KafkaException) as raised:
                consumer.commit(asynchronous=False)
            assert raised.value.args[0].code() == KafkaError._NO_OFFSET
    finally:
        consumer.close()


@pytest.mark.parametrize("logical", [OFFSET_INVALID, OFFSET_BEGINNING, OFFSET_END])
def test_what_is_no_offset_is_left_out_of_a_commit(
    consumer: CoopConsumer, coordinator: Coordinator, logical: int
) -> None:
    """An on_revoke that commits `position` has some of these: of what has not begun yet."""
    coordinator.away = False
    positions = [TopicPartition("t", 0, 6), TopicPartition("t", 1, logical)]
    (done,) = consumer.commit(offsets=positions, asynchronous=False) or []
    assert (done.partition, done.offset) == (0, 6)
    consumer.commit(offsets=positions)
    assert coordinator.asked == [6, 6]


@pytest.mark.parametrize("made", [CoopConsumer, Consumer], ids=["ours", "confluent's"])
def test_of_no_offsets_at_all_there_is_nothing_to_commit(made: Any) -> None:
    told: list[tuple[KafkaError, list[TopicPartition]]] = []
    config = {**CONFIG, "on_commit": lambda error, partitions: told.append((error, partitions))}
    consumer = made(config, **({"registry": CollectorRegistry()} if made is CoopConsumer else {}))
    try:
        nothing = [TopicPartition("t", 1)]
        with pytest.raises(KafkaException) as raised:
            consumer.commit(offsets=nothing, asynchronous=False)
        assert raised.value.args[0].code() == KafkaError._NO_OFFSET
        consumer.commit(offsets=nothing)
        for _ in range(100):
            consumer.poll(0.05)
            if told:
                break
        ((error, partitions),) = told
        assert error.code() == KafkaError._NO_OFFSET
        assert [(p.topic, p.partition, p.offset) for p in partitions] == [("t", 1, OFFSET_INVALID)]
    finally:
        consumer.close()


def test_of_what_is_stored_together_what_is_owned_is_stored(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka has it: what went in a rebalance takes nothing else of the batch along."""
    coordinator.away = False
    config = {**CONFIG, "enable.auto.offset.store": False}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        monkeypatch.setattr(consumer._backend, "commit", coordinator.commit)
        consumer.assign([TopicPartition("t", 0, 5)])
        gone = TopicPartition("t", 1, 6)
        consumer.store_offsets(offsets=[gone, TopicPartition("t", 0, 7)])
        consumer.commit(asynchronous=False)
        assert coordinator.asked == [7]
        with pytest.raises(KafkaException) as raised:
            consumer.store_offsets(offsets=[gone])
        assert raised.value.args[0].code() == KafkaError._STATE


def test_without_on_commit_nobody_is_told_of_nothing(
    consumer: CoopConsumer, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.away = False
    consumer.unassign()
    coordinator.asked.clear()
    assert consumer.commit() is None
    consumer.poll(0)
    assert not coordinator.asked
    assert not caplog.records


# --- before a release ----------------------------------------------------------------------


def test_a_commit_is_on_its_way_before_the_fetcher_lets_go(
    consumer: CoopConsumer, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which keeps the interpreter from the thread that sends it, in the midst of a gap."""
    done: list[tuple[str, int]] = []
    coordinator.away = False

    def note(what: str) -> Callable[..., None]:
        return lambda *_: done.append((what, len(coordinator.asked)))

    monkeypatch.setattr(consumer._backend, "let_commits_in", note("sent"))
    monkeypatch.setattr(consumer._ownership, "silence", note("let go"))
    consumer._commits.commit_before_release(ALL)
    assert done == [("sent", 1), ("let go", 1)]


def test_it_has_begun_when_it_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    async def commit(*_: object) -> dict[Partition, ErrorCode]:
        begun.append(1)
        return {}

    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as consumer:
        backend = consumer._backend
        monkeypatch.setattr(backend, "_commit", commit)
        for times in range(1, 100):
            backend.commit({THERE: OffsetAndMetadata(offset=5)}, timedelta(seconds=1))
            backend.let_commits_in()
            assert len(begun) == times
