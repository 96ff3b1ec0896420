"""What the end leaves behind: nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer, forks
from kafka_coop.client.polling import FOREVER


class UserError(Exception):
    """A callback's."""


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def consumer(registry: CollectorRegistry) -> CoopConsumer:
    config = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
    made = CoopConsumer(config, registry=registry)
    assert any(family.samples for family in registry.collect())
    return made


def test_what_a_callback_raised_and_close_raises_leaves_nothing_behind(
    consumer: CoopConsumer, registry: CollectorRegistry
) -> None:
    def callback() -> None:
        raise UserError

    consumer._fetcher._guard.run(callback)  # type: ignore[attr-defined]  # as one behind a record
    with pytest.raises(UserError):
        consumer.close()
    left = [family.name for family in registry.collect() if family.samples]
    assert not left, "series of a consumer that is closed"
    assert consumer not in forks._consumers


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_is_not_copied(consumer: CoopConsumer, how: Callable[[CoopConsumer], object]) -> None:
    """The copy's `close` would leave the group, behind the back of the other."""
    with pytest.raises(TypeError, match="make another one"):
        how(consumer)
    consumer.close()


def test_a_time_to_drain_that_is_none_is_named(consumer: CoopConsumer) -> None:
    with pytest.raises(TypeError, match=r"timedelta, not 30: timedelta\(seconds=…\)"):
        consumer.close(drain=30)  # type: ignore[arg-type]
    consumer.close()


def test_a_drain_that_a_signal_asks_for_too_late_is_nothing(consumer: CoopConsumer) -> None:
    """It may come while a service puts things in order behind `close`."""
    consumer.close()
    consumer.drain()
    assert not consumer.drained
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


def test_a_ctrl_c_keeps_an_error_for_the_next_poll(
    consumer: CoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends the membership comes once."""
    fatal: int = KafkaError._FATAL
    over = Message(error=KafkaError(fatal, "over"))
    consumer._ownership.errors.append(over)

    def strike(deadline: float) -> bool:
        if deadline == FOREVER:  # what was gathered is about to be the user's
            raise KeyboardInterrupt
        return True

    with consumer:
        with monkeypatch.context() as striking:
            striking.setattr(consumer._polling, "_may_go_on", strike)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(0)
        assert consumer.poll(0) is over
