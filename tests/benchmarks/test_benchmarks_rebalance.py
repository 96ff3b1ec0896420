"""When a benchmark's group is settled, its members, and its load where the producer is full."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import benchmarks.group
import benchmarks.load
from benchmarks.group import CREWS, HEARTBEAT, MEMBERS, PARTITIONS, RATE, Group
from benchmarks.load import load
from benchmarks.rebalance import add_phases
from benchmarks.settled import MemberLog, settled
from kafka_coop.testing.cluster import KafkaCluster, wait_until


def member(path: Path, *lines: str) -> MemberLog:
    """A member that wrote these lines."""
    path.write_text("".join(f"1700000000000000000 {line}\n" for line in lines))
    log = MemberLog(path)
    log.read_on()
    return log


def test_a_group_is_settled_once_all_is_owned_evenly_and_delivered(tmp_path: Path) -> None:
    logs = {
        0: member(tmp_path / "0", "+ 0,1,2", "r 0 5", "r 1 5", "r 2 5", "- 2"),
        1: member(tmp_path / "1", "+ 2,3"),
    }
    assert not settled(logs, 4), "what is new there has delivered nothing yet"
    assert str(logs[1]) == "owns partitions 2-3, silent: partitions 2-3"
    with logs[1].path.open("a") as out:
        out.write("1700000000000000000 r 2 6\n1700000000000000000 r 3 6\n17000000000000")
    logs[1].read_on()
    assert settled(logs, 4)
    assert not settled(logs, 5), "nobody has the fifth"
    with logs[1].path.open("a") as out:
        out.write("00000 - 3\n")
    logs[1].read_on()
    assert not settled(logs, 4), "a line that was not whole is read once it is"


def test_who_comes_back_has_to_deliver_again(tmp_path: Path) -> None:
    log = member(tmp_path / "0", "+ 0", "r 0 5", "- 0", "r 0 6", "+ 0")
    assert not settled({0: log}, 1)


@pytest.mark.parametrize(
    ("first", "second"), [(["+ 0,1,2"], []), (["+ 0,1"], ["+ 1,2"]), (["+ 0"], ["+ 1"])]
)
def test_what_is_no_settled_group(tmp_path: Path, first: list[str], second: list[str]) -> None:
    logs = {}
    for number, lines in enumerate((first, second)):
        given = [f"r {p} 7" for line in lines for p in line[2:].split(",")]
        logs[number] = member(tmp_path / str(number), *lines, *given)
    assert not settled(logs, 3)


@pytest.mark.parametrize(
    ("crew", "leader", "newcomer"),
    [
        ("mixed", "kafka_coop", "kafka_coop"),
        ("mixed-java-leads+drain", "java", "kafka_coop"),
        ("mixed-librdkafka-leads", "cooperative-sticky", "kafka_coop"),
        ("mixed-java-joins", "kafka_coop", "java"),
        ("mixed-librdkafka-joins", "kafka_coop", "cooperative-sticky"),
        ("theirs", "java", "java"),
        ("java", "java", "java"),
    ],
)
def test_a_crew_says_who_leads_and_who_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: str, leader: str, newcomer: str
) -> None:
    clients: list[str] = []

    def command(client: str) -> list[str]:
        clients.append(client)
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(benchmarks.group, "_member", command)
    group = Group(crew, "nowhere:1", "t", tmp_path)
    for _ in range(MEMBERS + 1):
        group.start()
    group.start(like=0)
    group.start(like=1)
    group.stop()
    assert clients[0] == leader
    assert clients[MEMBERS] == newcomer
    assert clients[MEMBERS + 1 :] == clients[:2], "successors are the same client's"


def test_a_mixed_group_is_the_same_four_whoever_leads_or_joins() -> None:
    crews = {name: crew for name, crew in CREWS.items() if name.split("-")[0] == "mixed"}
    assert {tuple(sorted(crew[:MEMBERS])) for crew in crews.values()} == {
        ("cooperative-sticky", "java", "kafka_coop", "kafka_coop")
    }


def test_a_group_that_does_not_settle_says_who_owns_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.group, "PATIENCE", 0.0)
    group = Group("kafka_coop", "nowhere:1", "t", tmp_path)
    for _ in range(2):
        group.processes.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1))
    group._reading, group._waiting = {0}, {1}
    try:
        (log,) = [group._log(0)]
        log.write_text("1 + 0,1,2,5\n1 r 0 1\n")
        with pytest.raises(
            RuntimeError, match="0 owns partitions 0-2, 5, silent: partitions 1-2, 5"
        ):
            group.settle()
        with pytest.raises(RuntimeError, match="1 is not ready"):
            group.settle()
    finally:
        for process in group.processes:
            process.communicate(b"\n")
    with pytest.raises(RuntimeError, match=r"members \[0, 1\] have ended"):
        group.settle()


class Process:
    """Notes when it is stopped and continued."""

    def __init__(self, now: Callable[[], float], ended: int | None = None) -> None:
        self.sent: list[tuple[float, int]] = []
        self._now = now
        self._ended = ended

    def poll(self) -> int | None:
        return self._ended

    def send_signal(self, sent: int) -> None:
        self.sent.append((self._now(), sent))


def test_a_group_rests_from_the_look_that_saw_it_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the look before: it may have settled just before this one."""
    elapsed = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: elapsed[0])
    group = Group("kafka_coop", "nowhere:1", "t", tmp_path)
    group.processes = [Process(time.monotonic)]  # type: ignore[list-item]  # what is asked of it
    group._reading = {0}

    def sleep(seconds: float) -> None:
        elapsed[0] += seconds
        if elapsed[0] == 103:
            of_all = range(PARTITIONS)
            member(group._log(0), f"+ {','.join(map(str, of_all))}", *(f"r {p} 1" for p in of_all))

    monkeypatch.setattr(time, "sleep", sleep)
    group.settle(rest=2.0)
    assert elapsed == [105]
    group.settle(rest=0.0)
    assert elapsed == [106]


@pytest.mark.parametrize("apart", [0.02, 0.6])
def test_members_are_stopped_so_that_they_beat_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: float
) -> None:
    elapsed = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: elapsed[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: elapsed.append(elapsed.pop() + seconds))
    clock = time.monotonic
    running = [Process(clock) for _ in range(4)]
    ended, waiting = Process(clock, ended=-9), Process(clock)
    group = Group("kafka_coop", "nowhere:1", "t", tmp_path)
    group.processes = [ended, *running, waiting]  # type: ignore[list-item]  # what is asked of them
    group._waiting = {5}
    first = group.beat(apart)
    for place, process in enumerate(running):
        assert [sent for _, sent in process.sent] == [signal.SIGSTOP, signal.SIGCONT] * 2
        assert process.sent[-1][0] == pytest.approx(first + apart * place)
        assert beats(process.sent, HEARTBEAT) == pytest.approx([process.sent[-1][0]] * 30)
    assert not ended.sent
    assert not waiting.sent


def test_a_phase_that_there_is_not_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_phases(parser)
    assert parser.parse_args([]).phases == ["in phase", "spread"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--phases", "spread,out of phase"])
    assert "'out of phase' is none of in phase, spread, as left" in capsys.readouterr().err


def beats(signals: list[tuple[float, int]], interval: float) -> list[float]:
    """When members beat as the last stop ends, by when the one before the first was sent.

    None is silent for a session of two intervals.
    """
    edges = [at for at, _ in signals]
    stops = list(zip(edges[::2], edges[1::2], strict=True))
    found = []
    for i in range(30):
        last = edges[0] - interval * i / 30
        due = last
        while due < edges[-1]:
            due = last + interval
            due = next((end for start, end in stops if start <= due < end), due)
            assert due - last < 2 * interval - 0.5
            last = due
        found.append(due)
    return found


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Group]:
    """A group of one member, which is ready and waits to be told to go."""
    group = Group("kafka_coop", "nowhere:1", "t", tmp_path)
    group.start(wait=True)
    wait_until(group._log(0).exists, "the member is not ready", timedelta(seconds=60))
    yield group
    group.stop()


def test_who_waits_ends_when_told_to(waiting: Group) -> None:
    waiting.terminate(0)
    assert waiting.processes[0].wait(60) == 0
    assert waiting._log(0).read_text() == ""


def test_who_waits_ends_when_nobody_is_left_to_tell_it(waiting: Group) -> None:
    (process,) = waiting.processes
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.timeout(400)
def test_members_of_three_clients_log_alike(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = f"mixed-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    group = Group("mixed", kafka.bootstrap_servers, topic, tmp_path)
    patient = "session.timeout.ms=45000"  # a busy machine's members are not to lose each other
    with load(kafka.bootstrap_servers, topic, PARTITIONS, RATE):
        try:
            group.start_all([patient], [patient], [patient])
            group.start(patient, wait=True, stay=True)
            group.settle()
            start = time.time()
            group.go(3)
            group.settle(rest=1.0)
            end = time.time()
            group.terminate(3)
            group.settle()
            assert group.processes[3].poll() is None, "its consumer has left, and it stays"
        finally:
            group.stop()
    assert group.processes[3].returncode == 0, "it ends when its input does"
    history = group.history()
    cost = history.cost(start, end)
    assert len(cost.latencies) == sum(
        start <= d.at < end - 0.3 for all_ in history.deliveries.values() for d in all_
    )
    assert cost.moved == PARTITIONS // 4, f"from {start} to {end}: {history.changes}"
    assert cost.missing == 0
    assert cost.convergence is not None
    assert cost.convergence.seconds is not None
    assert cost.convergence.rounds >= 2
    for number in range(4):
        kinds = {line.split()[1] for line in group._log(number).read_text().splitlines()}
        assert kinds == {"r", "g", "+", "-"}, number


def test_a_load_is_of_all_partitions_alike(kafka: KafkaCluster) -> None:
    topic = f"load-{time.time_ns()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    with load(kafka.bootstrap_servers, topic, PARTITIONS, rate=1000):
        wait_until(
            lambda: sum(kafka.end_offsets(topic).values()) > 10 * PARTITIONS,
            "no records come",
            timedelta(seconds=60),
        )
    counts = kafka.end_offsets(topic).values()
    assert len(counts) == PARTITIONS
    assert max(counts) - min(counts) <= 1, "as soon as the block has ended"


def assert_not_sound(servers: str, topic: str, partitions: int, why: str) -> None:
    loaded = load(servers, topic, partitions, RATE)
    with pytest.raises(RuntimeError, match=why), loaded as process:
        process.wait(60)


def test_a_load_that_ends_by_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.load, "client_program", lambda _: [sys.executable, "-c", ""])
    why = "the load ended before it was told to, with status 0"
    assert_not_sound("nowhere:1", "t", PARTITIONS, why)


def test_a_record_that_is_not_taken_is_told(
    kafka: KafkaCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = f"load-{time.time_ns()}"
    needs_keys = {"cleanup.policy": "compact"}
    kafka.create_topic(topic, config=needs_keys)
    assert_not_sound(kafka.bootstrap_servers, topic, 1, "with status 1")
    assert "InvalidRecordException" in capfd.readouterr().err
