"""close() and poll() inside a poll of the same thread: from callbacks, from signal handlers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from integration_support import (
    PATIENCE,
    Member,
    UserError,
    in_background,
    members,
    publish,
    shared,
    unique,
    until,
)

from kafka_coop import CoopConsumer
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.testing import EmbeddedKafka

SIGNAL = signal.SIGUSR1

Call = Callable[[CoopConsumer], object]

BLOCKED = [
    pytest.param(lambda c: c.poll(), id="poll"),
    pytest.param(lambda c: c.poll(60), id="poll with a time-out"),
    pytest.param(lambda c: c.consume(10), id="consume"),
]


class Nowhere:
    bootstrap_servers = "127.0.0.1:9"

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        raise AssertionError


@contextmanager
def on_signal(handler: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(SIGNAL, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)


@contextmanager
def signal_when(ready: Callable[[], bool]) -> Iterator[None]:
    """Another thread signals this process as soon as it is so."""

    def watch() -> None:
        until(ready)
        os.kill(os.getpid(), SIGNAL)  # the main thread runs its handler

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        watching.join(PATIENCE)


@contextmanager
def signal_inside(monkeypatch: pytest.MonkeyPatch, method: str) -> Iterator[None]:
    """The next call of this method of the fetcher's is interrupted before it returns."""
    with monkeypatch.context() as patching:
        original = getattr(Fetcher, method)

        def interrupted(*arguments: Any) -> Any:
            patching.undo()
            answer = original(*arguments)
            signal.raise_signal(SIGNAL)
            return answer

        patching.setattr(Fetcher, method, interrupted)
        yield


def sent(kafka: EmbeddedKafka, api: str) -> int:
    return sum(1 for request in kafka.requests() if request.api == api)


def is_closed(consumer: CoopConsumer) -> bool:
    consumer.close()  # does nothing
    try:
        consumer.poll(0)
    except RuntimeError as error:
        return str(error) == "Consumer closed" and not consumer.health().stable
    return False


def joined(kafka: EmbeddedKafka, **config: Any) -> Member:
    topic = unique("t")
    kafka.create_topic(topic)
    member = Member(kafka, unique("g"), topic, **config)
    shared(topic, 1, member)
    return member


# --- from a signal handler -----------------------------------------------------------------------


@pytest.mark.parametrize("blocked", BLOCKED)
def test_a_signal_handler_closes_inside_a_blocked_call(
    embedded: EmbeddedKafka, blocked: Call
) -> None:
    """As drop-in code does: the call ends as that of a closed consumer, which has left."""
    member = joined(embedded)
    consumer = member.consumer
    embedded.track_requests()
    before = consumer._mailbox.last_poll
    with (
        on_signal(consumer.close),
        signal_when(lambda: consumer._mailbox.last_poll > before),
        pytest.raises(RuntimeError, match="Consumer closed"),
    ):
        blocked(consumer)
    assert [kind for kind, _ in member.told] == ["assigned", "revoked"]
    assert sent(embedded, "LeaveGroup") == 1
    assert is_closed(consumer)


def test_an_iteration_ends_by_itself(embedded: EmbeddedKafka) -> None:
    member = joined(embedded)
    publish(embedded, member.consumer.subscription()[0], 3, 0)
    read: list[Message] = []

    def note(message: Message) -> None:
        read.append(message)
        if len(read) == 3:
            signalling.start()

    signalling = threading.Thread(target=os.kill, args=(os.getpid(), SIGNAL))
    with on_signal(member.consumer.close):
        for message in member.consumer:
            note(message)
    signalling.join()
    assert len(read) == 3
    assert member.told[-1][0] == "revoked"
    assert is_closed(member.consumer)


def test_what_the_handler_raises_after_it_ends_the_poll(embedded: EmbeddedKafka) -> None:
    """``consumer.close(); sys.exit()``: it leaves the group all the same."""
    member = joined(embedded)
    consumer = member.consumer
    embedded.track_requests()
    before = consumer._mailbox.last_poll

    def close_and_exit() -> None:
        consumer.close()
        sys.exit(3)

    with (
        on_signal(close_and_exit),
        signal_when(lambda: consumer._mailbox.last_poll > before),
        pytest.raises(SystemExit, match="3"),
    ):
        consumer.poll()
    assert member.told[-1][0] == "revoked"
    assert sent(embedded, "LeaveGroup") == 1
    assert is_closed(consumer)


@pytest.mark.parametrize("error", [UserError("on_revoke"), None], ids=["it raises", "it does not"])
def test_the_poll_raises_what_on_revoke_does(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, error: UserError | None
) -> None:
    member = joined(embedded)

    def revoked(_: CoopConsumer, __: list[TopicPartition]) -> None:
        if error is not None:
            raise error

    member.hooks["revoked"] = revoked
    with (
        on_signal(member.consumer.close),
        signal_inside(monkeypatch, "next"),
        pytest.raises(UserError if error else RuntimeError, match=str(error or "Consumer closed")),
    ):
        member.consumer.poll(60)
    assert is_closed(member.consumer)


@pytest.mark.verdict
@pytest.mark.parametrize(
    ("method", "call"),
    [
        pytest.param("next", lambda c: c.poll(60), id="poll"),
        pytest.param("take", lambda c: c.consume(1, 60), id="consume"),
    ],
)
@pytest.mark.parametrize("calm", [True, False], ids=["on the short way", "on the long one"])
def test_the_record_that_was_on_its_way_is_the_successors(
    embedded: EmbeddedKafka,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    call: Call,
    calm: bool,
) -> None:
    """It is not delivered any more, and not committed as if it were."""
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic)
    publish(embedded, topic, 10, 0)
    member, successor = Member(embedded, group, topic), Member(embedded, group)
    consumer = member.consumer
    with members(member, successor):
        until(lambda: len(member.records) >= 4, member)
        while consumer._fetcher._buffer.index < 2:  # type: ignore[attr-defined]
            member.step()
        if calm:
            until(lambda: consumer._polling.calm_until > time.monotonic(), member)
        else:
            consumer._polling.disturb()
        read = len(member.records)
        with (
            on_signal(consumer.close),
            signal_inside(monkeypatch, method),
            pytest.raises(RuntimeError, match="Consumer closed"),
        ):
            call(consumer)
        assert is_closed(consumer)
        successor.subscribe(topic)
        until(lambda: len(successor.records) >= 10 - read, successor)
        assert successor.offsets == {(topic, 0): [*range(read, 10)]}


@pytest.mark.parametrize("then", ["poll", "close"])
def test_inside_another_method_it_is_left_to_the_next_poll_or_close(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """That method holds what a thread that polls may wait for."""
    member = joined(embedded)
    consumer = member.consumer
    with on_signal(consumer.close), signal_inside(monkeypatch, "list_topics"):
        assert consumer.list_topics(timeout=10).topics
    assert member.count("revoked") == 0
    if then == "poll":
        with pytest.raises(RuntimeError, match="Consumer closed"):
            consumer.poll(0)
    else:
        consumer.close()
    assert member.count("revoked") == 1
    assert is_closed(consumer)


def test_draining_inside_a_poll_hands_over_first(embedded: EmbeddedKafka) -> None:
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic, partitions=2)
    first, second = (Member(embedded, group, topic) for _ in range(2))
    consumer = first.consumer
    with members(first, second):
        shared(topic, 2, first, second)
        owned_at_the_end: list[int] = []
        leave = consumer._backend.begin_close

        def note() -> None:
            owned_at_the_end.append(len(first.owned))
            leave()

        consumer._backend.begin_close = note  # type: ignore[method-assign]
        with in_background(second.step):
            before = consumer._mailbox.last_poll
            with (
                on_signal(lambda: consumer.close(drain=timedelta(seconds=PATIENCE))),
                signal_when(lambda: consumer._mailbox.last_poll > before),
                pytest.raises(RuntimeError, match="Consumer closed"),
            ):
                consumer.poll()
        assert owned_at_the_end == [0]
        shared(topic, 2, second)


def test_closing_again_after_a_ctrl_c_in_its_wait(embedded: EmbeddedKafka) -> None:
    """It waited for another thread's poll, and had done nothing yet."""
    topic = unique("t")
    embedded.create_topic(topic)
    member = Member(embedded, unique("g"), topic)
    consumer = member.consumer
    entered, go_on = threading.Event(), threading.Event()

    def wait(_: CoopConsumer, __: list[TopicPartition]) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    def interrupt() -> None:
        raise KeyboardInterrupt

    member.hooks["assigned"] = wait
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            while True:
                consumer.poll(1)
        except RuntimeError as error:
            raised.append(error)

    polling = threading.Thread(target=poll)
    polling.start()
    assert entered.wait(PATIENCE)
    embedded.track_requests()
    with (
        on_signal(interrupt),
        signal_when(lambda: consumer._polling.closing),
        pytest.raises(KeyboardInterrupt),
    ):
        consumer.close()
    go_on.set()
    consumer.close()
    polling.join(PATIENCE)
    assert [str(error) for error in raised] == ["Consumer closed"]
    assert member.told[-1][0] == "revoked"
    assert sent(embedded, "LeaveGroup") == 1
    assert is_closed(consumer)


# --- from callbacks ------------------------------------------------------------------------------


def close_in(kafka: EmbeddedKafka, callback: str, call: Call) -> Member:
    """A member that will make this call in that callback, once it is polled."""
    topic = unique("t")
    kafka.create_topic(topic, partitions=2)
    config: dict[str, Any] = {"statistics_interval_ms": 50} if callback == "stats_cb" else {}
    made: list[CoopConsumer] = []
    if callback in ("on_commit", "stats_cb", "error_cb"):
        config[callback] = lambda *_: call(made[0]) if made else None
    where: Any = Nowhere() if callback == "error_cb" else kafka
    member = Member(where, unique("g"), topic, enable_auto_commit=False, **config)
    made.append(member.consumer)
    if callback in ("assigned", "revoked", "lost"):
        member.hooks[callback] = lambda consumer, _: call(consumer)  # type: ignore[index]
    if callback in ("on_commit", "revoked"):
        shared(topic, 2, member)
    if callback == "on_commit":
        member.consumer.commit(offsets=[TopicPartition(topic, 0, 1)])
    if callback == "revoked":
        member.consumer.unsubscribe()
    return member


CALLBACKS = ["assigned", "revoked", "on_commit", "stats_cb", "error_cb"]


@pytest.mark.parametrize("blocked", BLOCKED)
@pytest.mark.parametrize("callback", CALLBACKS)
def test_closing_inside_a_callback(embedded: EmbeddedKafka, callback: str, blocked: Call) -> None:
    """The callback goes on; the poll in which it runs leaves the group, and ends."""
    went_on: list[str] = []

    def close(consumer: CoopConsumer) -> None:
        consumer.close()
        went_on.append(callback)

    member = close_in(embedded, callback, close)
    embedded.track_requests()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        blocked(member.consumer)
    assert went_on
    assert member.balance() == ()
    assert not sent(embedded, "JoinGroup") or sent(embedded, "LeaveGroup") == 1
    assert is_closed(member.consumer)


@pytest.mark.parametrize("inner", BLOCKED)
@pytest.mark.parametrize("callback", CALLBACKS)
def test_polling_inside_a_callback_is_refused(
    embedded: EmbeddedKafka, callback: str, inner: Call
) -> None:
    refused: list[str] = []

    def poll(consumer: CoopConsumer) -> None:
        try:
            inner(consumer)
        except RuntimeError as error:
            refused.append(str(error))

    member = close_in(embedded, callback, poll)
    often = 5 if callback == "stats_cb" else 1  # on the short way of a poll, too
    with members(member):
        until(lambda: len(refused) >= often, member)
        assert all("inside a callback" in text for text in refused)


def test_closing_inside_a_callback_of_close_does_nothing(embedded: EmbeddedKafka) -> None:
    member = joined(embedded)
    member.hooks["revoked"] = lambda consumer, _: consumer.close()
    embedded.track_requests()
    member.consumer.close()
    assert member.count("revoked") == 1
    assert sent(embedded, "LeaveGroup") == 1
    assert is_closed(member.consumer)
