"""Where the membership's news goes: metrics and the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from kafka_coop.backend.interface import Observer
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.choice import StrategyChoice
from kafka_coop.metrics.log import log_rebalance
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.offsets.commits import first_error
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.types import Assignor, TopicPartition


class LoggingObserver(Observer):
    """Called in the membership thread."""

    def __init__(
        self,
        metrics: MemberMetrics,
        logger: logging.Logger,
        assignors: Sequence[Assignor] = (),
    ) -> None:
        self._metrics = metrics
        self._choice = StrategyChoice(assignors)
        self._log = logger

    def rebalance(self, record: RebalanceRecord) -> None:
        """Observes and logs the round."""
        self._metrics.rebalance(record)
        if record.error is None and record.attempts:
            self._metrics.joined(record.join)
            self._metrics.synced(record.sync)
        log_rebalance(self._log, record)
        if news := self._choice.news(record):
            self._log.warning("%s", news)

    def heartbeat(self, latency: timedelta | None) -> None:
        """Observes the heartbeat."""
        if latency is None:
            self._metrics.heartbeat_failed()
        else:
            self._metrics.heartbeat(latency)

    def commit(self, latency: timedelta, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Observes the commit."""
        worst = first_error(results)
        if worst is ErrorCode.none:
            self._metrics.committed(latency)
        else:
            self._metrics.commit_failed(worst.name)
