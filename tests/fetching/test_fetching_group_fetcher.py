"""KIP-848's fetcher: what a Ctrl-C swallows is fetched again, and not committed before.

And whatever strikes when: what the group gives is delivered from where its start is, once that is
known, and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_STORED, KafkaError, KafkaException, Message
from fetching_stand_in import NATIVE, InterruptionError, StandIn, Striking
from fetching_support import in_turn, offsets, record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from striking import striking

from kafka_coop.fetching import callbacks, group_fetcher, group_partitions
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.fetching.group_metadata import encode_group_metadata
from kafka_coop.fetching.native import plain_partitions
from kafka_coop.protocol.error_codes import ErrorCode
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
        strikes: A Ctrl-C does, upon the next callback, before its first line.
        ran_from: Where partitions began that were not paused before they were assigned.
        inside: It is in a callback, and so may not be asked what it would not come back from.
        credentials: What it logs in with.
        closed: It is; whoever asks it anything from then on, or is told of anything, fails.
        out: It is no member any more, for good.
        uncommittable: Partitions that the coordinator takes no offset of.
        unasked: Topics of which it tells nothing.
        committing: The partitions of each commit.
        stored: What it has taken.
        made: All of them.
    """

    made: ClassVar[list[Group]] = []

    def __init__(self, config: dict[str, object]) -> None:
        super().__init__(config)
        self.errors: list[Message] = []
        self.failure: int | None = None
        self.queue: list[tuple[str, list[int]]] = []
        self.strikes = False
        self.ran_from: dict[int, int] = {}
        self.told: dict[str, Callable[[Any, NATIVE], None]] = {}
        self.acted = False
        self.closed = False
        self.inside = False
        name = config.get("sasl.username", "first")
        self.credentials = (str(name), str(config.get("sasl.password", "")))
        self.out = False
        self.uncommittable: Partitions = NO_PARTITIONS
        self.unasked: frozenset[str] = frozenset()
        self.committing: list[Partitions] = []
        self.stored: dict[TopicPartition, confluent_kafka.TopicPartition] = {}
        self.made.append(self)

    def commit(self, *, offsets: NATIVE, asynchronous: bool) -> NATIVE:
        """As confluent's: what is wrong with one is all that is told."""
        assert not asynchronous
        self.committing.append(plain_partitions(offsets))
        if self.failure is not None:
            raise KafkaException(KafkaError(self.failure))
        each = {TopicPartition(p.topic, p.partition): p for p in offsets}
        self.stored |= {of: p for of, p in each.items() if of not in self.uncommittable}
        if self.committing[-1] & self.uncommittable:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return offsets

    def fail_for_good(self) -> None:
        """Drops what is assigned, tells no callback, and has a message that says why."""
        self.upcoming.clear()
        self.out = True
        code: int = KafkaError._FATAL
        self.errors = [Message(error=KafkaError(code, "Fatal error: it is over"))]

    def subscribe(self, _topics: list[str], **told: Callable[[Any, NATIVE], None]) -> None:
        self._require_membership()
        self.told = told

    def unsubscribe(self) -> None:
        """Before what is revoked comes what was assigned and not told of yet."""
        self._require_membership()
        pending = [p for how, given in self.queue if how == "on_assign" for p in given]
        self.queue.append(("on_revoke", [*self.upcoming, *pending]))

    def _require_membership(self) -> None:
        if self.out:
            raise KafkaException(KafkaError(KafkaError._FATAL))

    def close(self) -> None:
        self.closed = True
        assert not self.upcoming
        assert not self.queue

    def consumer_group_metadata(self) -> bytes:
        assert not self.closed, "nobody answers"
        return encode_group_metadata(IDENTITY)

    def _tell(self) -> None:
        """confluent's own code does what a callback has not, unless that has done anything.

        A revocation is followed by an assignment of what comes in its place, which may be nothing.
        An exception ends the poll only when there is nothing more to tell.
        """
        struck: BaseException | None = None
        while self.queue:
            how, given = self.queue.pop(0)
            native = [confluent_kafka.TopicPartition("t", p, OFFSET_STORED) for p in given]
            strikes, self.strikes = self.strikes, False
            self.inside, self.acted = True, False
            try:
                if not strikes:
                    self.told[how](self, native)
            except InterruptionError as error:
                struck = error
            self.inside = False
            if not self.acted and how == "on_assign":
                self.incremental_assign(native)
            elif not self.acted:
                self.incremental_unassign(native)
            if how == "on_revoke":
                self.queue.append(("on_assign", []))
            struck = InterruptionError() if strikes else struck
        if struck is not None:
            raise struck

    def committed(self, partitions: NATIVE, _timeout: float) -> NATIVE:
        if self.failure is not None:
            raise KafkaException(KafkaError(self.failure))
        if self.unasked & {p.topic for p in partitions}:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        before = {0: 10}
        return [
            self.stored.get(TopicPartition(p.topic, p.partition))
            or confluent_kafka.TopicPartition(p.topic, p.partition, before.get(p.partition, -1001))
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
        self.acted = True
        self.ran_from |= {p: at for p, at in where.items() if p not in self.paused}
        super().incremental_assign(partitions)
        for of, offset in where.items():
            if offset == OFFSET_STORED:
                self.upcoming[of] = 10 if of == 0 else 0

    def incremental_unassign(self, partitions: NATIVE) -> None:
        self.acted = True
        super().incremental_unassign(partitions)

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
        self.fetcher = GroupFetcher({})
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
    fetcher = bench.fetcher
    fetcher.add(STARTS)
    bench.swallow()
    assert fetcher.positions(BOTH) == STARTS
    assert offsets(fetcher.take(8, 0))[B] == [50, 51, 52, 53]


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
    """A user, who asks who it is whenever it is told of something; told twice, it does the rest.

    Attributes:
        of: What it was told of, in order.
        delivered: How far each partition had come when it was revoked.
        owned: What it was told that it has.
        raises: In on_revoke.
        keeps: What it has assigned by hand meanwhile.
        starts: Where partitions start, as far as it knows in on_assign.
    """

    def __init__(self, fetcher: GroupFetcher) -> None:
        self.starts = {A: OffsetAndMetadata(offset=10), B: OffsetAndMetadata(offset=0)}
        self.of: list[tuple[str, Partitions]] = []
        self.delivered: dict[TopicPartition, int] = {}
        self.owned = NO_PARTITIONS
        self.raises: BaseException | None = None
        self.keeps = NO_PARTITIONS
        self._fetcher = fetcher
        fetcher.subscribe(["t"], assigned=self._assigned, revoked=self._revoked, lost=self._lost)

    def _assigned(self, given: Partitions) -> None:
        if added := given - self.owned:
            self.owned |= added
            self.of.append(("assigned", added))
        self._begin()

    def _begin(self) -> None:
        known = (self.owned - self._fetcher.assignment()) & Partitions.of(self.starts)
        self._fetcher.add({of: self.starts[of] for of in known})

    def _lost(self, gone: Partitions) -> None:
        if lost := gone & self.owned:
            self.owned -= lost
            self.of.append(("lost", lost))
        self._fetcher.remove(gone & self._fetcher.assignment())

    def _revoked(self, gone: Partitions) -> None:
        if revoked := gone & self.owned:
            self.delivered |= {of: at.offset for of, at in self._fetcher.positions(gone).items()}
            self.owned -= revoked
            self.of.append(("revoked", revoked))
        self._fetcher.remove((gone - self.keeps) & self._fetcher.assignment())
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
def test_who_is_out_for_good_hears_that_all_is_lost_and_then_why(bench: Bench, how: str) -> None:
    """librdkafka tells no callback: a user would go on as the owner of what others have."""
    told = assigned(bench, A, B)
    bench.native.fail_for_good()
    message = bench.fetcher.next(0) if how == "next" else bench.fetcher.take(8, 0)[0]
    assert told.of == [("assigned", BOTH), ("lost", BOTH)]
    assert is_the_verdict(message)
    assert not bench.fetcher.assignment()
    assert bench.fetcher.positions(BOTH) == {}
    bench.native.errors = []
    assert bench.fetcher.next(0) is None
    assert told.of == [("assigned", BOTH), ("lost", BOTH)]


def is_the_verdict(message: Message | None) -> bool:
    error = None if message is None else message.error()
    return error is not None and error.fatal()


def test_what_came_before_the_end_is_delivered_before_it(bench: Bench) -> None:
    told = Told(bench.fetcher)
    bench.native.queue.append(("on_assign", [0]))
    bench.fetcher.next(0)
    came = bench.native.consume(8, 0)
    bench.native.fail_for_good()
    bench.native.errors = [*came, *bench.native.errors]
    assert bench.fetcher.take(9, 0) == came
    assert told.of == [("assigned", JUST_A)]
    assert is_the_verdict(bench.fetcher.take(9, 0)[0])
    assert told.of == [("assigned", JUST_A), ("lost", JUST_A)]


def test_what_on_lost_raises_keeps_the_reason_for_the_next_poll(bench: Bench) -> None:
    def fail(_: Partitions) -> None:
        raise InterruptionError

    bench.fetcher.subscribe(["t"], assigned=lambda _: None, revoked=_never, lost=fail)
    bench.native.queue.append(("on_assign", [0]))
    bench.fetcher.next(0)
    bench.native.fail_for_good()
    with pytest.raises(InterruptionError):
        bench.fetcher.next(0)
    bench.native.errors = []
    bench.fetcher._taken_untold = NO_PARTITIONS  # who hears it again, says the same again
    assert is_the_verdict(bench.fetcher.next(0))


@pytest.mark.parametrize("knows", [False, True])
def test_who_closes_when_it_is_out_for_good_hears_that_all_is_lost(
    bench: Bench, knows: bool
) -> None:
    told = assigned(bench, A, B)
    bench.native.fail_for_good()
    if knows:
        bench.fetcher.next(0)
        bench.native.errors = []
    bench.fetcher.leave(lambda: bool(told.owned))
    assert told.of == [("assigned", BOTH), ("lost", BOTH)]
    assert bench.native.closed


def test_so_does_who_has_lost_the_reason_to_a_ctrl_c(bench: Bench) -> None:
    told = assigned(bench, A, B)
    bench.native.fail_for_good()
    bench.native.errors = []
    bench.fetcher.leave(lambda: bool(told.owned))
    assert told.of == [("assigned", BOTH), ("lost", BOTH)]
    assert bench.fetcher.over


def test_who_is_out_for_good_has_nothing_to_unsubscribe_from(bench: Bench) -> None:
    bench.native.fail_for_good()
    bench.fetcher.unsubscribe()
    with pytest.raises(KafkaException, match="make another one"):
        Told(bench.fetcher)


def test_patterns_that_librdkafka_refuses_are_named_and_all_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(bench.fetcher)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    with monkeypatch.context() as refusing:
        refusing.setattr(bench.native, "subscribe", refuse)
        with pytest.raises(KafkaException, match=r"correct '\^\(\?!a\)', or list the topics"):
            bench.fetcher.subscribe(["t", "^(?!a)"], assigned=_never, revoked=_never, lost=_never)
    bench.native.queue.append(("on_assign", [0]))
    bench.fetcher.next(0)
    bench.native.fail_for_good()
    bench.fetcher.next(0)
    assert told.of == [("assigned", JUST_A), ("lost", JUST_A)], "those who were told before"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bad=st.sets(st.integers(0, 20)), count=st.integers(1, 20), unasked=st.booleans())
def test_of_a_commit_each_partition_has_its_own_result(
    bench: Bench, bad: set[int], count: int, unasked: bool
) -> None:
    """Of a commit that fails in part, confluent-kafka tells no more than that it fails."""
    each = [TopicPartition("tu"[partition % 2], partition) for partition in range(count)]
    native = bench.native
    native.uncommittable = Partitions.of(of for of in each if of.partition in bad)
    native.unasked = frozenset("u" if unasked else "")
    native.committing.clear()
    native.stored.clear()
    offsets = {of: OffsetAndMetadata(offset=30, metadata="ours") for of in each}
    results = bench.fetcher.commit(offsets)
    failed = native.uncommittable | Partitions.of(
        of for of in each if native.uncommittable and count > 1 and of.topic in native.unasked
    )
    unknown = ErrorCode.unknown_topic_or_partition
    assert results == {of: unknown if of in failed else ErrorCode.none for of in each}
    assert native.committing == [Partitions.of(each)]


@pytest.mark.parametrize("before", [OffsetAndMetadata(offset=3), OffsetAndMetadata(offset=4)])
def test_what_was_committed_before_is_no_sign_of_a_commit(
    bench: Bench, before: OffsetAndMetadata
) -> None:
    """One with the same offset, and without what is too large for the brokers, neither."""
    bench.fetcher.commit({B: before})
    bench.native.uncommittable = Partitions.of([B])
    wanted = OffsetAndMetadata(offset=4, metadata="too large")
    results = bench.fetcher.commit({A: wanted, B: wanted})
    assert results == {A: ErrorCode.none, B: ErrorCode.unknown_topic_or_partition}


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (KafkaError.STALE_MEMBER_EPOCH, ErrorCode.illegal_generation),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, ErrorCode.group_authorization_failed),
        (KafkaError._TIMED_OUT, ErrorCode.request_timed_out),
        (KafkaError._FATAL, ErrorCode.unknown_member_id),
    ],
)
def test_a_commit_that_is_refused_as_a_whole_is_made_once(
    bench: Bench, failure: int, code: ErrorCode
) -> None:
    bench.native.failure = failure
    assert bench.fetcher.commit(STARTS) == {A: code, B: code}
    assert bench.native.committing == [BOTH]


@pytest.mark.parametrize("how", ["next", "take"])
@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (KafkaError.GROUP_ID_NOT_FOUND, "Stop the classic members first"),
        (KafkaError.UNRELEASED_INSTANCE_ID, "group.consumer.session.timeout.ms"),
        (KafkaError.UNSUPPORTED_ASSIGNOR, "group.remote.assignor"),
        (KafkaError.UNKNOWN, "when the group is Stable"),
        (KafkaError.GROUP_MAX_SIZE_REACHED, "group.consumer.max.size"),
        (KafkaError.INVALID_REGULAR_EXPRESSION, r"correct '^(a)\1', and start"),
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
    fetcher.subscribe(["t", r"^(a)\1"], assigned=_never, revoked=_never, lost=_never)
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
        (int(ErrorCode.not_coordinator), False),
        (int(ErrorCode.coordinator_not_available), False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
    ],
)
def test_a_coordinator_that_refuses_is_heard_and_one_that_says_nothing_is_not(
    bench: Bench, failure: int | None, heard: bool
) -> None:
    bench.native.failure = failure
    assert bench.fetcher.hears("t", 0.1) is heard


# --- what the group gave -------------------------------------------------------------------------


def assigned(bench: Bench, *known: TopicPartition) -> Told:
    """Both partitions are given, and where these start is known by then."""
    told = Told(bench.fetcher)
    told.starts = {of: STARTS[of] for of in known}
    bench.native.queue.append(("on_assign", [0, 1]))
    assert bench.fetcher.next(0) is None
    return told


def answering_the_group(native: Group) -> None:
    """From here on librdkafka would take it for an answer to the group if anything is changed."""

    def refuse(partitions: NATIVE) -> None:
        pytest.fail(f"{partitions} are changed")

    native.incremental_assign = refuse  # type: ignore[method-assign]
    native.incremental_unassign = refuse  # type: ignore[method-assign]


def test_what_has_no_start_yet_stands_still(bench: Bench) -> None:
    assigned(bench, A)
    assert bench.native.upcoming.keys() == {0, 1}, "librdkafka has them all"
    assert bench.native.ran_from == {0: 0}, "nor is anything fetched of it"
    assert Partitions.of(offsets(bench.fetcher.take(8, 0))) == JUST_A
    assert bench.fetcher.assignment() == JUST_A
    answering_the_group(bench.native)
    bench.fetcher.add({B: STARTS[B]})
    assert bench.fetcher.positions(BOTH)[B] == STARTS[B]
    assert offsets(bench.fetcher.take(8, 0))[B][0] == 50


def test_it_begins_with_a_later_poll_where_librdkafka_has_not_started_it(bench: Bench) -> None:
    assigned(bench, A)
    bench.native.not_started = True
    bench.fetcher.add({B: STARTS[B]})
    assert B not in offsets(bench.fetcher.take(8, 0))
    assert bench.fetcher.positions(BOTH)[B] == STARTS[B]
    bench.fetcher.seek(B, 60)
    bench.native.not_started = False
    assert offsets(bench.fetcher.take(8, 0))[B][0] == 60


def test_a_seek_that_librdkafka_can_t_do_yet_delivers_nothing_from_before(bench: Bench) -> None:
    assigned(bench, A, B)
    bench.fetcher.take(8, 0)
    bench.native.not_started = True
    bench.fetcher.seek(B, 60)
    assert bench.fetcher.positions(BOTH)[B].offset == 60
    assert B not in offsets(bench.fetcher.take(8, 0))
    bench.native.not_started = False
    assert offsets(bench.fetcher.take(8, 0))[B][0] == 60


def test_what_stands_still_is_revoked_as_any_other_and_may_come_again(bench: Bench) -> None:
    told = assigned(bench, A)
    bench.native.queue.append(("on_revoke", [0, 1]))
    bench.native.log[0].clear()
    bench.fetcher.next(0)
    assert told.of == [("assigned", BOTH), ("revoked", BOTH)]
    assert not bench.native.upcoming
    assert not bench.native.paused, "the flag would outlive it"
    told.starts = STARTS
    bench.native.queue.append(("on_assign", [1]))
    bench.fetcher.next(0)
    assert offsets(bench.fetcher.take(8, 0))[B][0] == 50


def test_what_is_let_go_of_is_librdkafkas_until_the_group_takes_it(bench: Bench) -> None:
    assigned(bench, A, B)
    bench.fetcher.pause(JUST_A)
    answering_the_group(bench.native)
    bench.fetcher.remove(JUST_A)
    assert bench.fetcher.assignment() == Partitions.of([B])
    assert A not in offsets(bench.fetcher.take(8, 0))
    bench.fetcher.add({A: OffsetAndMetadata(offset=5)})
    assert offsets(bench.fetcher.take(8, 0))[A][0] == 5


def test_pauses_outlast_the_search_for_a_start(bench: Bench) -> None:
    assigned(bench, A)
    bench.native.not_started = True
    bench.fetcher.add({B: STARTS[B]})
    bench.fetcher.pause(BOTH)
    bench.fetcher.resume(BOTH)
    assert Partitions.of(offsets(bench.fetcher.take(8, 0))) == JUST_A, "it is not resumed too early"
    bench.fetcher.pause(Partitions.of([B]))
    bench.native.not_started = False
    assert Partitions.of(offsets(bench.fetcher.take(8, 0))) == JUST_A
    bench.fetcher.resume(BOTH)
    assert Partitions.of(offsets(bench.fetcher.take(8, 0))) == BOTH


def test_a_start_that_is_none_is_refused_and_nothing_is_changed(bench: Bench) -> None:
    assigned(bench, A)
    with pytest.raises(KafkaException, match="no offset to start from"):
        bench.fetcher.add({B: OffsetAndMetadata(offset=OFFSET_STORED)})
    with pytest.raises(KafkaException, match="fetched already"):
        bench.fetcher.add(STARTS)
    assert bench.fetcher.assignment() == JUST_A
    assert Partitions.of(offsets(bench.fetcher.take(8, 0))) == JUST_A


def test_what_librdkafka_refuses_is_not_fetched(bench: Bench) -> None:
    def refuse(partitions: NATIVE) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, f"{partitions}"))

    bench.native.incremental_assign, assign = refuse, bench.native.incremental_assign  # type: ignore[method-assign]
    with pytest.raises(KafkaException):
        bench.fetcher.add(STARTS)
    assert not bench.fetcher.assignment()
    bench.native.incremental_assign = assign  # type: ignore[method-assign]
    bench.fetcher.add({B: STARTS[B]})
    assert offsets(bench.fetcher.take(8, 0)).keys() == {B}


def test_of_what_is_not_fetched_nothing_can_be_changed(bench: Bench) -> None:
    assigned(bench, A)
    with pytest.raises(KafkaException, match="not fetched"):
        bench.fetcher.seek(B, 3)
    with pytest.raises(KafkaException, match="not fetched"):
        bench.fetcher.remove(BOTH)
    assert bench.fetcher.assignment() == JUST_A


def test_a_ctrl_c_upon_an_assignment_keeps_nobody_from_hearing_of_it(bench: Bench) -> None:
    """confluent's own code assigns, and librdkafka finds its own starts."""
    told = Told(bench.fetcher)
    told.starts = STARTS
    bench.native.queue.append(("on_assign", [0, 1]))
    bench.native.strikes = True
    with pytest.raises(InterruptionError):
        bench.fetcher.next(0)
    assert not told.of
    assert bench.native.upcoming == {0: 10, 1: 0}
    answering_the_group(bench.native)
    got = bench.fetcher.take(8, 0)
    assert told.of == [("assigned", BOTH)]
    got += bench.fetcher.take(8, 0)
    assert offsets(got) == {A: list(range(8)), B: list(range(50, 58))}
    assert told.of == [("assigned", BOTH)]


@pytest.mark.parametrize("then", ["on_assign", "on_revoke"])
def test_nor_does_what_librdkafka_tells_of_next(bench: Bench, then: str) -> None:
    """In the same poll, which ends only then."""
    told = Told(bench.fetcher)
    told.starts = STARTS
    if then == "on_revoke":
        bench.native.queue.append(("on_assign", [1]))
        bench.fetcher.next(0)
        bench.native.log[1].clear()
    bench.native.queue += [("on_assign", [0]), (then, [1])]
    bench.native.strikes = True
    with pytest.raises(InterruptionError):
        bench.fetcher.next(0)
    assert told.of[-1][1] == Partitions.of([B])
    assert offsets(bench.fetcher.take(8, 0))[A][0] == 0
    assert told.of[-1] == ("assigned", JUST_A)


@pytest.mark.parametrize("known", [[A, B], []], ids=["known", "not known"])
def test_a_ctrl_c_upon_a_revocation_neither(bench: Bench, known: list[TopicPartition]) -> None:
    """Somebody may own it by now."""
    told = assigned(bench, *known)
    bench.fetcher.pause(JUST_A)
    for log in bench.native.log.values():
        log.clear()
    bench.native.queue.append(("on_revoke", [0]))
    bench.native.strikes = True
    with pytest.raises(InterruptionError):
        bench.fetcher.next(0)
    assert A not in bench.fetcher.assignment()
    bench.fetcher.take(8, 0)
    assert told.of == [("assigned", BOTH), ("lost", JUST_A)]
    bench.native.log[0] = [record(0, offset, epoch=7) for offset in range(9)]
    told.starts = STARTS
    bench.native.queue.append(("on_assign", [0]))
    bench.fetcher.next(0)
    assert offsets(bench.fetcher.take(8, 0))[A][0] == 0


def test_who_closes_then_is_told_of_nothing_more(bench: Bench) -> None:
    """`owns` says so, too: what it was not told of is not to be given up by it."""
    told = Told(bench.fetcher)
    bench.native.queue.append(("on_assign", [0]))
    bench.native.strikes = True
    with pytest.raises(InterruptionError):
        bench.fetcher.next(0)
    bench.fetcher.leave(lambda: bool(told.owned))
    assert bench.native.closed
    assert not bench.native.upcoming


class StrikingGroup(Striking):
    kind = Group


KNOWN = pytest.mark.parametrize("known", [[], [A], [A, B]], ids=["none", "one", "both"])


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> GroupFetcher:
    monkeypatch.setattr(confluent_kafka, "Consumer", StrikingGroup)
    return GroupFetcher({})


@KNOWN
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, 14))
def test_wherever_it_strikes_what_is_given_is_delivered_from_its_start(
    struck: GroupFetcher, known: list[TopicPartition], call: int, late: bool
) -> None:
    told = Told(struck)
    native = cast(StrikingGroup, struck._consumer)
    native.calls_left, native.too_late = call, late
    is_given_and_taken(struck, told, known)


OURS = [group_fetcher.__file__, group_partitions.__file__, callbacks.__file__]


@KNOWN
@pytest.mark.parametrize("place", range(1, 150))
def test_so_it_is_wherever_a_handler_may_run(
    struck: GroupFetcher, known: list[TopicPartition], place: int
) -> None:
    told = Told(struck)
    with striking(place, OURS, InterruptionError):
        is_given_and_taken(struck, told, known)


def is_given_and_taken(fetcher: GroupFetcher, told: Told, known: list[TopicPartition]) -> None:
    native = cast(StrikingGroup, fetcher._consumer).inner
    told.starts = {of: STARTS[of] for of in known}
    native.queue.append(("on_assign", [0, 1]))
    got: list[Message] = []

    def poll() -> None:
        with suppress(InterruptionError):
            fetcher.next(0)

    def take() -> None:
        with suppress(InterruptionError):
            got.extend(fetcher.take(8, 0))

    while native.queue:
        poll()
    for _ in range(3):
        take()
    assert told.of == [("assigned", BOTH)]
    assert not Partitions.of(offsets(got)) - Partitions.of(known)
    while unknown := BOTH - fetcher._partitions.fetched:
        with suppress(InterruptionError):
            fetcher.add({of: STARTS[of] for of in unknown})
    for _ in range(4):
        take()
    in_turn(got, {of: at.offset for of, at in STARTS.items()})
    assert Partitions.of(offsets(got)) == BOTH
    native.queue.append(("on_revoke", [0, 1]))
    for log in native.log.values():
        log.clear()
    while native.queue:
        poll()
    poll()
    assert not native.upcoming
    assert not native.paused
    assert told.of[1:] in ([("revoked", BOTH)], [("lost", BOTH)])


def test_what_a_user_assigns_by_hand_stays_when_the_group_takes_it(bench: Bench) -> None:
    """It has unsubscribed, and not polled since."""
    told = assigned(bench, A)
    told.owned -= BOTH  # it holds neither for the group's any more
    by_hand = {A: OffsetAndMetadata(offset=30), B: STARTS[B]}
    told.starts = by_hand
    told.keeps = BOTH
    bench.fetcher.remove(JUST_A)
    bench.fetcher.add(by_hand)
    bench.fetcher.pause(JUST_A)
    for log in bench.native.log.values():
        log.clear()
    bench.native.queue.append(("on_revoke", [0, 1]))
    bench.fetcher.next(0)
    bench.native.log |= {p: [record(p, o, epoch=7) for o in range(100)] for p in (0, 1)}
    assert offsets(bench.fetcher.take(8, 0)) == {B: [50, 51, 52, 53]}, "it is paused still"
    bench.fetcher.resume(JUST_A)
    assert offsets(bench.fetcher.take(8, 0))[A] == [30, 31, 32, 33]
