"""Has a broker lead a group again and again, until it does so at the speed that it will keep.

A JVM compiles what has run some hundred times, and for good what has run some thousand. One that
has seen two or three groups takes twice as long over a round as one that is up for an hour. And its
compilers want the cores meanwhile, half of one for the first minutes of a load: time that a
round on a full machine waits for, and that no broker takes that has been up for longer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import TopicPartition

from benchmarks.cpu_time import cpu_time
from kafka_coop.consumer import CoopConsumer
from kafka_coop.testing.local import LocalKafka

_ROUNDS: Final = 8
"""Of each of the group's lives: it joins, is in some more rounds, commits in each, and leaves."""
_PATIENCE: Final = 60.0
_TOPIC: Final = "warm-up"
_COMPILERS: Final = ("C1 CompilerThre", "C2 CompilerThre")
"""The names of their threads, as far as the kernel keeps them."""
_LOOKED_AT: Final = 20.0
_AT_REST: Final = 0.05
"""Of a core, on average over so many seconds: who is up for long compiles now and then, too."""
_LONGEST: Final = 900.0


def warm_up(kafka: LocalKafka) -> None:
    """Has the broker lead groups until its compilers rest, which takes some minutes. Linux only.

    Whatever else the broker is to be measured at, load and readers, has to be there already: it is
    compiled as well.

    Raises:
        TimeoutError: A round took a whole minute, or the compilers have not come to rest.
    """
    kafka.create_topic(_TOPIC, partitions=48)
    with CoopConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": _TOPIC}) as member:
        wait_for_compilers(kafka, lambda: _lead(member))


def wait_for_compilers(kafka: LocalKafka, act: Callable[[], None]) -> None:
    """Acts again and again until the compilers of the one broker's JVM rest. Linux only.

    Raises:
        TimeoutError: They have not come to rest.
        RuntimeError: They can't be told from others.
    """
    (broker,) = kafka.brokers
    deadline = time.monotonic() + _LONGEST
    while _compiles_while(kafka.pid(broker), act) > _AT_REST:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the broker still compiles after {_LONGEST:.0f} s")


def _compiles_while(pid: int, act: Callable[[], None]) -> float:
    """How much of a core a JVM's compilers take while something is done again and again."""
    began, before = time.monotonic(), _compiled(pid)
    while time.monotonic() < began + _LOOKED_AT:
        act()
    return (_compiled(pid) - before) / (time.monotonic() - began)


def _compiled(pid: int) -> float:
    """The time that a JVM's compilers have had, in seconds.

    Those of them that live: on many cores a JVM ends what it does not need, and their time goes
    with them. It starts no more than one of each on two.

    Raises:
        RuntimeError: It has none, or they go by other names.
    """
    times = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if (thread / "comm").read_text().rstrip() in _COMPILERS:
                times.append(cpu_time(thread))
    if not times:
        raise RuntimeError(f"process {pid} has no threads named {' or '.join(_COMPILERS)}")
    return sum(times)


def _lead(consumer: CoopConsumer) -> None:
    """Has the broker lead a group, from its first join to its end."""
    consumer.subscribe([_TOPIC])
    _poll_until(consumer, lambda: bool(consumer.assignment()))
    for _ in range(_ROUNDS):
        _go_through_a_round(consumer)
    consumer.unsubscribe()
    _poll_until(consumer, lambda: not consumer.assignment())


def _go_through_a_round(consumer: CoopConsumer) -> None:
    before = consumer.health().generation
    consumer.enforce_rebalance("warm-up")
    _poll_until(
        consumer, lambda: consumer.health().generation > before and consumer.health().stable
    )
    consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 0)], asynchronous=False)


def _poll_until(consumer: CoopConsumer, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no round within {_PATIENCE:.0f} s: {consumer.health()}")
        consumer.poll(0.01)
