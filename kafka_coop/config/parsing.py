"""The one way into a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, cast

from kafka_coop.config.bootstrap import parse_bootstrap
from kafka_coop.config.contradictions import refuse_contradictions
from kafka_coop.config.fetcher import fetcher_config, longest_reconnect
from kafka_coop.config.known import CALLBACKS
from kafka_coop.config.security import sasl_settings, tls_settings
from kafka_coop.config.settings import (
    NEVER,
    Callbacks,
    ConnectionSettings,
    ConsumerConfig,
    OffsetReset,
)
from kafka_coop.config.strategies import DEFAULT, validate_strategies
from kafka_coop.config.strategies import KEY as STRATEGY_KEY
from kafka_coop.config.values import Values
from kafka_coop.errors import ConfigurationError

_BOOTSTRAP = "metadata.broker.list"
_METADATA_REFRESH = "topic.metadata.refresh.interval.ms"
_MAX_IDLE = "connections.max.idle.ms"
_CANONICAL = "resolve_canonical_bootstrap_servers_only"

# Azure's load balancers cut connections idle for four minutes without a word (librdkafka#3109).
_AZURE_MAX_IDLE = timedelta(minutes=4, seconds=-10)

_RESETS = {
    "smallest": OffsetReset.EARLIEST,
    "earliest": OffsetReset.EARLIEST,
    "beginning": OffsetReset.EARLIEST,
    "largest": OffsetReset.LATEST,
    "latest": OffsetReset.LATEST,
    "end": OffsetReset.LATEST,
    "error": OffsetReset.ERROR,
}


def parse(config: Mapping[str, Any], *, logger: Any | None = None) -> ConsumerConfig:
    """Checks a configuration and types it.

    The keys are those of librdkafka and confluent-kafka, and ours (``coop.``). Files are not
    read and hosts not resolved: it depends on nothing but its arguments.

    Args:
        config: The configuration, which is left as it is.
        logger: As confluent's argument of that name; goes before the key ``logger``.

    Returns:
        The settings; ``fetcher`` holds what librdkafka is to be configured with.

    Raises:
        ConfigurationError: A key is unknown, refused or missing, a value cannot be read, or
            keys contradict one another. The text names key, value and remedy; never a secret.
    """
    values = Values.of(config)
    refuse_contradictions(values)
    chosen_logger = values.given_value("logger") if logger is None else logger
    retry_backoff_max = values.duration("retry.backoff.max.ms")
    connection = _connection(values)
    return ConsumerConfig(
        group_id=_group_id(values),
        client_id=connection.client_id,
        connection=connection,
        instance_id=values.text("group.instance.id"),
        rack=values.text("client.rack"),
        group_protocol=cast('Literal["classic", "consumer"]', values.choice("group.protocol")),
        remote_assignor=values.text("group.remote.assignor"),
        strategies=_strategies(values),
        session_timeout=values.duration("session.timeout.ms"),
        heartbeat_interval=_if_given(values, "heartbeat.interval.ms"),
        rebalance_timeout=values.duration("max.poll.interval.ms"),
        auto_commit=values.flag("enable.auto.commit"),
        auto_commit_interval=values.duration("auto.commit.interval.ms"),
        auto_offset_store=values.flag("enable.auto.offset.store"),
        offset_reset=_RESETS[values.choice("auto.offset.reset")],
        read_committed=values.choice("isolation.level") == "read_committed",
        allow_auto_create_topics=values.flag("allow.auto.create.topics"),
        metadata_max_age=_metadata_max_age(values),
        retry_backoff=min(values.duration("retry.backoff.ms"), retry_backoff_max),
        retry_backoff_max=retry_backoff_max,
        poll_prefetch=values.integer("coop.poll.prefetch"),
        watchdog=values.flag("coop.watchdog"),
        callbacks=Callbacks(
            **{name: values.given_value(name) for name in CALLBACKS}, logger=chosen_logger
        ),
        fetcher=fetcher_config(values, logger=chosen_logger),
    )


def _group_id(values: Values) -> str:
    group_id = values.text("group.id")
    if group_id is None:
        raise ConfigurationError(
            "group.id", "group.id is missing or empty: set it to the name of the consumer group"
        )
    return group_id


def _strategies(values: Values) -> tuple[str, ...]:
    if not values.given(STRATEGY_KEY):
        return DEFAULT
    return validate_strategies((values.given_value(STRATEGY_KEY) or "").split(","))


def _if_given(values: Values, name: str) -> timedelta | None:
    return values.duration(name) if values.given(name) else None


def _metadata_max_age(values: Values) -> timedelta:
    interval = values.duration(_METADATA_REFRESH)
    return interval if interval > timedelta(0) else NEVER


def _connection(values: Values) -> ConnectionSettings:
    key = values.name_of(_BOOTSTRAP) if values.given(_BOOTSTRAP) else "bootstrap.servers"
    servers = values.text(_BOOTSTRAP)
    if servers is None:
        raise ConfigurationError(key, f"{key} is missing or empty: give at least one host:port")
    if values.choice("client.dns.lookup") == _CANONICAL:
        raise ConfigurationError(
            "client.dns.lookup",
            f"client.dns.lookup={_CANONICAL} serves GSSAPI (Kerberos) alone, which is not "
            "supported by the group membership's connection: remove it",
        )
    client_id = values.text("client.id")
    assert client_id is not None, "it has a default"
    return ConnectionSettings(
        bootstrap=parse_bootstrap(
            key, servers, security_protocol=values.choice("security.protocol")
        ),
        client_id=client_id,
        tls=tls_settings(values),
        sasl=sasl_settings(values),
        connect_timeout=values.duration("socket.connection.setup.timeout.ms"),
        request_timeout=values.duration("socket.timeout.ms"),
        reconnect_backoff=values.duration("reconnect.backoff.ms"),
        reconnect_backoff_max=longest_reconnect(values),
        connections_max_idle=_max_idle(values, servers),
        keepalive=values.flag("socket.keepalive.enable"),
        nagle_disable=values.flag("socket.nagle.disable"),
        address_family=cast('Literal["any", "v4", "v6"]', values.choice("broker.address.family")),
        receive_message_max_bytes=values.integer("receive.message.max.bytes"),
    )


def _max_idle(values: Values, servers: str) -> timedelta:
    if not values.given(_MAX_IDLE) and "azure" in servers.lower():
        return _AZURE_MAX_IDLE
    return values.duration(_MAX_IDLE)
