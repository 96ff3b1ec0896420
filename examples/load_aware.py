"""A group that balances what partitions cost, not how many there are.

    python examples/load_aware.py

Two members share eight partitions, of which one carries most of the bytes. Both measure what
they consume; at the next rebalance the leader levels that, and moves as little as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from playground import Config, fill, playground

from kafka_coop import CoopConsumer
from kafka_coop.assignors import LoadAwareSticky
from kafka_coop.loads import LoadMeter

PARTITIONS = 8
BETWEEN_LOOKS = 12.0
"""Seconds. Minutes, in earnest."""


class Member:
    """A consumer that measures what it consumes."""

    def __init__(self, config: Config, name: str) -> None:
        self.name = name
        self._meter = LoadMeter("bytes", half_life=timedelta(seconds=20))
        self._strategy = LoadAwareSticky(self._meter, tolerance=0.2)
        self.consumer = CoopConsumer(
            {**config, "group.id": "sizes", "client.id": name, "auto.offset.reset": "earliest"},
            assignors=[self._strategy],
        )
        self.consumer.subscribe(["uploads"])

    @property
    def owned(self) -> list[int]:
        """The numbers of its partitions."""
        return sorted(p.partition for p in self.consumer.assignment())

    def work(self) -> int:
        """Consumes what there is; returns how many records."""
        messages = self.consumer.consume(500, timeout=0.1)
        self._meter.note(messages)
        return len(messages)


def main() -> None:
    """Balances by count, measures, balances by load."""
    with playground(uploads=PARTITIONS) as config:
        members = [Member(config, f"member-{i}") for i in range(2)]
        until(lambda: settled(members), members)
        show("by count:", members)
        heavy = members[0].owned[0]
        for _ in range(5):
            upload(config, heavy)
            consume(members, records=50 * (PARTITIONS + 1), seconds=1)
        until(
            lambda: settled(members) and relieved(members, heavy),
            members,
            {
                1.0: partial(upload, config, heavy),  # it goes on: what is still has no load
                BETWEEN_LOOKS: partial(
                    members[0].consumer.enforce_rebalance, "loads were measured"
                ),
            },
        )
        show(f"by load, {heavy} being heavy:", members)
        for member in members:
            member.consumer.close()


def upload(config: Config, heavy: int) -> None:
    """As many records for each partition, and as many large ones for this one."""
    fill(config, "uploads", range(PARTITIONS), records=50, size=100)
    fill(config, "uploads", [heavy], records=50, size=1000)


def consume(members: list[Member], records: int, seconds: float) -> None:
    """Consumes so many records, and takes so long at least: rates need time."""
    begun, left = time.monotonic(), records
    while left > 0 or time.monotonic() < begun + seconds:
        left -= sum(m.work() for m in members)


def settled(members: list[Member]) -> bool:
    """Whether everything has an owner, and everybody something."""
    owned = [m.owned for m in members]
    return all(owned) and sum(map(len, owned)) == PARTITIONS


def relieved(members: list[Member], heavy: int) -> bool:
    """Whether who has the heavy partition has fewer than others."""
    return all(len(m.owned) < PARTITIONS / 2 for m in members if heavy in m.owned)


def until(
    reached: Callable[[], bool],
    members: list[Member],
    now_and_then: Mapping[float, Callable[[], object]] | None = None,
) -> None:
    """Polls until it is so, and does what is to be done every so many seconds.

    Loads are looked at when the group rebalances, so a service has it do so now and then. What a
    member publishes is smoothed: who measured nothing before needs a second round to be known.
    """
    limit = time.monotonic() + 120
    due = dict.fromkeys(now_and_then or {}, 0.0)
    while not reached():
        if time.monotonic() > limit:
            owned = {m.name: m.owned for m in members}
            raise TimeoutError(f"the group did not settle within two minutes: {owned}")
        for seconds, action in (now_and_then or {}).items():
            if time.monotonic() >= due[seconds]:
                action()
                due[seconds] = time.monotonic() + seconds
        for member in members:
            member.work()


def show(title: str, members: list[Member]) -> None:
    """Says who owns what."""
    print(title, {m.name: m.owned for m in members})


if __name__ == "__main__":
    main()
