"""What can befall a group: each fault a function, that starts it and says when and how it ends."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import PartitionMetadata  # type: ignore[attr-defined]  # its stubs hide it
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kafka_coop.testing.cluster import leaders, peek, wait_until
from kafka_coop.testing.local import LocalKafka, LocalKafkaError
from kafka_coop.testing.proxy import Weather
from kafka_coop.testing.trial.controllers import active_controller, prefer
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.member import Client
from kafka_coop.testing.trial.outcome import (
    COORDINATOR,
    DELETED,
    KILL,
    MOVED,
    OTHERS_HEARTBEAT,
    SLOW,
    SLOWEST,
)

_RESTART: Final = timedelta(seconds=2)
_AFTER_A_CRASH: Final = timedelta(seconds=5)
"""It is missed after broker.session.timeout.ms, and can't come back before."""
_OFFSETS: Final = "__consumer_offsets"
_MOVING: Final = timedelta(seconds=5)

_ASKED: Final = 5.0
"""Seconds for an answer about a topic: other faults, which are due meanwhile, wait for it."""

_ASKED_AGAIN: Final = timedelta(seconds=1)
_ASKINGS: Final = 60
"""Of brokers that are all up, before a topic that does not come back ends the run."""

_BEATS: Final = {"heartbeat_interval_ms": OTHERS_HEARTBEAT // timedelta(milliseconds=1)}

OTHERS: Final[Mapping[Client, Mapping[str, Any]]] = {
    "java": {**_BEATS, "metadata_max_age_ms": 1000},
    "confluent": _BEATS,
}
"""Other clients, and settings of their members: with the default of 3 s their sessions of 6 s would
end at the first heartbeat that a network delays."""

ASIDE: Final = 3
"""Partitions of the topic beside the one that is judged; so many of a group may have no other."""

_LEAST_SLOW: Final = 0.3
"""Seconds: a callback of ordinary length is waited for."""

_ENOUGH_BROKERS: Final = 3
"""So many that one of them may go: a majority is left."""

FEWEST: Final = 2
"""Members that are left alone, so that the group lives."""


@dataclass(slots=True, kw_only=True)
class Arena:
    """A group that is to suffer.

    Attributes:
        kafka: Its brokers, each behind a proxy.
        session: Every member's ``session.timeout.ms``.
        partitions: Of the topic, now.
        most_partitions: To which it may grow.
        others: Members of other clients, each with its client; those that are gone, too.
        output: For members with transactions; empty: without.
        aside: The topic that they subscribe to beside; empty: none.
        aside_is_gone: Whether it is deleted, and to come back.
        stopped: Members that are under SIGSTOP.
        down: Brokers that are down, or on their way.
        whole_since: When the last of them was back, on `time.monotonic`.
        disturbed: Brokers whose network is not well.
    """

    kafka: LocalKafka
    crew: Crew
    load: Load
    chance: random.Random
    session: timedelta
    partitions: int
    most_partitions: int
    others: dict[str, Client] = field(default_factory=dict)
    output: str = ""
    aside: str = ""
    aside_is_gone: bool = False
    stopped: set[str] = field(default_factory=set)
    down: set[int] = field(default_factory=set)
    whole_since: float = float("-inf")
    disturbed: set[int] = field(default_factory=set)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def recruit(self, client: Client = "ours") -> str:
        """Starts one more member."""
        name = f"m{next(self.numbers)}"
        strategies = ["cooperative-sticky"]
        if client == "ours":
            self.crew.start(name, client, strategies, output=self.output, aside=self.aside)
        else:
            self.others[name] = client
            self.crew.start(name, client, strategies, **OTHERS[client])
        return name

    def replace(self, name: str) -> str:
        """Starts one more, of the client that this member has, or had."""
        return self.recruit(self.others.get(name, "ours"))

    def victims(self, *, of_ours: bool = False) -> list[str]:
        """Members that may come to harm, at least `FEWEST` others being well.

        Args:
            of_ours: Without other clients' members, which can't bear it, or do it.
        """
        running = set(self.crew.running) - self.stopped - self.crew.leaving
        # One whose interpreter is still starting has no consumer that could suffer.
        well = sorted(name for name in running if self.crew.has_started(name))
        spared = self.others if of_ours else ()
        return [name for name in well if name not in spared] if len(well) > FEWEST else []

    def may_lose_a_broker(self) -> bool:
        """Whether a majority is left, and the group has had a session to be well again.

        Two outages in a row are one to a member, as long as both together, and for a wait in it
        `liveness` allows no more than the longer one explains.
        """
        rested = time.monotonic() >= self.whole_since + self.session.total_seconds()
        return rested and not self.down and len(self.kafka.brokers) >= _ENOUGH_BROKERS

    def connected(self) -> list[int]:
        """Brokers that somebody talks to, over a network that is well."""
        absent = self.down | self.disturbed
        return [
            b for b in self.kafka.brokers if b not in absent and self.kafka.proxy(b).connections
        ]

    def coordination(self) -> PartitionMetadata | None:
        """The partition whose leader is the group's coordinator. None: nobody can say now."""
        metadata = peek(self.kafka.admin())
        if metadata is None or _OFFSETS not in metadata.topics:
            return None
        partitions = metadata.topics[_OFFSETS].partitions
        return partitions.get(place_of(self.crew.group, len(partitions)))

    def roles(self, broker: int) -> tuple[str, ...] | None:
        """What a broker is beside a broker: the active controller, the group's coordinator.

        None: nobody can say now.
        """
        partition = self.coordination()
        if partition is None:
            return None
        try:
            controller = active_controller(self.kafka.admin_servers)
        except ConnectionError:
            return None
        offices = {COORDINATOR: partition.leader, "controller": controller}
        return tuple(office for office, holder in offices.items() if holder == broker)


def place_of(group: str, partitions: int) -> int:
    """Where the brokers keep a group: Java's hash of its id, modulo the partitions."""
    value = 0
    for unit in group:
        value = (31 * value + ord(unit)) % (1 << 32)
    # Kafka's own |int|, and 0 for the one that has none.
    return min(value, (1 << 32) - value) % (1 << 31) % partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A fault under way.

    Attributes:
        what: What was done, to whom.
        ends: When the rest is to be done.
        end: The rest; or the next part, of which all holds again.
        member: To whom, if to a member.
        roles: What the broker was, if to a broker: see `Arena.roles`.
        in_vain: Whether a broker went on regardless, and was killed.
        began: When it did, monotonic nanoseconds; 0: when it was drawn.
        ended: When its own time was over, asked after `end`; None: when `end` returned.
    """

    what: str
    ends: timedelta = timedelta(0)
    end: Callable[[], Started | None] = field(default=lambda: None)
    member: str = ""
    roles: tuple[str, ...] | None = None
    in_vain: bool = False
    began: int = 0
    ended: Callable[[], int] | None = None


Fault: TypeAlias = Callable[[Arena], Started | None]
"""None: not now."""


def kill(arena: Arena) -> Started | None:
    """SIGKILL; a new member comes."""
    if not (victims := arena.victims()):
        return None
    name = arena.chance.choice(victims)
    arena.crew.kill(name)
    return Started(what=f"{name} killed, {arena.replace(name)} started", member=name)


def leave(arena: Arena) -> Started | None:
    """Orderly; a new member comes first."""
    return _leave(arena, "left", drain=False)


def drain(arena: Arena) -> Started | None:
    """Orderly, handing over first; a new member comes before."""
    return _leave(arena, "drained", drain=True)


def _leave(arena: Arena, how: str, *, drain: bool) -> Started | None:
    """A leave.

    Nobody waits for its end: it may need a broker that another fault has taken away, which comes
    back only while the faults go on.
    """
    if not (victims := arena.victims(of_ours=drain)):
        return None
    name = arena.chance.choice(victims)
    new = arena.replace(name)
    arena.crew.ask_to_leave(name, drain=drain)
    return Started(what=f"{name} {how}, {new} started", member=name)


def slow(arena: Arena) -> Started | None:
    """The user of each of ours takes long to give up, once; one member leaves, and a new one comes.

    Who stays gives partitions up for the one that comes, and nobody knows beforehand who does. Each
    takes its own time: the first that is done begins the next round, which the others' users
    would hold up.
    """
    if (left := leave(arena)) is None:
        return None
    crew = arena.crew
    # Who is under another fault as well may be slow: that takes nobody from the group.
    spared = crew.leaving | arena.others.keys()
    others = [name for name in crew.running if crew.has_started(name) and name not in spared]
    most = SLOWEST.total_seconds()
    for name in others:
        crew.slow_down(name, timedelta(seconds=arena.chance.uniform(_LEAST_SLOW, most)))

    def end() -> None:
        for name in {*others} & {*crew.running}:
            crew.slow_down(name, timedelta(0))

    what = f"{left.what}; the others' on_revoke takes {_LEAST_SLOW:g} to {most:g} s"
    return replace(left, what=what, ends=arena.session, end=end)


def _stop(arena: Arena, least: float, most: float, *, of_ours: bool = False) -> Started | None:
    if not (victims := arena.victims(of_ours=of_ours)):
        return None
    name = arena.chance.choice(victims)
    lasting = arena.session * arena.chance.uniform(least, most)
    arena.crew.stop(name)
    began, went_on = time.monotonic_ns(), list[int]()
    arena.stopped.add(name)

    def resume() -> None:
        try:
            arena.crew.resume(name)
        finally:
            went_on.append(time.monotonic_ns())

    # By a thread of its own: other faults' ends, a broker's start among them, would prolong it.
    timer = threading.Timer(lasting.total_seconds(), resume)
    timer.daemon = True
    timer.start()

    def end() -> None:
        timer.join()
        arena.stopped.discard(name)

    what = f"{name} stopped for {lasting.total_seconds():.1f} s"
    return Started(
        what=what,
        ends=lasting,
        end=end,
        member=name,
        began=began,
        ended=lambda: went_on[0],
    )


def pause(arena: Arena) -> Started | None:
    """SIGSTOP, SIGCONT within the session.

    Others beat every second, and may have been about to.
    """
    return _stop(arena, 0.1, 0.6, of_ours=True)


def zombie(arena: Arena) -> Started | None:
    """SIGSTOP for longer than the session, then SIGCONT."""
    return _stop(arena, 1.2, 1.8)


def edge(arena: Arena) -> Started | None:
    """SIGSTOP for just about the session."""
    return _stop(arena, 0.95, 1.05)


def _weather(
    arena: Arena, what: str, weather: Weather, most: float, *, cut: bool = False
) -> Started | None:
    well = [b for b in arena.kafka.brokers if b not in arena.down | arena.disturbed]
    if not well:
        return None
    broker = arena.chance.choice(well)
    lasting = timedelta(seconds=arena.chance.uniform(1, most))
    arena.disturbed.add(broker)
    proxy = arena.kafka.proxy(broker)
    proxy.set(weather)
    if cut:
        proxy.reset()

    def end() -> None:
        proxy.heal()
        arena.disturbed.discard(broker)

    text = f"broker {broker}: {what} for {lasting.total_seconds():.1f} s"
    return Started(what=text, ends=lasting, end=end)


def latency(arena: Arena) -> Started | None:
    """A slow network."""
    slow = Weather(latency=timedelta(milliseconds=100), jitter=timedelta(milliseconds=200))
    return _weather(arena, "100 to 300 ms latency", slow, 8)


def loss(arena: Arena) -> Started | None:
    """A lossy network."""
    return _weather(arena, "every fifth chunk retransmitted", Weather(loss=0.2), 8)


def bandwidth(arena: Arena) -> Started | None:
    """A narrow network."""
    return _weather(arena, "20 kB/s a connection", Weather(bandwidth=20_000), 8)


def half_open(arena: Arena) -> Started | None:
    """A network that swallows."""
    most = 1.5 * arena.session.total_seconds()
    return _weather(arena, "silence", Weather(silent=True), most)


def refuse(arena: Arena) -> Started | None:
    """Connections cut, new ones refused."""
    return _weather(arena, "refused", Weather(refusing=True), 5, cut=True)


def reset(arena: Arena) -> Started | None:
    """All connections of a broker cut."""
    if not (connected := arena.connected()):
        return None
    broker = arena.chance.choice(connected)
    arena.kafka.proxy(broker).reset()
    return Started(what=f"broker {broker}: connections reset")


def cut_mid_frame(arena: Arena) -> Started | None:
    """Some connections cut within an answer."""
    if not (connected := arena.connected()):
        return None
    broker = arena.chance.choice(connected)
    arena.kafka.proxy(broker).cut_mid_frame(3)
    return Started(what=f"broker {broker}: 3 answers cut in the middle")


def _broker_down(
    arena: Arena, how: Callable[[int], object], what: str, lasting: timedelta
) -> Started | None:
    if not arena.may_lose_a_broker():
        return None
    return _take_down(arena, arena.chance.choice(arena.kafka.brokers), how, what, lasting)


def _take_down(
    arena: Arena, broker: int, how: Callable[[int], object], what: str, lasting: timedelta
) -> Started:
    roles, in_vain = arena.roles(broker), False
    try:
        how(broker)
    except LocalKafkaError:
        in_vain = True  # a JVM on a busy machine
        what = f"{what} (did not stop, and was killed)"
    arena.down.add(broker)

    def end() -> None:
        arena.kafka.start_broker(broker)
        arena.down.discard(broker)
        arena.whole_since = time.monotonic()

    who = f"broker {broker} ({' and '.join(roles)})" if roles else f"broker {broker}"
    return Started(what=f"{who} {what}", ends=lasting, end=end, roles=roles, in_vain=in_vain)


def broker_restart(arena: Arena) -> Started | None:
    """Orderly, as in a rolling upgrade: leaderships and coordinators move."""
    return _broker_down(arena, arena.kafka.stop_broker, "restarted", _RESTART)


def broker_kill(arena: Arena) -> Started | None:
    """SIGKILL of a broker, which may be a controller and the coordinator."""
    return _broker_down(arena, arena.kafka.kill_broker, "killed and started", _AFTER_A_CRASH)


def disk_full(arena: Arena) -> Started | None:
    """A broker that can write no more ends by itself; it comes back with room on its disk.

    The kernel refuses its writes (`LocalKafka.fill_disk`); the disk itself is not full.
    """
    return _broker_down(arena, arena.kafka.fill_disk, "out of disk", _AFTER_A_CRASH)


def rolling_restart(arena: Arena) -> Started | None:
    """Each broker in order, the next as soon as the one before serves."""
    if not arena.may_lose_a_broker():
        return None
    return _roll(arena, arena.chance.sample(arena.kafka.brokers, len(arena.kafka.brokers)))


def _roll(arena: Arena, left: Sequence[int]) -> Started:
    first, *rest = left
    part = _take_down(arena, first, arena.kafka.stop_broker, "restarted", _RESTART)

    def end() -> Started | None:
        part.end()
        return _roll(arena, rest) if rest else None

    then = f", then {' and '.join(map(str, rest))}" if rest else ""
    # Whoever has an office now goes down with it, sooner or later.
    return replace(part, what=part.what + then, end=end, roles=(COORDINATOR, "controller"))


def coordinator_move(arena: Arena) -> Started | None:
    """The group's coordinator moves to another broker; leaders go back to the preferred ones."""
    partition = arena.coordination()
    if arena.down or partition is None:
        return None
    others = [b for b in partition.isrs if b != partition.leader]
    if not others:
        return None
    new = arena.chance.choice(others)
    order = [new, *(b for b in partition.replicas if b != new)]
    try:
        prefer(arena.kafka.admin_servers, _OFFSETS, partition.id, order)
        admin = arena.kafka.admin()  # until it has answered
        admin.elect_leaders(ElectionType.PREFERRED).result(10)
        wait_until(lambda: _leads(arena, new), "it does not move", _MOVING)
    except (ConnectionError, KafkaException, TimeoutError):
        return None
    return Started(what=f"{_OFFSETS} {partition.id}: from broker {partition.leader} to {new}")


def _leads(arena: Arena, broker: int) -> bool:
    partition = arena.coordination()
    return partition is not None and partition.leader == broker


def growth(arena: Arena) -> Started | None:
    """One more partition."""
    if arena.down or arena.partitions >= arena.most_partitions:
        return None
    arena.partitions += 1
    new = [NewPartitions(arena.crew.topic, arena.partitions)]
    admin = arena.kafka.admin()
    for done in admin.create_partitions(new).values():
        done.result(30)
    arena.load.widen(arena.partitions)
    return Started(what=f"the topic has {arena.partitions} partitions")


def topic_deleted(arena: Arena) -> Started | None:
    """The topic beside goes as a round begins, for one leaves and a new one comes; it comes back.

    Members hear of it in the round: whoever leads it may give away what is no more.
    """
    if arena.down or arena.aside_is_gone or not (arena.aside and arena.victims()):
        return None
    admin = arena.kafka.admin()
    (asked,) = admin.delete_topics(
        [arena.aside], operation_timeout=_ASKED, request_timeout=_ASKED
    ).values()
    try:
        asked.result()
    except KafkaException:
        _is_made(arena)  # no answer is no refusal: it may be gone, or soon
        return None
    arena.aside_is_gone = True
    lasting = timedelta(seconds=arena.chance.uniform(2, 8))
    left = leave(arena) or Started(what="nobody left")  # all but a few have ended just now
    what = f"{arena.aside} deleted for {lasting.total_seconds():.1f} s; {left.what}"
    return replace(left, what=what, ends=lasting, end=lambda: _comes_back(arena, _ASKINGS))


def _comes_back(arena: Arena, askings: int) -> Started | None:
    """Asks for it; another part of the fault asks again, for brokers that are down can't help."""
    if not arena.down:
        if _is_made(arena):
            arena.aside_is_gone = False
            return None
        if not askings:
            raise TimeoutError(f"{arena.aside} does not come back")
        askings -= 1
    again = partial(_comes_back, arena, askings)
    return Started(what="", ends=_ASKED_AGAIN, end=again)


def _is_made(arena: Arena) -> bool:
    """Has it made, and looks: brokers call one that they still delete one that exists."""
    admin = arena.kafka.admin()
    wanted = NewTopic(arena.aside, num_partitions=ASIDE, replication_factor=3)
    (asked,) = admin.create_topics(
        [wanted], operation_timeout=_ASKED, request_timeout=_ASKED
    ).values()
    with suppress(KafkaException):
        asked.result()
    seen = peek(admin)
    return seen is not None and leaders(seen, arena.aside) == ASIDE


FAULTS: Final[Mapping[str, tuple[Fault, int]]] = {
    KILL: (kill, 12),
    "member left": (leave, 10),
    "member drained": (drain, 5),
    SLOW: (slow, 6),
    "member paused within its session": (pause, 8),
    "member paused at the session's edge": (edge, 6),
    "member paused beyond its session": (zombie, 8),
    "network: latency": (latency, 6),
    "network: loss": (loss, 6),
    "network: bandwidth": (bandwidth, 4),
    "network: half-open": (half_open, 6),
    "network: refused": (refuse, 4),
    "network: reset": (reset, 8),
    "network: cut mid-frame": (cut_mid_frame, 8),
    "broker restarted": (broker_restart, 4),
    "broker killed": (broker_kill, 3),
    "broker out of disk": (disk_full, 2),
    "brokers restarted in turn": (rolling_restart, 1),
    MOVED: (coordinator_move, 5),
    "topic grown": (growth, 2),
    DELETED: (topic_deleted, 3),
}
"""Each fault by its name, and its weight when one is drawn by chance."""


class Deck:
    """Draws faults: each kind once, in random order, then any by its weight.

    So a run that is long enough has all of them, whatever its chance.

    Args:
        chance: Orders them; the same chance, the same order.
        names: Of `FAULTS`.
    """

    def __init__(self, chance: random.Random, names: Sequence[str] = tuple(FAULTS)) -> None:
        self._names = tuple(names)
        self._due = chance.sample(self._names, len(self._names))

    def draw(self, arena: Arena) -> tuple[str, Started] | None:
        """The next of those that are due and can be had now; if none can, one by its weight.

        None: of ten by their weight none can.
        """
        weights = [FAULTS[name][1] for name in self._names]
        for name in (*self._due, *arena.chance.choices(self._names, weights, k=10)):
            if (started := FAULTS[name][0](arena)) is not None:
                if name in self._due:
                    self._due.remove(name)
                return name, started
        return None
