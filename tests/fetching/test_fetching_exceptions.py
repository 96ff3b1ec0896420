"""What callbacks and signal handlers raise surfaces, and costs no record."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from fetching_support import PATIENCE, SLICE, Topic, fetcher_of, offsets, until
from striking import handled

from kafka_coop.fetching.buffer import RecordBuffer
from kafka_coop.fetching.callbacks import CallbackGuard
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.fetching.newcomers import Newcomers
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class InterruptionError(Exception):
    """Raised by callbacks and signal handlers here."""


def next_one(fetcher: Fetcher) -> list[Message]:
    message = fetcher.next(SLICE)
    return [] if message is None else [message]


def take_some(fetcher: Fetcher) -> list[Message]:
    return fetcher.take(300, SLICE)


def read_it_all_once(
    fetcher: Fetcher, topic: Topic, count: int, step: Callable[[], list[Message]]
) -> None:
    """Reads a topic from its beginning to its end, and checks that nothing else came."""
    messages: list[Message] = []
    everything = {of: list(range(count)) for of in topic.all}
    until(
        lambda: len(messages) >= count * topic.count,
        lambda: messages.extend(step()),
    )
    assert offsets(messages) == everything
    positions = fetcher.positions(topic.all).items()
    assert {of: at.offset for of, at in positions} == dict.fromkeys(topic.all, count)
    for of in topic.all:
        fetcher.seek(of, 0)


def test_a_token_that_can_not_be_had_is_no_fault_of_error_cb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As CPython tells of confluent-kafka, which calls error_cb with its own exception set."""
    refusal = KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED))

    def refused(*_: object) -> None:
        raise SystemError(
            "<function error_cb> returned a result with an exception set"
        ) from refusal

    monkeypatch.setattr(confluent_kafka, "Consumer", refused)
    for kind in (Fetcher, GroupFetcher):
        with pytest.raises(KafkaException) as raised:
            kind({})
        assert raised.value is refusal


BOTH_WAYS = pytest.mark.parametrize("deliver", [next_one, take_some])


class TestCallbacks:
    @BOTH_WAYS
    def test_what_one_raises_surfaces_and_no_record_is_lost_or_repeated(
        self, kafka: EmbeddedKafka, deliver: Callable[[Fetcher], list[Message]]
    ) -> None:
        raising = True
        raised = 0

        def stats_cb(_: str) -> None:
            if raising:
                raise InterruptionError

        def step() -> list[Message]:
            nonlocal raised
            try:
                return deliver(fetcher)
            except InterruptionError:
                raised += 1
                return []

        topic = Topic(kafka, partitions=3, records=3000)
        with fetcher_of(kafka, statistics_interval_ms=10, stats_cb=stats_cb) as fetcher:
            fetcher.add(topic.at(0))
            until(lambda: raised > 3, lambda: read_it_all_once(fetcher, topic, 3000, step))
            raising = False
            step()  # one may have come with the last records

    def test_one_may_ask_whatever_it_likes_of_the_brokers(self, kafka: EmbeddedKafka) -> None:
        """Inside librdkafka it would hang the process, or end it by an assertion in C."""
        answers: list[object] = []

        def stats_cb(_: str) -> None:
            of = confluent_kafka.TopicPartition(topic.name, 0, 0)
            answers.append(fetcher.list_topics(timeout=PATIENCE).topics[topic.name].error)
            answers.append(fetcher.get_watermark_offsets(of, PATIENCE))
            answers.append(fetcher.offsets_for_times([of], PATIENCE)[0].error)
            fetcher.pause(topic.all)
            fetcher.seek(topic[0], 2)
            fetcher.resume(topic.all)

        topic = Topic(kafka, records=5)
        with fetcher_of(kafka, statistics_interval_ms=20, stats_cb=stats_cb) as fetcher:
            fetcher.add(topic.at(0))
            until(lambda: len(answers) >= 30, lambda: fetcher.next(0.2))
        assert answers[:3] == [None, (0, 5), None]

    def test_librdkafka_runs_none_of_them_itself(self) -> None:
        calls: list[object] = []
        guard = CallbackGuard()
        given = guard.guarded({"stats_cb": calls.append, "group.id": "g"})
        given["stats_cb"]("{}")
        assert not calls
        guard.serve()
        guard.serve()
        assert calls == ["{}"]

    def test_errors_of_the_client_reach_error_cb(self) -> None:
        errors: list[confluent_kafka.KafkaError] = []
        config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
        fetcher = Fetcher({**config, "error_cb": errors.append})
        try:
            until(lambda: bool(errors), lambda: fetcher.next(SLICE))
        finally:
            fetcher.close()
        assert {error.code() for error in errors} <= {
            confluent_kafka.KafkaError._TRANSPORT,
            confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
        }

    def test_logs_go_to_the_logger(self, kafka: EmbeddedKafka) -> None:
        seen: list[logging.LogRecord] = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                seen.append(record)

        logger = logging.getLogger("test.librdkafka")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(Handler())
        with fetcher_of(kafka, logger=logger, debug="consumer") as fetcher:
            until(lambda: bool(seen), lambda: fetcher.next(SLICE))


_FETCHERS = {Fetcher.__module__, RecordBuffer.__module__, Newcomers.__module__}


class Interruptions:
    """Raises from a signal handler that strikes inside the fetcher while it is armed.

    Elsewhere the handler returns: what the test has in its hands is the test's to lose.
    """

    def __init__(self) -> None:
        self.armed = False
        self.struck = 0

    @contextmanager
    def coming(self) -> Iterator[None]:
        with handled(signal.SIGVTALRM, self._handle):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _handle(self, _: int, frame: FrameType | None) -> None:
        inside = frame is not None and frame.f_globals["__name__"] in _FETCHERS
        if self.armed and inside:
            self.struck += 1
            raise InterruptionError


@contextmanager
def ctrl_c_soon() -> Iterator[None]:
    """Inside of what expects it: on a busy machine it may strike before the block begins."""
    main = threading.get_ident()
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


class TestSignals:
    @pytest.mark.parametrize("newcomers", [(), (2, 3)], ids=["", "some have to catch up"])
    @BOTH_WAYS
    def test_a_raising_handler_costs_no_record(
        self,
        kafka: EmbeddedKafka,
        deliver: Callable[[Fetcher], list[Message]],
        newcomers: tuple[int, ...],
    ) -> None:
        def step() -> list[Message]:
            signals.armed = True
            try:
                return deliver(fetcher)
            except InterruptionError:
                return []
            finally:
                signals.armed = False

        topic, signals = Topic(kafka, partitions=4, records=5000), Interruptions()
        with fetcher_of(kafka) as fetcher, signals.coming():
            fetcher.add(topic.at(0))
            while signals.struck < 5:
                if newcomers:
                    fetcher.remove(topic.only(*newcomers))
                    fetcher.add(topic.at(0, *newcomers))
                read_it_all_once(fetcher, topic, 5000, step)

    def test_ctrl_c_ends_a_long_wait_of_next(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka) as fetcher, pytest.raises(KeyboardInterrupt), ctrl_c_soon():
            fetcher.next(PATIENCE)

    def test_ctrl_c_ends_a_wait_of_take_with_its_slice(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka) as fetcher, pytest.raises(KeyboardInterrupt), ctrl_c_soon():
            until(lambda: False, lambda: fetcher.take(2, SLICE))
