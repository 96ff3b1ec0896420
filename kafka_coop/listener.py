"""Rebalance callbacks: both forms in which users give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from kafka_coop.consumer import CoopConsumer

RebalanceCallback: TypeAlias = "Callable[[CoopConsumer, list[TopicPartition]], Any]"


class RebalanceListener:
    """What a consumer is told of its partitions (KIP-429). All lists are deltas, sorted.

    Called inside `poll`, `consume` and `close`, in the thread that called these. An exception
    is raised from there once every callback of the step has run. Calls of the consumer's own
    methods are allowed, `poll` and `consume` excepted.
    """

    def on_partitions_assigned(
        self, consumer: CoopConsumer, partitions: list[TopicPartition]
    ) -> None:
        """These were added. Called after every rebalance, even if nothing was.

        `CoopConsumer.incremental_assign` with offsets set overrides where to start.
        """

    def on_partitions_revoked(
        self, consumer: CoopConsumer, partitions: list[TopicPartition]
    ) -> None:
        """These are about to go. They are still owned: commits of them go through.

        Not called when nothing is taken away, but for strategies of the eager protocol.
        """

    def on_partitions_lost(self, consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        """These are gone already, and may have another owner: a commit of them fails.

        By default the same as `on_partitions_revoked`.
        """
        self.on_partitions_revoked(consumer, partitions)


def chosen_listener(
    listener: RebalanceListener | None,
    on_assign: RebalanceCallback | None,
    on_revoke: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> RebalanceListener:
    """What `CoopConsumer.subscribe` is given, an object or functions, as an object.

    Raises:
        TypeError: Both, an object that is no listener, or what can't be called.
    """
    if listener is None:
        return CallbackListener(on_assign, on_revoke, on_lost)
    if any(given is not None for given in (on_assign, on_revoke, on_lost)):
        raise TypeError("subscribe() takes either listener= or on_assign/on_revoke/on_lost")
    for name in ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost"):
        if not callable(getattr(listener, name, None)):
            raise TypeError(
                f"listener expects a RebalanceListener, got {listener!r} without {name}(): derive "
                "its class from kafka_coop.RebalanceListener"
            )
    return listener


class CallbackListener(RebalanceListener):
    """Three functions, as confluent takes them. Without ``on_lost``, ``on_revoke`` is called."""

    def __init__(
        self,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
    ) -> None:
        for name, given in (
            ("on_assign", on_assign),
            ("on_revoke", on_revoke),
            ("on_lost", on_lost),
        ):
            if given is not None and not callable(given):
                raise TypeError(f"{name} expects a callable, got {given!r}")
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost or on_revoke

    def on_partitions_assigned(
        self, consumer: CoopConsumer, partitions: list[TopicPartition]
    ) -> None:
        """Calls the function given for this."""
        if self._on_assign is not None:
            self._on_assign(consumer, partitions)

    def on_partitions_revoked(
        self, consumer: CoopConsumer, partitions: list[TopicPartition]
    ) -> None:
        """Calls the function given for this."""
        if self._on_revoke is not None:
            self._on_revoke(consumer, partitions)

    def on_partitions_lost(self, consumer: CoopConsumer, partitions: list[TopicPartition]) -> None:
        """Calls the function given for this."""
        if self._on_lost is not None:
            self._on_lost(consumer, partitions)
