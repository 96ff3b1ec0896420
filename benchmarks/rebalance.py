"""What a rebalance costs: the gap of a moved partition, the silence of a kept one, and how long.

    python -m benchmarks.rebalance [--runs 3] [--kafka 4.1.0] [--calm 65]
        [--clients kafka_coop,kafka_coop+drain+watchdog,cooperative-sticky,java,mixed,…]

A real Kafka on loopback, 48 partitions at 2,000 records/s in all (24 ms between two records of a
partition), four members, each a process. For a while nothing happens; then a fifth joins, then
closes; then the first is killed. Before each event all members beat *in phase*, 20 ms after one
another, or *spread*, 0.6 s after one another: each is stopped while its next heartbeat falls due,
and goes on when it is to be sent. *As left*, they beat when the last round has left them to, which
is elsewhere for each client: where a round takes long, all beat at its end. From run to run the
events fall elsewhere between two heartbeats of 3 s, at the same places for every client: after the
first member's heartbeat or, as left, the last round. With ``--calm`` the group is left alone for so
many more seconds before each event: ours beat less often when the last round was a minute ago. A
first group of each client is not measured: it warms up the broker.

    kafka_coop          five of ours
    cooperative-sticky  five of librdkafka's, by confluent-kafka
    java                five of kafka-clients', with its CooperativeStickyAssignor
    mixed               ours, Java's, librdkafka's, ours, all of them cooperative-sticky; the fifth,
                        which joins and closes, is ours
    mixed-java-leads, mixed-librdkafka-leads
                        the same members, but that Java's, or librdkafka's, is the first
    mixed-java-joins, mixed-librdkafka-joins
                        the same as mixed, but that the fifth is Java's, or librdkafka's
    theirs              the same without ours: Java's twice, librdkafka's twice, and Java's
    range               five of librdkafka's, eager: all partitions are given up in each round
    consumer            five of librdkafka's, by KIP-848's protocol; its sessions are the broker's
    …+drain             the same, but that ours leave by drain(): they poll on until they are
                        drained, and then close. Where another's leads, nobody knows the mark, and
                        they close when the time for it is over
    …+watchdog          the same, but that ours have coop.watchdog
    …+quick             the same, but that each one's heartbeat.interval.ms is 300

Each has its own defaults, but for session.timeout.ms: 6000 for all. The first member starts alone,
so that it leads the group, until it is killed: in a mixed group that is one of ours, where the name
does not say another. Others are told to start by a line on their standard input, when all that they
need is loaded: Python's modules, and Java's classes, for which each JVM has joined a group of its
own before. The process of the one that leaves ends later, when nothing is measured.

The columns are those of `benchmarks.rebalance_cost`; the goals, and what has become of them,
follow (`benchmarks.rebalance_goals`). The exit status is 1 where one was missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.group import HEARTBEAT, MEMBERS, TO_BEAT, Group, names_among, under_load
from benchmarks.rebalance_cost import Cost, report
from benchmarks.rebalance_goals import verdict
from kafka_coop.testing.ending import end_in_order_at_sigterm
from kafka_coop.testing.local import DEFAULT_VERSION

CLIENTS = (
    "kafka_coop,kafka_coop+drain+watchdog,cooperative-sticky,java,theirs,mixed,mixed+drain+watchdog"
)
EVENTS = ("nothing", "join", "leave", "kill")
PHASES = {"in phase": 0.02, "spread": 0.6, "as left": None}
"""Seconds from one member's heartbeat to the next one's. Were it none at all, the first one's
session would end, once it is killed, in the same millisecond as the others send a heartbeat, and
which comes first, a difference of three seconds, would be a matter of chance."""
NO_COMMIT = (6.35, 9.55)
"""A third stop, right behind a heartbeat: most auto-commits, too, are due in it."""
PAUSE = 2 * HEARTBEAT
"""Seconds from the end of what an event has brought about to that of its window."""
STOPS = {"kill": (*TO_BEAT, NO_COMMIT)}
BEATS_BEFORE = {"kill": 4}
"""How many heartbeats there are between the first member's, which is on time, and the interval in
which an event falls; one, where nothing is said. A commit begins a session anew, too, and whether
one comes between the last heartbeat and the kill would be a matter of chance. Auto-commits come
every 5 s, one that was due in the third stop as soon as that is over: 0 to 1.8 s after the first
heartbeat, and 5 s later, 10, 15. None of them is between 12 s and 15."""
AFTER_KILL = 12.0


def measure(
    client: str,
    bootstrap: str,
    topic: str,
    folder: Path,
    *,
    apart: float | None,
    calm: float,
    later: float,
) -> list[Cost]:
    """One group's life.

    Args:
        client, bootstrap, topic, folder: As `Group` has them.
        apart: As `Group.beat` has it; None: the members beat when they do.
        calm: Seconds for which the group is left alone before each event.
        later: Seconds by which each event comes later than some whole heartbeats after the first
            member's heartbeat, or after the last round; less than one.
    """
    group = Group(client, bootstrap, topic, folder)
    windows: list[tuple[float, float]] = []
    try:
        group.start_all(*[()] * MEMBERS)
        group.start(wait=True, stay=True)
        group.settle()
        for event in EVENTS:
            time.sleep(calm)
            wait_for_moment(
                group,
                apart,
                HEARTBEAT * BEATS_BEFORE.get(event, 1) + later,
                STOPS.get(event, TO_BEAT),
            )
            began = time.time()
            if event == "join":
                group.go(MEMBERS)
            elif event == "leave":
                group.terminate(MEMBERS)
            if event == "kill":
                group.kill(0)
                time.sleep(AFTER_KILL)
            else:
                group.settle(rest=PAUSE)
            windows.append((began, time.time()))
    finally:
        group.stop()
    history = group.history()
    return [history.cost(start, end) for start, end in windows]


def wait_for_moment(
    group: Group,
    apart: float | None,
    later: float,
    stops: Sequence[tuple[float, float]] = TO_BEAT,
) -> None:
    """Returns ``later`` seconds after the first member's heartbeat, or now, in a group at rest."""
    first = time.monotonic() if apart is None else group.beat(apart, stops)
    time.sleep(max(0.0, first + later - time.monotonic()))


def warm_up(client: str, bootstrap: str, topic: str, folder: Path) -> None:
    group = Group(client, bootstrap, topic, folder)
    try:
        for _ in range(2):
            group.start()
            group.settle()
    finally:
        group.stop()


def add_phases(parser: argparse.ArgumentParser) -> None:
    """Adds ``--phases``, a list of names in `PHASES`."""
    parser.add_argument(
        "--phases", type=names_among(PHASES), default="in phase,spread", help="comma-separated"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--clients", default=CLIENTS)
    add_phases(parser)
    parser.add_argument("--kafka", default=DEFAULT_VERSION, help="the broker's version")
    parser.add_argument("--calm", type=float, default=0.0, help="seconds before each event")
    options = parser.parse_args()
    end_in_order_at_sigterm()
    costs: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    with under_load(options.kafka) as place:
        for client in options.clients.split(","):
            warm_up(client, *place)
        for run in range(options.runs):
            for phase in options.phases:
                for client in options.clients.split(","):
                    measured = measure(
                        client,
                        *place,
                        apart=PHASES[phase],
                        calm=options.calm,
                        later=HEARTBEAT * (run + 0.5) / options.runs,
                    )
                    for event, cost in zip(EVENTS, measured, strict=True):
                        costs[client, phase, event].append(cost)
    report(costs)
    return verdict(costs)


if __name__ == "__main__":
    sys.exit(main())
