"""What the user may ask for: topics and regular expressions, strategies by name or instance."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka_coop.assignors import resolve
from kafka_coop.assignors.checking import what_is_wrong
from kafka_coop.config import ConsumerConfig
from kafka_coop.errors import ConfigurationError
from kafka_coop.kafka_errors import coop_exception
from kafka_coop.membership.failures import LOCAL_INVALID_ARG
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.types import MAX_STRING_BYTES, Assignor


def split_topics(topics: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns names, and regular expressions.

    Raises:
        TypeError: No list of non-empty strings.
        KafkaException: ``_INVALID_ARG``: an expression does not compile, or a name can't be
            a topic's.
    """
    if isinstance(topics, str | bytes) or not isinstance(topics, Collection):
        raise TypeError(f"topics expects a list of strings, got {topics!r}")
    names: list[str] = []
    patterns: list[str] = []
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise TypeError(f"topics expects non-empty strings, got {topic!r}")
        if not topic.startswith("^"):
            _require_sendable(topic)
            names.append(topic)
            continue
        try:
            re.compile(topic)
        except re.error as error:
            raise coop_exception(
                LOCAL_INVALID_ARG, f"topics: {topic!r} is no regular expression: {error}"
            ) from None
        patterns.append(topic)
    return tuple(names), tuple(patterns)


def _require_sendable(name: str) -> None:
    """No request can say another: the member would never join, and nobody be told.

    Kafka's own limit for a topic is lower; whoever asks for one that is too long for it is told.
    Nor of one with a NUL could anybody be told: librdkafka's errors are C's strings.
    """
    if "\0" in name:
        raise coop_exception(LOCAL_INVALID_ARG, f"topics: {name!r}: no name has a NUL in it")
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise coop_exception(LOCAL_INVALID_ARG, f"topics: {name!r}: {error}") from None
    if length > MAX_STRING_BYTES:
        text = f"topics: a name of {length} bytes: no request can hold it"
        raise coop_exception(LOCAL_INVALID_ARG, text)


def given_config(
    config: Any,
    more: Mapping[str, Any],
    assignors: Iterable[Assignor] | None,
) -> Any:
    """One configuration out of a dict and keywords, as confluent's: the keywords win.

    Instances of assignors replace the strategies' names, which may then be anybody's own.
    """
    if config is None:
        config = {}
    if not isinstance(config, Mapping):
        return config  # for the parser to refuse
    merged = {**config, **more}
    if assignors is not None:
        merged.pop("partition.assignment.strategy", None)
    return merged


def member_settings(config: ConsumerConfig, assignors: Iterable[Assignor] | None) -> MemberSettings:
    """What the state machine needs to know.

    Raises:
        ConfigurationError: An assignor is none, or the strategies don't go together.
    """
    if assignors is not None and config.group_protocol == "consumer":
        raise ConfigurationError(
            "assignors",
            "assignors: with group.protocol=consumer the broker assigns: remove them, and name one "
            "of the broker's in group.remote.assignor if need be, or use group.protocol=classic",
        )
    chosen = tuple(assignors) if assignors is not None else tuple(map(resolve, config.strategies))
    for assignor in chosen:
        if wrong := what_is_wrong(assignor):
            raise ConfigurationError("assignors", f"assignors: {wrong}")
    return MemberSettings(
        group_id=config.group_id,
        client_id=config.client_id,
        assignors=chosen,
        instance_id=config.instance_id,
        rack=config.rack,
        session_timeout=config.session_timeout,
        heartbeat_interval=config.heartbeat_interval,
        rebalance_timeout=config.rebalance_timeout,
        request_timeout=config.connection.request_timeout,
        retry_backoff=config.retry_backoff,
        retry_backoff_max=config.retry_backoff_max,
        metadata_max_age=config.metadata_max_age,
        allow_auto_create_topics=config.allow_auto_create_topics,
        auto_commit=config.auto_commit,
        seed=time.time_ns() & 0xFFFFFFFF,
    )
