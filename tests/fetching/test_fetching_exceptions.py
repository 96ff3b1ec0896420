"""What callbacks and signal handlers raise surfaces, and costs no record."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import confluent_kafka
import pytest
from confluent_kafka import Message
from fetching_support import PATIENCE, SLICE, Topic, fetcher_of, offsets, read, record, until

from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.types import Partitions, TopicPartition

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


class Interruptions:
    """Raises from a signal handler that strikes inside the fetcher while it is armed.

    Elsewhere the handler returns: what the test has in its hands is the test's to lose.
    """

    def __init__(self) -> None:
        self.armed = False
        self.struck = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGVTALRM, self._handle)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)

    def _handle(self, _: int, frame: FrameType | None) -> None:
        inside = frame is not None and frame.f_globals["__name__"] == Fetcher.__module__
        if self.armed and inside:
            self.struck += 1
            raise InterruptionError


@contextmanager
def ctrl_c_soon() -> Iterator[None]:
    main = threading.get_ident()
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    yield
    timer.join()


class TestSignals:
    @BOTH_WAYS
    def test_a_raising_handler_costs_no_record(
        self, kafka: EmbeddedKafka, deliver: Callable[[Fetcher], list[Message]]
    ) -> None:
        def step() -> list[Message]:
            signals.armed = True
            try:
                return deliver(fetcher)
            except InterruptionError:
                return []
            finally:
                signals.armed = False

        topic = Topic(kafka, partitions=4, records=5000)
        with fetcher_of(kafka) as fetcher, Interruptions() as signals:
            fetcher.add(topic.at(0))
            until(lambda: signals.struck >= 5, lambda: read_it_all_once(fetcher, topic, 5000, step))

    def test_ctrl_c_ends_a_long_wait_of_next(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka) as fetcher, ctrl_c_soon(), pytest.raises(KeyboardInterrupt):
            fetcher.next(PATIENCE)

    def test_ctrl_c_ends_a_wait_of_take_with_its_slice(self, kafka: EmbeddedKafka) -> None:
        with fetcher_of(kafka) as fetcher, ctrl_c_soon(), pytest.raises(KeyboardInterrupt):
            until(lambda: False, lambda: fetcher.take(2, SLICE))


class SwallowingConsumer:
    """Stands in for confluent's: loses the records of a `consume` that raises, as it does."""

    def __init__(self, config: dict[str, Any], **_: Any) -> None:
        self.log: dict[int, list[Message]] = {}
        self.at: dict[int, int] = {}
        self.consumed: dict[int, int] = {}
        self.raising = False
        self.seeks_until_raising = -1

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.at |= {p.partition: p.offset for p in partitions}

    def position(
        self, partitions: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        return [
            confluent_kafka.TopicPartition("t", p.partition, self.consumed.get(p.partition, -1001))
            for p in partitions
        ]

    def seek(self, to: confluent_kafka.TopicPartition) -> None:
        if self.seeks_until_raising == 0:
            raise InterruptionError
        self.seeks_until_raising -= 1
        self.at[to.partition] = to.offset
        self.consumed.pop(to.partition, None)

    def consume(self, n: int, _: float) -> list[Message]:
        taken = []
        for partition, offset in self.at.items():
            for one in self.log[partition][offset : offset + n // len(self.at)]:
                taken.append(one)
                self.at[partition] = self.consumed[partition] = (one.offset() or 0) + 1
        if self.raising:
            raise InterruptionError
        return taken


@pytest.fixture
def swallowing(monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    monkeypatch.setattr(confluent_kafka, "Consumer", SwallowingConsumer)
    fetcher = Fetcher({})
    fetcher._consumer.log = {  # type: ignore[attr-defined]  # the stand-in's
        p: [record(p, offset, epoch=7) for offset in range(100)] for p in (0, 1)
    }
    fetcher.add({A: OffsetAndMetadata(offset=0), B: OffsetAndMetadata(offset=50)})
    return fetcher


class TestSwallowedRecords:
    """The same, record by record, with a consumer that swallows exactly one batch."""

    @pytest.mark.parametrize("taken_before", [0, 1, 3])
    def test_are_fetched_again(self, swallowing: Fetcher, taken_before: int) -> None:
        before = [m for _ in range(taken_before) for m in swallowing.take(8, 0)]
        swallowing._consumer.raising = True  # type: ignore[attr-defined]  # the stand-in's
        with pytest.raises(InterruptionError):
            swallowing.take(8, 0)
        both = Partitions({"t": [0, 1]})
        delivered = 4 * taken_before
        assert {of: at.offset for of, at in swallowing.positions(both).items()} == {
            A: delivered,
            B: 50 + delivered,
        }
        swallowing._consumer.raising = False  # type: ignore[attr-defined]  # the stand-in's
        assert offsets(before + swallowing.take(80, 0)) == {
            A: list(range(delivered + 40)),
            B: list(range(50, 50 + min(50, delivered + 40))),
        }

    def test_what_is_buffered_stays_and_comes_first(self, swallowing: Fetcher) -> None:
        swallowing._batch_size = 8
        first = read(swallowing, 2)
        swallowing._consumer.raising = True  # type: ignore[attr-defined]  # the stand-in's
        with pytest.raises(InterruptionError):
            swallowing.take(20, 0)
        swallowing._consumer.raising = False  # type: ignore[attr-defined]  # the stand-in's
        assert offsets(first + swallowing.take(26, 0)) == {
            A: list(range(14)),
            B: list(range(50, 64)),
        }

    @pytest.mark.parametrize("seeks", [0, 1])
    def test_even_if_a_second_exception_strikes_meanwhile(
        self, swallowing: Fetcher, seeks: int
    ) -> None:
        first = swallowing.take(8, 0)
        stand_in = swallowing._consumer
        stand_in.raising, stand_in.seeks_until_raising = True, seeks  # type: ignore[attr-defined]  # the stand-in's
        with pytest.raises(InterruptionError):
            swallowing.take(8, 0)
        stand_in.raising, stand_in.seeks_until_raising = False, -1  # type: ignore[attr-defined]  # the stand-in's
        positions = swallowing.positions(Partitions({"t": [0, 1]}))
        assert {of: at.offset for of, at in positions.items()} == {A: 4, B: 54}
        assert offsets(first + swallowing.take(8, 0)) == {A: list(range(8)), B: list(range(50, 58))}
