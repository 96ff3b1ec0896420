"""KIP-848's fetcher: what a Ctrl-C swallows is fetched again, and not committed before."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_STORED, KafkaError, KafkaException, Message
from fetching_stand_in import NATIVE, InterruptionError, StandIn
from fetching_support import offsets

from kafka_coop.config import OffsetReset
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.fetching.group_metadata import encode_group_metadata
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import (
    NO_PARTITIONS,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    TopicPartition,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
JUST_A, BOTH = Partitions.of([A]), Partitions.of([A, B])
IDENTITY = GroupMetadata(group_id="g", member_id=MemberId("m"), generation=Generation(3))
STARTS = {A: OffsetAndMetadata(offset=0), B: OffsetAndMetadata(offset=50)}


class Group(StandIn):
    """The same in a group that has committed 10 of one partition, and nothing of the other.

    Attributes:
        errors: Come in place of records.
        failure: The code with which the coordinator's answer is replaced; None: it answers.
        queue: Rebalances that the next poll tells of: what is assigned, or what is revoked.
        inside: It is in a callback, and so may not be asked what it would not come back from.
        credentials: What it logs in with.
        closed: It is; whoever asks it anything from then on, or is told of anything, fails.
        made: All of them.
    """

    made: ClassVar[list[Group]] = []

    def __init__(self, config: dict[str, object]) -> None:
        super().__init__(config)
        self.errors: list[Message] = []
        self.failure: int | None = None
        self.queue: list[tuple[str, list[int]]] = []
        self.told: dict[str, Callable[[Any, NATIVE], None]] = {}
        self.closed = False
        self.inside = False
        name = config.get("sasl.username", "first")
        self.credentials = (str(name), str(config.get("sasl.password", "")))
        self.made.append(self)

    def subscribe(self, _topics: list[str], **told: Callable[[Any, NATIVE], None]) -> None:
        self.told = told

    def unsubscribe(self) -> None:
        """Before what is revoked comes what was assigned and not told of yet."""
        pending = [p for how, given in self.queue if how == "on_assign" for p in given]
        self.queue.append(("on_revoke", [*self.upcoming, *pending]))

    def close(self) -> None:
        self.closed = True
        assert not self.upcoming
        assert not self.queue

    def consumer_group_metadata(self) -> bytes:
        assert not self.closed, "nobody answers"
        return encode_group_metadata(IDENTITY)

    def _tell(self) -> None:
        """confluent's own code does what a callback has not."""
        while self.queue:
            how, given = self.queue.pop(0)
            native = [confluent_kafka.TopicPartition("t", p, OFFSET_STORED) for p in given]
            self.inside = True
            self.told[how](self, native)
            self.inside = False
            if how == "on_assign":
                self.incremental_assign([p for p in native if p.partition not in self.upcoming])
            else:
                self.incremental_unassign([p for p in native if p.partition in self.upcoming])

    def committed(self, partitions: NATIVE, _timeout: float) -> NATIVE:
        if self.failure is not None:
            raise KafkaException(KafkaError(self.failure))
        return [
            confluent_kafka.TopicPartition("t", p.partition, 10 if p.partition == 0 else -1001)
            for p in partitions
        ]

    def list_topics(self, topic: str | None, timeout: float) -> SimpleNamespace:
        assert not self.inside, "the next callback would end the process"
        return super().list_topics(topic, timeout)

    def cluster_id(self, _timeout: float) -> str:
        assert not self.inside, "the next callback would end the process"
        return self.credentials[0]

    def set_sasl_credentials(self, username: str, password: str) -> None:
        assert not self.inside, "the next callback would end the process"
        self.credentials = username, password

    def incremental_assign(self, partitions: NATIVE) -> None:
        where = {p.partition: p.offset for p in partitions}
        super().incremental_assign(partitions)
        for of, offset in where.items():
            if offset == OFFSET_STORED:
                self.upcoming[of] = 10 if of == 0 else 0

    def consume(self, n: int, timeout: float) -> list[Message]:
        return self.errors or super().consume(n, timeout)

    def poll(self, timeout: float) -> Any:
        """Records that are there come before rebalances."""
        message = next(iter(self.consume(len(self.upcoming), timeout)), None)
        if message is None:
            self._tell()
        return message


class Bench:
    def __init__(self) -> None:
        self.fetcher = GroupFetcher({}, reset=OffsetReset.EARLIEST)
        self.native = cast(Group, self.fetcher._consumer)

    def swallow(self) -> None:
        self.native.consume_raises = True
        with pytest.raises(InterruptionError):
            self.fetcher.take(8, 0)
        self.native.consume_raises = False


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(confluent_kafka, "Consumer", Group)
    return Bench()


def test_what_a_ctrl_c_swallows_is_neither_committed_nor_passed_over(bench: Bench) -> None:
    fetcher = bench.fetcher
    fetcher.add(STARTS)
    got = fetcher.take(8, 0)
    bench.swallow()
    assert {of: at.offset for of, at in fetcher.positions(BOTH).items()} == {A: 4, B: 54}
    got += fetcher.take(8, 0)
    bench.swallow()
    bench.swallow()
    got += fetcher.take(8, 0)
    assert offsets(got) == {A: list(range(12)), B: list(range(50, 62))}


def test_so_are_the_first_records_of_a_partition(bench: Bench) -> None:
    """Where it began librdkafka alone knows: where the group has committed, or by the reset."""
    fetcher = bench.fetcher
    fetcher.add(dict.fromkeys(BOTH, OffsetAndMetadata(offset=OFFSET_STORED)))
    bench.swallow()
    assert fetcher.positions(JUST_A).get(A, OffsetAndMetadata(offset=10)).offset == 10
    assert offsets(fetcher.take(8, 0))[A] == [10, 11, 12, 13]


def test_what_was_delivered_of_an_earlier_assignment_does_not_count(bench: Bench) -> None:
    fetcher = bench.fetcher
    fetcher.add(STARTS)
    fetcher.take(80, 0)
    fetcher.remove(JUST_A)
    bench.native.pause([])  # librdkafka has let go of it
    fetcher.add({A: OffsetAndMetadata(offset=7)})
    bench.swallow()
    assert offsets(fetcher.take(8, 0))[A][0] == 7


def _never(lost: Partitions) -> None:
    pytest.fail(f"{lost} lost")


class Told:
    """A user, who asks who it is whenever it is told of something.

    Attributes:
        of: What it was told of, in order.
        delivered: How far each partition had come when it was revoked.
        owned: What it was told that it has.
        raises: In on_revoke.
    """

    def __init__(self, fetcher: GroupFetcher) -> None:
        self.of: list[tuple[str, Partitions]] = []
        self.delivered: dict[TopicPartition, int] = {}
        self.owned = NO_PARTITIONS
        self.raises: BaseException | None = None
        self._fetcher = fetcher
        fetcher.subscribe(["t"], assigned=self._assigned, revoked=self._revoked, lost=_never)

    def _assigned(self, given: Partitions) -> None:
        self.of.append(("assigned", given))
        self.owned |= given
        self._fetcher.add(dict.fromkeys(given, OffsetAndMetadata(offset=OFFSET_STORED)))

    def _revoked(self, gone: Partitions) -> None:
        self.of.append(("revoked", gone))
        self.owned -= gone
        self.delivered |= {of: at.offset for of, at in self._fetcher.positions(gone).items()}
        self._fetcher.remove(gone & self._fetcher.assignment())
        assert self._fetcher.identity() == IDENTITY
        if self.raises is not None:
            raise self.raises


def test_all_is_given_up_before_librdkafka_closes(bench: Bench) -> None:
    """Once it closes, it ends the group as soon as all is given up, and answers nothing."""
    told = Told(bench.fetcher)
    bench.native.queue.append(("on_assign", [0, 1]))
    bench.fetcher.next(0)
    assert len(bench.fetcher.take(8, 0)) == 8
    before = {of: at.offset for of, at in bench.fetcher.positions(BOTH).items()}
    bench.fetcher.leave(lambda: bool(told.owned))
    assert told.of == [("assigned", BOTH), ("revoked", BOTH)]
    assert told.delivered == before == {A: 14, B: 4}, "what nobody gets is not passed over"
    assert bench.native.closed


def test_what_was_assigned_since_the_last_poll_is_given_up_as_well(bench: Bench) -> None:
    told = Told(bench.fetcher)
    bench.native.queue.append(("on_assign", [0]))
    bench.fetcher.leave(lambda: bool(told.owned))
    assert told.of == [("assigned", JUST_A), ("revoked", JUST_A)]
    assert bench.native.closed


def test_what_on_revoke_raises_comes_once_it_is_closed(bench: Bench) -> None:
    told = Told(bench.fetcher)
    bench.native.queue.append(("on_assign", [0, 1]))
    bench.fetcher.next(0)
    told.raises = ValueError("on_revoke's")
    with pytest.raises(ValueError, match="on_revoke's"):
        bench.fetcher.leave(lambda: bool(told.owned))
    assert bench.native.closed


def test_callbacks_may_ask_of_the_cluster_and_log_in_anew(bench: Bench) -> None:
    fetcher = bench.fetcher
    answers: list[object] = []
    Group.made.clear()

    def ask(_: Partitions) -> None:
        fetcher.set_sasl_credentials("second", "password")
        answers.extend((fetcher.list_topics().topics, fetcher.cluster_id()))
        assert bench.native.credentials[0] == "first", "not in here"

    fetcher.subscribe(["t"], assigned=ask, revoked=_never, lost=_never)
    bench.native.queue.append(("on_assign", [0]))
    fetcher.next(0)
    assert answers == [{}, "second"], "by a consumer that logs in as it should"
    assert [made.closed for made in Group.made] == [True, True]
    fetcher.next(0)
    assert bench.native.credentials[0] == "second"
    assert (fetcher.list_topics().topics, fetcher.cluster_id()) == ({}, "second")


def test_what_was_unsubscribed_from_and_not_yet_revoked_is_given_up(bench: Bench) -> None:
    told = Told(bench.fetcher)
    bench.native.queue.append(("on_assign", [0]))
    bench.fetcher.next(0)
    bench.fetcher.unsubscribe()
    bench.native.queue.clear()  # as if that took its time
    bench.fetcher.leave(lambda: bool(told.owned))
    assert told.of == [("assigned", JUST_A), ("revoked", JUST_A)]


@pytest.mark.parametrize("over", [False, True])
def test_who_was_no_member_or_is_none_any_more_just_closes(bench: Bench, over: bool) -> None:
    if over:
        Told(bench.fetcher)
    bench.fetcher.over = over
    bench.native.unsubscribe = pytest.fail  # type: ignore[method-assign]
    bench.fetcher.leave(lambda: over)
    assert bench.native.closed


@pytest.mark.parametrize("how", ["next", "take"])
@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (KafkaError.GROUP_ID_NOT_FOUND, "Stop the classic members first"),
        (KafkaError.UNRELEASED_INSTANCE_ID, "group.consumer.session.timeout.ms"),
        (KafkaError.UNSUPPORTED_ASSIGNOR, "group.remote.assignor"),
        (KafkaError.INVALID_REQUEST, ""),
    ],
)
def test_what_ends_the_membership_is_fatal_and_says_what_to_do(
    bench: Bench, why: int, remedy: str, how: str
) -> None:
    """librdkafka's message is neither: its code says so, and its text says why."""
    told = f"Fatal error: {KafkaError(why).str()}"
    code: int = KafkaError._FATAL
    bench.native.errors = [Message(error=KafkaError(code, told))]
    fetcher = bench.fetcher
    message = fetcher.next(0) if how == "next" else fetcher.take(8, 0)[0]
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.fatal()
    assert fetcher.over
    assert error.code() == code
    assert error.str().startswith(told)
    assert remedy in error.str()


@pytest.mark.parametrize(
    ("failure", "heard"),
    [
        (None, True),
        (KafkaError._TIMED_OUT, False),
        (KafkaError._TIMED_OUT_QUEUE, False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
    ],
)
def test_a_coordinator_that_refuses_is_heard_and_one_that_says_nothing_is_not(
    bench: Bench, failure: int | None, heard: bool
) -> None:
    bench.native.failure = failure
    assert bench.fetcher.hears("t", 0.1) is heard
