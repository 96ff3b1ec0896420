"""A steady stream of records, and where it ended."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

_TICK: Final = 0.01
_FLUSH_SECONDS: Final = 60.0


class Load:
    """Produces for as long as the ``with`` block runs, to all partitions in turns.

    Args:
        bootstrap: The brokers.
        topic: Where to.
        partitions: How many the topic has; may grow, see `widen`.
        rate: Records a second in all.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "enable.idempotence": True,  # a broker's restart repeats no record
                "message.timeout.ms": 600_000,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._partitions = self._at_first = partitions
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: list[str] = []
        self._ended_early: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def widen(self, partitions: int) -> None:
        """From now on to more partitions."""
        self._partitions = partitions

    def stop(self) -> None:
        """Ends, and waits until the brokers have all of it. A second call does nothing.

        Raises:
            RuntimeError: They did not take all of it, or it ended before it was told to: what came
                afterwards was judged without records.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_SECONDS)
        if self._ended_early is not None:
            why = f"the load ended early: {self._ended_early!r}"
            raise RuntimeError(why) from self._ended_early
        if left or self._failed:
            raise RuntimeError(f"{left} records were not taken; {self._failed[:3]}")

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except Exception as error:  # noqa: BLE001  # raised by who stops it
            self._ended_early = error

    def _send_until_stopped(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stop.wait(_TICK):
            due = int((time.monotonic() - began) * self._rate)
            for number in range(sent, due):
                self._send(number)
            sent = due
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        partition = number % self._partitions
        try:
            self._produce_when_there_is_room(number, partition)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001  # its name
                raise
            # Not heard of the new ones yet.
            self._produce_when_there_is_room(number, partition % self._at_first)

    def _produce_when_there_is_room(self, number: int, partition: int) -> None:
        """Waits while the brokers are away and the queue is full.

        Once the load is stopped: what they can't take is not sent, and not missed.
        """
        while True:
            try:
                self._produce(number, partition)
            except BufferError:
                if self._stop.is_set():
                    return
                self._producer.poll(_TICK)
            else:
                return

    def _produce(self, number: int, partition: int) -> None:
        self._producer.produce(
            self._topic, str(number), partition=partition, on_delivery=self._delivered
        )

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))
