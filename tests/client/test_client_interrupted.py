"""What a Ctrl-C, a signal handler or another thread's close() interrupts: nothing stays locked.

Nor is anything committed that nobody was given.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Message, TopicPartition
from fetching_stand_in import StandIn
from prometheus_client import CollectorRegistry
from striking import calling_at, wherever_it_strikes

from kafka_coop import CoopConsumer
from kafka_coop.backend.mailbox import StartsFound
from kafka_coop.backend.promises import Promise
from kafka_coop.membership.effects import CallAssigned, Own, Step
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Generation, Partitions
from kafka_coop.types import TopicPartition as Partition

CONFIG = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
PATIENCE = 10.0
A_WHILE = 0.2


class Records(StandIn):
    """Ten records, and then none: `dry` is set when it is asked for more."""

    def __init__(self, _config: dict[str, object]) -> None:
        super().__init__({})
        self.log = {0: [Message(topic="t", partition=0, offset=offset) for offset in range(10)]}
        self.dry = threading.Event()

    def consume(self, n: int, timeout: float) -> list[Message]:
        found = super().consume(n, timeout)
        if not found:
            self.dry.set()
        return found

    def close(self) -> None:
        pass


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Records]:
    made: list[Records] = []

    def make(config: dict[str, object], **_: Any) -> Records:
        made.append(Records(config))
        return made[-1]

    monkeypatch.setattr(confluent_kafka, "Consumer", make)
    return made


def consumer(**config: Any) -> CoopConsumer:
    given = {key.replace("_", "."): value for key, value in config.items()}
    return CoopConsumer({**CONFIG, **given}, registry=CollectorRegistry())


def is_closed(one: CoopConsumer) -> bool:
    thread = one._backend._thread  # type: ignore[attr-defined]  # the classic one
    thread.join(PATIENCE)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        one.assignment()
    return not thread.is_alive()


def is_free(one: CoopConsumer) -> bool:
    """Whether another thread gets the lock."""
    asking = threading.Thread(target=lambda: one.position([]), daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return not asking.is_alive()


def test_what_another_threads_close_takes_from_a_consume_is_not_committed(
    records: list[Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed before it was put back, and nobody was given it."""
    one = consumer()
    committed: list[int] = []
    closing = threading.Event()

    def commit(
        offsets: Mapping[Partition, OffsetAndMetadata], _: timedelta
    ) -> Promise[dict[Partition, ErrorCode]]:
        committed.extend(at.offset for at in offsets.values())
        closing.set()
        promise: Promise[dict[Partition, ErrorCode]] = Promise()
        promise.set_result(dict.fromkeys(offsets, ErrorCode.none))
        return promise

    def put_back(messages: list[Message]) -> None:
        closing.wait(A_WHILE)  # for a commit that comes too soon
        back(messages)

    back = one._polling.put_back
    monkeypatch.setattr(one._polling, "put_back", put_back)
    monkeypatch.setattr(one._backend, "commit", commit)
    one.assign([TopicPartition("t", 0, 0)])
    raised: list[str] = []

    def consume() -> None:
        try:
            one.consume(1000, PATIENCE)
        except RuntimeError as error:
            raised.append(str(error))

    reading = threading.Thread(target=consume)
    reading.start()
    assert records[0].dry.wait(PATIENCE)
    one.close()
    reading.join(PATIENCE)
    assert raised == ["Consumer closed"]
    assert not any(committed), "records of which nobody was given one"


def test_polls_go_on_wherever_a_ctrl_c_strikes_in_one() -> None:
    """A lock that it left taken had every later poll refused, as if inside a callback."""
    with consumer() as one:
        for _ in wherever_it_strikes(lambda: one.poll(0)):
            assert one.poll(0) is None
            assert not one._lock.held
        assert is_free(one)


@pytest.mark.parametrize("where", ["__enter__", "__exit__"])
@pytest.mark.parametrize("event", ["call", "return"])
def test_close_closes_though_a_ctrl_c_left_a_lock_taken(where: str, event: str) -> None:
    one = consumer()
    with pytest.raises(KeyboardInterrupt), striking_at("turns.py", where, event):
        one.poll(0)
    one.close()
    assert is_closed(one)


@pytest.mark.parametrize(
    ("file", "where"),
    [("consumer.py", "_leave_in_turn"), ("turns.py", "__enter__"), ("consumer.py", "_end")],
)
def test_a_second_close_does_what_a_ctrl_c_kept_the_first_from(file: str, where: str) -> None:
    one = consumer()
    with pytest.raises(KeyboardInterrupt), striking_at(file, where, "call"):
        one.close()
    assert one.assignment() == [], "nothing was ended before the group was left"
    one.close()
    assert is_closed(one)


def test_a_close_that_a_callback_asked_for_is_its_own_threads() -> None:
    """Another thread's poll took it, and waited beyond its time for what it was to close."""
    one = consumer()
    asked, go_on = threading.Event(), threading.Event()

    def on_assign(*_: object) -> None:
        one.close()
        asked.set()
        go_on.wait(PATIENCE)

    def poll() -> None:
        with pytest.raises(RuntimeError, match="Consumer closed"):
            one.poll(PATIENCE)

    one.subscribe(["t"], on_assign=on_assign)
    one._mailbox.put(step())
    first = threading.Thread(target=poll)
    first.start()
    assert asked.wait(PATIENCE)
    second = threading.Thread(target=lambda: one.poll(0.01), daemon=True)
    second.start()
    second.join(PATIENCE)
    in_time = not second.is_alive()
    go_on.set()
    first.join(PATIENCE)
    assert in_time
    assert is_closed(one)


def test_a_signal_handlers_close_at_the_very_end_of_a_poll_closes() -> None:
    """It finds the poll in its turn, and leaves it to that, which has looked for the last time."""
    one = consumer()
    with (
        pytest.raises(RuntimeError, match="Consumer closed"),
        calling_at("turns.py", "give_back", "call", one.close),
    ):
        one.poll(0)
    assert is_closed(one)


def test_a_callback_is_inside_whatever_was_interrupted(records: list[Records]) -> None:
    """Who asks in there is refused still: the lock is somebody's."""
    told: list[str] = []

    def on_assign(one: CoopConsumer, _: object) -> None:
        try:
            one.poll(0)
        except RuntimeError as error:
            told.append(str(error))

    with consumer() as one:
        one.subscribe(["t"], on_assign=on_assign)
        one._mailbox.put(step())
        one.poll(0)
        assert len(told) == 1
        assert "inside a callback" in told[0]
        assert len(records) == 1


def test_what_the_group_gave_before_is_where_the_user_who_took_it_by_hand_says(
    records: list[Records],
) -> None:
    """unsubscribe(), then assign(), while the step of before is still to be carried out."""
    with consumer(enable_auto_commit=False) as one:
        here = {Partition("t", 0): OffsetAndMetadata(offset=2)}
        one._mailbox.put(StartsFound(generation=Generation(5), committed=here))
        one._mailbox.put(step())
        one.unsubscribe()
        one.assign([TopicPartition("t", 0, 7)])
        first = one.poll(1)
        assert first is not None
        assert first.offset() == 7
        assert records[0].upcoming


def test_an_error_that_another_thread_has_dropped_is_none() -> None:
    with consumer() as one:
        assert not one._polling._take_an_error([])


def test_a_lock_that_nobody_is_to_give_back_is_given_back() -> None:
    with consumer() as one:
        one._lock.raw.acquire()
        assert not one._is_inside, "nobody is"
        assert not one._lock.mine, "it is given back"


def step() -> Step:
    partitions = Partitions.of([Partition("t", 0)])
    own = Own(partitions=partitions, generation=Generation(5))
    return Step(step_id=999, actions=(own, CallAssigned(partitions=partitions)))


def striking_at(file: str, function: str, event: str) -> AbstractContextManager[None]:
    def strike() -> None:
        raise KeyboardInterrupt

    return calling_at(file, function, event, strike)
