"""Publishes the flights at a steady pace, and knows the place of each in the topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import numpy as np
from confluent_kafka import KafkaError, Message, Producer

from kafka_coop.demo.check import Positions, position
from kafka_coop.demo.flights import key_of

_TICK: Final = 0.05
_FLUSH: Final = 20.0


class PublishingError(RuntimeError):
    """A flight could not be published."""


class Publisher:
    """A thread that publishes; the others may ask at any time how far it is.

    Live publishing, rather than a topic filled beforehand, has two reasons: every rebalance
    happens under load, and the embedded broker, which keeps no more than 5 MB of a partition,
    never holds back what has not been read.

    Args:
        bootstrap: The broker.
        topic: An existing topic.
        rows: The flights.
        duration: How long publishing all of them takes, unless held back.
    """

    def __init__(
        self, bootstrap: str, topic: str, rows: Sequence[bytes], *, duration: timedelta
    ) -> None:
        self.duration = duration
        self._topic = topic
        self._rows = rows
        self._per_tick = max(1, round(len(rows) * _TICK / duration.total_seconds()))
        self._limit = 0
        self._positions: list[int] = []
        self._failure: str | None = None
        self._stopping = threading.Event()
        # Idempotent: a retry would publish a flight twice, under an offset that nobody told us.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="publisher")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def total(self) -> int:
        """How many flights there are to publish."""
        return len(self._rows)

    @property
    def published(self) -> int:
        """How many the broker has acknowledged.

        Raises:
            PublishingError: One of them was refused.
        """
        if self._failure is not None:
            raise PublishingError(self._failure)
        return len(self._positions)

    @property
    def done(self) -> bool:
        """Whether all are published."""
        return self.published == self.total

    @property
    def positions(self) -> Positions:
        """Where the published flights are."""
        return np.array(self._positions, np.int64)

    def allow(self, fraction: float) -> None:
        """Lets it publish up to this part of the flights, and then wait for more.

        However slow the machine, what the play has not yet come to still happens under load.
        """
        self._limit = round(self.total * fraction)

    def _run(self) -> None:
        try:
            sent = 0
            while sent < self.total and not self._stopping.is_set():
                began = time.monotonic()
                until = min(sent + self._per_tick, self._limit)
                for row in self._rows[sent:until]:
                    self._send(row)
                sent = max(sent, until)
                self._producer.poll(0)
                self._stopping.wait(max(0.0, began + _TICK - time.monotonic()))
            if not self._stopping.is_set() and (left := self._producer.flush(_FLUSH)):
                self._failure = f"{left} flights were not acknowledged within {_FLUSH:.0f} s"
        except Exception as error:  # noqa: BLE001  # the main thread reports it
            self._failure = str(error)

    def _send(self, row: bytes) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, row, key=key_of(row), on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(_TICK)  # the queue is full: let it drain
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self._failure = f"a flight was not published: {error}"
        else:
            self._positions.append(position(partition, offset))
