"""Which membership a configuration asks for, with what fetches its records."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Any

from kafka_coop.backend.broker_assigned import BrokerAssignedBackend
from kafka_coop.backend.classic import ClassicBackend
from kafka_coop.backend.interface import Backend, Observer
from kafka_coop.config import Callbacks, ConsumerConfig
from kafka_coop.fetching.fetcher import Fetcher
from kafka_coop.fetching.group_fetcher import GroupFetcher
from kafka_coop.fetching.interface import Fetching
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.metrics.librdkafka import LibrdkafkaStatistics
from kafka_coop.turns import TurnLock


def membership(
    config: ConsumerConfig,
    settings: MemberSettings,
    *,
    lock: TurnLock,
    observer: Observer,
    statistics: LibrdkafkaStatistics,
    log: logging.Logger,
    logger: Any | None,
    undo: contextlib.ExitStack,
) -> tuple[Fetching, Backend]:
    """Makes both, not started yet. ``undo`` closes librdkafka's consumer again.

    ``statistics`` listens to librdkafka's. ``log`` is ours, ``logger`` the user's for librdkafka.

    Raises:
        ConfigurationError: Certificates can't be read, and the like.
        KafkaException: librdkafka refuses the configuration.
    """
    for_librdkafka = statistics.listening(config.fetcher)
    if config.group_protocol == "consumer":
        group = GroupFetcher(for_librdkafka, logger=logger)
        undo.callback(group.close)
        return group, BrokerAssignedBackend(config, group, lock=lock, observer=observer, logger=log)
    fetcher = Fetcher(for_librdkafka, logger=logger, prefetch=config.poll_prefetch)
    undo.callback(fetcher.close)
    # What these belong to (the consumer's owner, mostly) would be kept by the thread, which runs.
    own = replace(config, callbacks=Callbacks(), fetcher={})
    return fetcher, ClassicBackend(own, settings, observer=observer, logger=log)
