"""A group under random faults, then judged.

    run="python -m kafka_coop.testing.trial.run"
    $run --faults 1000 --minutes 60 --members 20 --result long.json
    $run --faults 30 --minutes 2 --members 6 --result short.json
    $run --faults 30 --minutes 2 --members 6 --others 2 --result mixed.json
    $run --faults 30 --minutes 2 --members 6 --transactions --result exactly-once.json

Three brokers from their jars, each behind a proxy; members of ours, and with --others of Java's and
librdkafka's, each a process, under load.
Ends with status 1 where a partition had two owners, or none for too long, a record was lost, the
group's offsets are wrong, a member failed or a short pause cost it something, half of the load did
not come, (with --transactions) the output differs from the input, or fewer faults came than were
planned; with 2 where no Java or no jars are to be had. `judge_again.py` judges the
journals anew. `report.py` makes docs/RELIABILITY.md of the results.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition

from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.testing.ending import end_in_order_at_sigterm
from kafka_coop.testing.local import LocalKafka
from kafka_coop.testing.trial.assess import assess
from kafka_coop.testing.trial.copies import PARTITIONS as OUTPUTS
from kafka_coop.testing.trial.copies import Record, explain, read_copies, wait_for_copies
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.ending import REASONS
from kafka_coop.testing.trial.faults import ASIDE, FAULTS, OTHERS, Arena, Deck, Started
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.origin import origin_now
from kafka_coop.testing.trial.outcome import DELETED, NANO, RESULT, Injected, Plan, Result
from kafka_coop.testing.unavailable import KafkaUnavailableError

_LOOK: Final = 0.5
_ASKED: Final = 10.0
_WORDS: Final = 2000
_PATIENCE: Final = timedelta(minutes=5)
_SETTLING: Final = timedelta(minutes=4)
_GRACE: Final = timedelta(minutes=5)
"""More time, at least, for the faults of a plan than it says: brokers may start slowly."""
SAFE: Final = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
"""What a broker acknowledged must be on two: one of three may die at any time."""


def run(
    plan: Plan, folder: Path, kafka: LocalKafka, say: Callable[[str], object] = lambda _: None
) -> Result:
    """Carries a plan out on a cluster of three with proxies.

    Args:
        plan: What is to be done.
        folder: For the journals and, however it ends, the result: existing, empty.
        kafka: The cluster, with the properties `SAFE`.
        say: Is told of each fault.

    Raises:
        TimeoutError: The group did not settle afterwards. What is in `folder` says more.
    """
    result = Result(plan=plan.to_dict(), origin=origin_now(kafka.version))
    try:
        _carry_out(plan, folder, kafka, result, say)
    except BaseException as error:
        result.failed.append(f"the run itself: {error!r}")
        raise
    finally:
        (folder / RESULT).write_text(result.to_json() + "\n")
    return result


def _names(plan: Plan) -> tuple[str, ...]:
    return plan.only or tuple(FAULTS)


def _carry_out(
    plan: Plan, folder: Path, kafka: LocalKafka, result: Result, say: Callable[[str], object]
) -> None:
    topic = f"trial-{time.time_ns()}"
    output = f"{topic}-out" if plan.transactions else ""
    aside = f"{topic}-aside" if DELETED in _names(plan) else ""
    kafka.create_topic(topic, partitions=plan.partitions, replication_factor=3)
    if aside:
        kafka.create_topic(aside, partitions=ASIDE, replication_factor=3)
    if output:
        kafka.create_topic(output, partitions=OUTPUTS, replication_factor=3)
    config = {
        "session.timeout.ms": plan.session // timedelta(milliseconds=1),
        "topic.metadata.refresh.interval.ms": 1000,
    }
    with (
        Crew(kafka.bootstrap_servers, topic, topic, folder, config) as crew,
        Load(kafka.admin_servers, topic, plan.partitions, plan.rate) as load,
    ):
        arena = Arena(
            kafka=kafka,
            crew=crew,
            load=load,
            chance=random.Random(plan.seed),  # noqa: S311  # chance, no secret
            session=plan.session,
            partitions=plan.partitions,
            most_partitions=2 * plan.partitions,
            output=output,
            aside=aside,
        )
        for _ in range(plan.members - plan.others):
            arena.recruit()
        for client in itertools.islice(itertools.cycle(OTHERS), plan.others):
            arena.recruit(client)
        _until_whole(arena)
        _torment(plan, arena, result, say)
        say("settling")
        _until_whole(arena)
        load.stop()  # raises where the brokers did not take it all
        result.ends = kafka.end_offsets(topic)
        if sum(result.ends.values()) < plan.rate * plan.lasting.total_seconds() / 2:
            result.failed.append(f"of the load less than half was produced: {result.ends}")
        if output:
            wait_for_copies(kafka.admin_servers, output, _produced(result.ends))
        else:
            _until_read(arena, result.ends)
        _mourn(arena, result)
        crew.close_all(forgiven=REASONS)
        _mourn(arena, result)
        if output:
            # Only now: whoever takes over from one that closes may copy something once more.
            _compare(kafka, output, result.ends, result)
        result.endings = _endings(crew.statuses())
        result.killed, result.committed = dict(crew.killed), _committed(arena, result.ends)
        assess(result, crew.journals())


class _Ends:
    """Faults under way, each with the moment at which it, or a part of it, is over.

    Attributes:
        over: Those that are, by number: monotonic nanoseconds.
        in_vain: Those of which a part was: see `Injected.in_vain`.
    """

    def __init__(self) -> None:
        self.over: dict[int, int] = {}
        self.in_vain: set[int] = set()
        self._heap: list[tuple[float, int, Started]] = []

    def add(self, began: float, number: int, started: Started) -> None:
        """Adds the fault of that number, unlike any other under way."""
        heapq.heappush(self._heap, (began + started.ends.total_seconds(), number, started))
        if started.in_vain:
            self.in_vain.add(number)

    def until(self, moment: float) -> None:
        """Ends, each in its time, those that are over by then."""
        while self._heap and self._heap[0][0] <= max(moment, time.monotonic()):
            _wait_until(self._heap[0][0])
            _, number, started = heapq.heappop(self._heap)
            if (rest := started.end()) is not None:
                self.add(time.monotonic(), number, rest)
            else:
                ended = started.ended
                self.over[number] = time.monotonic_ns() if ended is None else ended()
        _wait_until(moment)

    def all(self) -> None:
        """Ends the rest in their time.

        What is judged must be whole, and the cluster for whoever uses it next.
        """
        while self._heap:
            self.until(self._heap[0][0])


def _torment(plan: Plan, arena: Arena, result: Result, say: Callable[[str], object]) -> None:
    pace = plan.lasting.total_seconds() / plan.faults
    began, ends = time.monotonic(), _Ends()
    injected: list[Injected] = []
    deck = Deck(arena.chance, _names(plan))
    # A machine that is too slow for the pace suffers fewer, rather than for hours.
    grace = max(plan.lasting / 2, _GRACE).total_seconds()
    last, earliest = began + plan.lasting.total_seconds() + grace, began
    try:
        while len(injected) < plan.faults and time.monotonic() < last:
            ends.until(max(began + len(injected) * pace, earliest))
            arena.kafka.require_brokers()
            for name in _mourn(arena, result):
                if not arena.crew.was_told_to_leave(name):  # then another has come already
                    arena.replace(name)
            at = time.monotonic_ns()
            if (drawn := deck.draw(arena)) is None:
                began += pace  # nothing can be had now: everything else is later
                continue
            name, started = drawn
            at = started.began or at
            ends.add(at / NANO, len(injected), started)
            injected.append(_entry(at, name, started))
            say(f"{len(injected)} {name}: {started.what}")
            # What a broker's slow start has held up comes after it, but not all at once.
            earliest = time.monotonic() + pace / 2
    finally:
        try:
            ends.all()
        finally:
            result.others = sorted(arena.others)
            over = ends.over  # without one that could not be ended
            result.faults = [
                replace(f, until=over.get(n, 0), in_vain=n in ends.in_vain)
                for n, f in enumerate(injected)
            ]


def _entry(at: int, name: str, started: Started) -> Injected:
    return Injected(
        at=at,
        name=name,
        what=started.what,
        lasting=started.ends.total_seconds(),
        member=started.member,
        roles=started.roles,
    )


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _mourn(arena: Arena, result: Result) -> list[str]:
    """A member that ended by itself: with a transaction in doubt it may; else it has failed.

    Like one that was killed it has not heard of what the group did meanwhile, and tells of no end
    of what it owned.
    """
    dead, statuses = arena.crew.deserters(), arena.crew.statuses()
    for name in dead:
        arena.crew.killed[name] = time.monotonic_ns()
        if (status := statuses[name]) not in REASONS:
            words = arena.crew.last_words(name)[-_WORDS:]
            result.failed.append(f"{name} ended with status {status}: {words}")
    return dead


def _endings(statuses: Mapping[str, int]) -> dict[str, list[str]]:
    """Who ended by itself as it may, by the reason; then the output is judged."""
    found: dict[str, list[str]] = {}
    for name, status in statuses.items():
        if status in REASONS:
            found.setdefault(REASONS[status], []).append(name)
    return found


def _until_whole(arena: Arena) -> None:
    def whole() -> bool:
        time.sleep(_LOOK)  # reading all journals takes a while: not all the time
        if not arena.crew.running and (gone := arena.crew.deserters()):
            raise RuntimeError(f"no member runs: {arena.crew.last_words(gone[0])}")
        owned = {name: arena.crew.owned(name) for name in arena.crew.running}
        idle = [name for name, partitions in owned.items() if not partitions]
        if len(idle) > (ASIDE if arena.aside else 0):
            return False
        counts = sum(map(len, owned.values()))
        one_owner = counts == arena.partitions == len(set().union(*owned.values()))
        joined = all(map(arena.crew.has_joined, idle))
        return one_owner and joined and _is_the_group(arena)

    try:
        wait_until(whole, "the group does not settle", _SETTLING)
    except TimeoutError as error:
        said = []
        for name in arena.crew.running:
            arena.crew.ask_what_it_does(name)
            said.append(
                f"{name} owns {sorted(arena.crew.owned(name))}: {arena.crew.last_words(name)}"
            )
        raise TimeoutError("\n".join([str(error), *said])) from None


def _is_the_group(arena: Arena) -> bool:
    """Whether those that run are its members, and nobody else, as the coordinator says.

    A member that has left by itself, and whose process goes on, owns nothing, as an idle one.
    """
    group = arena.crew.group
    admin = arena.kafka.admin()  # kept: without it nothing is answered
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=_ASKED)[group]
        described = asked.result(2 * _ASKED)
    except (KafkaException, TimeoutError):
        return False
    members = sorted(member.client_id for member in described.members)
    is_stable = described.state == ConsumerGroupState.STABLE
    return is_stable and members == sorted({*arena.crew.running} - arena.crew.leaving)


def _until_read(arena: Arena, ends: Mapping[int, int]) -> None:
    def read() -> bool:
        time.sleep(_LOOK)
        seen = {
            (e.partitions[0], e.offset)
            for events in arena.crew.journals().values()
            for e in events
            if e.kind == "R"
        }
        return len(seen) >= sum(ends.values())

    try:
        wait_until(read, "not all was read", _SETTLING)
    except TimeoutError:
        return  # the judge says what


def _produced(ends: Mapping[int, int]) -> set[Record]:
    return {(p, o) for p, end in ends.items() for o in range(end)}


def _compare(kafka: KafkaCluster, output: str, ends: Mapping[int, int], result: Result) -> None:
    """Exactly once, end to end: what read_committed sees is the input."""
    wanted = _produced(ends)
    found = read_copies(kafka.admin_servers, output, wanted)
    once = {copy.of for copy in found}
    result.copied, result.copied_twice = len(found), len(found) - len(once)
    result.never_copied = len(wanted - once)
    result.not_once = explain(kafka.admin_servers, output, wanted, found)


def _committed(arena: Arena, ends: Mapping[int, int]) -> dict[int, int]:
    """The group's offsets."""
    asked = [TopicPartition(arena.crew.topic, partition) for partition in ends]
    settings = {"bootstrap.servers": arena.kafka.admin_servers, "group.id": arena.crew.group}
    with Consumer(settings) as reader:
        found = reader.committed(asked, timeout=_PATIENCE.total_seconds())
    return {where.partition: where.offset for where in found}


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line. What can't be done is refused here, not after the run of an hour."""
    parser = argparse.ArgumentParser(prog="kafka_coop.testing.trial.run")
    parser.add_argument("--faults", type=_count, default=30, help="how many (default: 30)")
    parser.add_argument("--minutes", type=_minutes, default=2.0, help="in how long (default: 2)")
    parser.add_argument("--members", type=_count, default=6, help="of the group (default: 6)")
    parser.add_argument(
        "--others",
        type=_not_below_zero,
        default=0,
        help="how many of them are Java's and librdkafka's (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of chance (default: 1)")
    parser.add_argument("--rate", type=_count, default=200, help="records a second (default: 200)")
    parser.add_argument("--transactions", action="store_true", help="copy exactly once")
    parser.add_argument("--journals", type=Path, help="keep journals and result in this new folder")
    parser.add_argument("--result", type=Path, help="write what became of it, as JSON")
    given = parser.parse_args(arguments)
    if given.others >= given.members:
        parser.error(f"--others {given.others}: fewer than --members, {given.members}")
    if given.others and given.transactions:
        parser.error("--others: with --transactions members of ours alone copy")
    if given.result and not _can_be_written(given.result, given.journals):
        parser.error(f"--result {given.result}: can't be written there: name another")
    if given.journals:
        try:
            given.journals.mkdir(parents=True)
        except OSError as error:
            parser.error(f"--journals {given.journals}: {error.strerror}: name a new folder")
    return given


def _can_be_written(result: Path, journals: Path | None) -> bool:
    """Journals' folder is yet to be made."""
    if journals is not None and result.parent.absolute() == journals.absolute():
        return True
    return os.access(result.parent, os.W_OK | os.X_OK) and not result.is_dir()


def _count(text: str) -> int:
    return int(_above_zero(int, text))


def _not_below_zero(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= 0:
            return number
    raise argparse.ArgumentTypeError(f"a number, 0 or above, not {text!r}")


def _minutes(text: str) -> float:
    minutes = _above_zero(float, text)
    try:
        timedelta(minutes=minutes)
    except OverflowError:
        raise argparse.ArgumentTypeError(f"less than a million years, not {text!r}") from None
    return minutes


def _above_zero(kind: Callable[[str], float], text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := kind(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"a number above 0, not {text!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a plan. Returns the exit status."""
    given = _parsed(arguments)
    plan = Plan(
        faults=given.faults,
        lasting=timedelta(minutes=given.minutes),
        members=given.members,
        others=given.others,
        seed=given.seed,
        rate=given.rate,
        transactions=given.transactions,
    )
    end_in_order_at_sigterm()
    with ExitStack() as stack:
        folder = given.journals or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            kafka = LocalKafka(brokers=3, proxied=True, properties=SAFE, start_timeout=_PATIENCE)
        except KafkaUnavailableError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        stack.enter_context(kafka)
        result = run(plan, folder, kafka, lambda text: sys.stderr.write(f"{text}\n"))
    return result.hand_in(given.result)


if __name__ == "__main__":
    sys.exit(main())
