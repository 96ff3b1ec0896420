"""librdkafka's statistics, as the families of one collector.

They come as JSON every ``statistics.interval.ms`` (0, the default: never), in the thread that
polls, and of many partitions they are long: a megabyte for a thousand. So the text is kept, and
read when somebody asks, which is the thread that scrapes. Only brokers of the cluster have
series: their number is bounded, where that of topics is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kafka_coop.json_objects import json_object
from kafka_coop.metrics.families import MEMBER_LABELS, PREFIX

_MICROSECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatistics:
    """One broker's part."""

    name: str
    up: bool
    connects: int
    disconnects: int
    timeouts: int
    rtt_average: float
    rtt_p99: float
    throttled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What is told of them. Counters count from the consumer's start; times in seconds."""

    received_bytes: int
    sent_bytes: int
    requests: int
    records: int
    record_bytes: int
    queued_records: int
    queued_bytes: int
    brokers: tuple[BrokerStatistics, ...]


class LibrdkafkaStatistics:
    """Keeps the latest statistics. Heard in one thread, read in any."""

    def __init__(self) -> None:
        self._unread: str | None = None
        self._read: Statistics | None = None

    def listening(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration with this object in front of the user's ``stats_cb``."""
        users: Callable[[str], object] | None = config.get("stats_cb")

        def heard(text: str) -> None:
            self.hear(text)
            if users is not None:
                users(text)

        return {**config, "stats_cb": heard}

    def hear(self, text: str) -> None:
        """Takes one report, and costs nothing."""
        self._unread = text

    @property
    def latest(self) -> Statistics | None:
        """The last report that can be read; None: none came yet.

        What is not as expected in it is left out, or counts as nothing.
        """
        text = self._unread
        if text is not None:
            self._read = _parsed(text) or self._read
            if self._unread is text:  # else a newer one came meanwhile, for the next reader
                self._unread = None
        return self._read


def librdkafka_families(
    readings: Iterable[tuple[tuple[str, str], Statistics | None]],
) -> list[Metric]:
    """The families with these members' samples; members without statistics have none."""
    known = [(member, s) for member, s in readings if s is not None]
    return [
        *(_of_member(name, text, value, known) for name, text, value in _COUNTERS),
        *(_gauge_of_member(name, text, value, known) for name, text, value in _GAUGES),
        *(_of_brokers(name, text, value, known) for name, text, value in _BROKER_COUNTERS),
        *(_gauge_of_brokers(name, text, value, known) for name, text, value in _BROKER_GAUGES),
    ]


_Known = list[tuple[tuple[str, str], Statistics]]
_Value = Callable[[Statistics], float]
_BrokerValue = Callable[[BrokerStatistics], float]

_COUNTERS: Final[tuple[tuple[str, str, _Value], ...]] = (
    ("received_bytes", "Bytes that librdkafka received from brokers.", lambda s: s.received_bytes),
    ("sent_bytes", "Bytes that librdkafka sent to brokers.", lambda s: s.sent_bytes),
    ("requests", "Requests that librdkafka sent.", lambda s: s.requests),
    ("records", "Records that librdkafka fetched.", lambda s: s.records),
    ("record_bytes", "Bytes of these records.", lambda s: s.record_bytes),
)
_GAUGES: Final[tuple[tuple[str, str, _Value], ...]] = (
    ("queued_records", "Records fetched and not yet delivered.", lambda s: s.queued_records),
    ("queued_bytes", "Bytes of these records.", lambda s: s.queued_bytes),
)
_BROKER_COUNTERS: Final[tuple[tuple[str, str, _BrokerValue], ...]] = (
    ("broker_connects", "Connections tried.", lambda b: b.connects),
    ("broker_disconnects", "Connections lost.", lambda b: b.disconnects),
    ("broker_request_timeouts", "Requests without an answer in time.", lambda b: b.timeouts),
)
_BROKER_GAUGES: Final[tuple[tuple[str, str, _BrokerValue], ...]] = (
    ("broker_up", "1: connected; 0: not.", lambda b: float(b.up)),
    (
        "broker_rtt_average_seconds",
        "Round trip, the average of the last interval.",
        lambda b: b.rtt_average,
    ),
    (
        "broker_rtt_p99_seconds",
        "Round trip, the 99th percentile of the last interval.",
        lambda b: b.rtt_p99,
    ),
    (
        "broker_throttle_average_seconds",
        "Throttling by the broker, the average of the last interval.",
        lambda b: b.throttled,
    ),
)

_NAME: Final = PREFIX + "librdkafka_"


def _of_member(name: str, text: str, value: _Value, known: _Known) -> Metric:
    family = CounterMetricFamily(_NAME + name, text, labels=MEMBER_LABELS)
    for member, statistics in known:
        family.add_metric(member, value(statistics))
    return family


def _gauge_of_member(name: str, text: str, value: _Value, known: _Known) -> Metric:
    family = GaugeMetricFamily(_NAME + name, text, labels=MEMBER_LABELS)
    for member, statistics in known:
        family.add_metric(member, value(statistics))
    return family


def _of_brokers(name: str, text: str, value: _BrokerValue, known: _Known) -> Metric:
    family = CounterMetricFamily(_NAME + name, text, labels=(*MEMBER_LABELS, "broker"))
    for member, statistics in known:
        for broker in statistics.brokers:
            family.add_metric((*member, broker.name), value(broker))
    return family


def _gauge_of_brokers(name: str, text: str, value: _BrokerValue, known: _Known) -> Metric:
    family = GaugeMetricFamily(_NAME + name, text, labels=(*MEMBER_LABELS, "broker"))
    for member, statistics in known:
        for broker in statistics.brokers:
            family.add_metric((*member, broker.name), value(broker))
    return family


def _parsed(text: str) -> Statistics | None:
    report = json_object(text)
    return None if report is None else _statistics(report)


def _statistics(report: Mapping[str, Any]) -> Statistics:
    partitions = [
        partition
        for topic in _tables(report.get("topics"))
        for partition in _tables(topic.get("partitions"))
    ]
    return Statistics(
        received_bytes=_number(report, "rx_bytes"),
        sent_bytes=_number(report, "tx_bytes"),
        requests=_number(report, "tx"),
        records=_number(report, "rxmsgs"),
        record_bytes=_number(report, "rxmsg_bytes"),
        queued_records=sum(_number(p, "fetchq_cnt") for p in partitions),
        queued_bytes=sum(_number(p, "fetchq_size") for p in partitions),
        # Bootstrap addresses and logical brokers have no id: the same brokers once more.
        brokers=tuple(
            _broker(b) for b in _tables(report.get("brokers")) if _number(b, "nodeid", -1) >= 0
        ),
    )


def _broker(report: Mapping[str, Any]) -> BrokerStatistics:
    rtt, throttle = (_table(report.get(key)) for key in ("rtt", "throttle"))
    return BrokerStatistics(
        name=str(_number(report, "nodeid")),
        up=report.get("state") == "UP",
        connects=_number(report, "connects"),
        disconnects=_number(report, "disconnects"),
        timeouts=_number(report, "req_timeouts"),
        rtt_average=_number(rtt, "avg") * _MICROSECONDS,
        rtt_p99=_number(rtt, "p99") * _MICROSECONDS,
        throttled=_number(throttle, "avg") / 1000,
    )


def _tables(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in _table(value).values() if isinstance(v, dict)]


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(table: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = table.get(key, default)
    return value if isinstance(value, int) else default
