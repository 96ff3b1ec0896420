"""Members in processes of their own: killed, stopped, interrupted, forked."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from integration_support import (
    PATIENCE,
    Cluster,
    Kind,
    Member,
    members,
    publish,
    settings,
    shared,
    since_kip_848,
    unique,
    until,
)

from kafka_coop import CoopConsumer
from kafka_coop.testing import EmbeddedKafka

_CHILD = Path(__file__).with_name("integration_child.py")


class Child:
    """A member in a process of its own.

    Args:
        program: See `integration_child.run`; empty: `how` says what it does.
        tree: Where the package is that it imports; None: where ours is.

    Attributes:
        said: What it said, with the moment it was heard.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        how: str = "poll",
        *,
        program: str = "",
        tree: Path | None = None,
        **config: Any,
    ) -> None:
        job = {"config": settings(cluster, group, **config), "topics": [topic], "how": how}
        if program:
            job["program"] = program
        self.said: list[tuple[float, list[Any]]] = []
        self.process = subprocess.Popen(
            [sys.executable, str(_CHILD), json.dumps(job)],
            env=None if tree is None else {**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append((time.monotonic(), json.loads(line)))

    def heard(self, kind: str) -> list[list[Any]]:
        return [said for _, said in list(self.said) if said[0] == kind]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def owned(self) -> list[tuple[str, int]]:
        owned: set[tuple[str, int]] = set()
        for _, (kind, *rest) in list(self.said):
            if kind == "assigned":
                owned |= {(t, p) for t, p in rest[0]}
            elif kind in ("revoked", "lost"):
                owned -= {(t, p) for t, p in rest[0]}
        return sorted(owned)


@contextmanager
def child(cluster: Cluster, group: str, topic: str, **options: Any) -> Iterator[Child]:
    made = Child(cluster, group, topic, **options)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.verdict
def test_a_killed_member_is_missed_and_its_work_done_again(cluster: Cluster) -> None:
    """Crash, then restart: everything is read, and what was committed is not read again."""
    topic, group = unique("t"), unique("g")
    cluster.create_topic(topic, partitions=4)
    publish(cluster, topic, 5, 0, 1, 2, 3)
    survivor = Member(cluster, group, topic)
    with members(survivor), child(cluster, group, topic, auto_commit_interval_ms=20) as victim:
        until(lambda: len(victim.owned) == 2 and len(survivor.owned) == 2, survivor)
        publish(cluster, topic, 5, 0, 1, 2, 3)
        theirs = victim.owned
        until(lambda: len(victim.heard("record")) >= 10, survivor)
        victim.send(signal.SIGKILL)
        shared(topic, 4, survivor)
        everything = {(topic, p, o) for p in range(4) for o in range(10)}

        def all_read() -> bool:
            read = {(t, p, o) for _, t, p, o in victim.heard("record")} | {*survivor.records}
            return read == everything

        until(all_read, survivor)

        def at_the_end() -> bool:
            """The survivor, too: what the victim had read and not committed it reads again."""
            at = survivor.consumer.position(survivor.consumer.assignment())
            return [p.offset for p in at] == [10] * 4

        until(at_the_end, survivor)
        assert not survivor.calls("lost")
        taken = {pair for call in survivor.calls("revoked") for pair in call}
        assert taken <= {*theirs}  # its own were not disturbed by the crash
        if isinstance(cluster, EmbeddedKafka):
            # Where a round outlasts its on_revoke, the mock refuses what Kafka takes there.
            # Named, for what is committed by the clock meanwhile leaves a plain commit nothing.
            at = survivor.consumer.position(survivor.consumer.assignment())
            survivor.consumer.commit(offsets=at, asynchronous=False)
        with child(cluster, group, topic) as restarted:
            until(lambda: len(restarted.owned) == 2, survivor)
            publish(cluster, topic, 1, 0, 1, 2, 3)
            until(lambda: len(restarted.heard("record")) >= 2, survivor)
            assert {o for _, _, _, o in restarted.heard("record")} == {10}


@pytest.mark.verdict
@pytest.mark.parametrize("how", ["blocked", "consume"])
def test_ctrl_c_interrupts_a_blocked_call(embedded: EmbeddedKafka, how: str) -> None:
    """And what consume had gathered is neither lost nor committed.

    A member that is starved may lose its session, or be interrupted while it says a record: then
    it says some of them again.
    """
    topic, group = unique("t"), unique("g")
    embedded.create_topic(topic)
    with child(embedded, group, topic, how=how) as process:
        until(lambda: bool(process.owned))
        publish(embedded, topic, 3, 0)
        if how == "blocked":
            until(lambda: _offsets(process) == {0, 1, 2})
        else:
            # It has taken the three out of librdkafka when its fetches are at the end of the log.
            embedded.track_requests()
            until(lambda: sum(r.api == "Fetch" for r in embedded.requests()) > 5)
        process.send(signal.SIGINT)
        assert process.process.wait(PATIENCE) == 0
        until(lambda: bool(process.heard("closed")))
        assert process.heard("interrupted")
        # consume() returns early with what it has where the group has news.
        read = _offsets(process)
        assert (read == {0, 1, 2}) == (how == "blocked")
    after = Member(embedded, group, topic)
    with members(after):
        publish(embedded, topic, 1, 0)
        until(lambda: (topic, 0, 3) in after.records, after)
        assert read | {o for _, _, o in after.records} == {0, 1, 2, 3}


def _offsets(process: Child) -> set[int]:
    return {offset for _, _, _, offset in process.heard("record")}


@pytest.mark.parametrize("moment", ["at once", "joining", "in the group"])
def test_sigterm_leaves_promptly_in_every_state(kafka: Cluster, moment: str) -> None:
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    member = Member(kafka, group, topic, session_timeout_ms=10_000)
    with members(member):
        shared(topic, 2, member)
        with child(kafka, group, topic) as process:
            match moment:
                case "at once":
                    until(lambda: bool(process.heard("started")))
                case "joining":
                    until(lambda: member.count("revoked") > 0, member)
                case _:
                    until(lambda: len(process.owned) == 1, member)
            process.send(signal.SIGTERM)
            until(lambda: process.process.poll() is not None, member)
            assert process.process.returncode == 0
            # A member that has not left is missed after its session, ten seconds from now.
            until(lambda: len(member.owned) == 2, member, within=9)


@pytest.mark.verdict
@pytest.mark.parametrize("busy", [False, True], ids=["at rest", "under load"])
def test_a_service_hands_over_on_sigterm_as_documented(kafka: Cluster, busy: bool) -> None:
    """docs/LEAVING.md's own lines run in the child, and are interrupted within poll()."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=4)
    publish(kafka, topic, 20, *range(4))
    heir = Member(kafka, group, topic, session_timeout_ms=6000)
    with (
        members(heir),
        child(kafka, group, topic, program=service(), session_timeout_ms=6000) as old,
    ):
        until(lambda: len(old.owned) == 2 and len(heir.owned) == 2, heir)
        mine = {p for _, p in old.owned}
        publish(kafka, topic, 400 if busy else 20, *range(4))
        until(lambda: mine <= {p for _, _, p, o in old.heard("record") if o >= 20}, heir)
        if not busy:
            until(lambda: {(p, 39) for p in mine} <= places(old), heir)
        old.send(signal.SIGTERM)
        until(lambda: old.process.poll() is not None, heir)
        assert old.process.returncode == 0
        until(lambda: bool(old.heard("closed")), heir)
        # A plain leave would give them up within close().
        assert last_told(old) == [
            ["revoked", [[topic, p] for p in sorted(mine)]],
            ["closing"],
            ["closed"],
        ]
        shared(topic, 4, heir)
        publish(kafka, topic, 1, *range(4))
        end = 421 if busy else 41
        until(
            lambda: {(p, end - 1) for p in range(4)} <= {(p, o) for _, p, o in heir.records}, heir
        )
        read = sorted([*((t, p, o) for _, t, p, o in old.heard("record")), *heir.records])
        assert read == [(topic, p, o) for p in range(4) for o in range(end)], "each of them once"
        assert (heir.count("lost"), heir.raised) == (0, [])


def service() -> str:
    """The program that docs/LEAVING.md gives to a service."""
    text = (Path(__file__).parents[2] / "docs" / "LEAVING.md").read_text()
    _, _, after = text.partition("### SIGTERM in a service")
    _, _, program = after.partition("```python\n")
    assert "signal.SIGTERM" in program
    return program.partition("```")[0]


def last_told(process: Child) -> list[list[Any]]:
    """The end of what it said, but for records and callbacks without partitions."""
    told = [said for _, said in process.said if said[0] != "record" and said[1:] != [[]]]
    return told[-3:]


def places(process: Child) -> set[tuple[int, int]]:
    """Where its records came from."""
    return {(partition, offset) for _, _, partition, offset in process.heard("record")}


@pytest.mark.verdict
def test_a_stopped_member_delivers_nothing_before_it_hears_of_its_loss(kafka: Cluster) -> None:
    """SIGSTOP for longer than the session, then SIGCONT: the lease of invariant 1."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=2)
    with child(kafka, group, topic) as zombie:
        until(lambda: len(zombie.owned) == 2)
        publish(kafka, topic, 2, 0, 1)
        until(lambda: len(zombie.heard("record")) == 4)
        heir = Member(kafka, group, topic)
        with members(heir):
            until(lambda: len(heir.owned) == 1 and len(zombie.owned) == 1, heir)
            zombie.send(signal.SIGSTOP)
            try:
                publish(kafka, topic, 5, 0, 1)
                shared(topic, 2, heir)
                until(lambda: {(p, o) for _, p, o in heir.records} >= _from(2, 7), heir)
            finally:
                silent_until = len(zombie.said)
                zombie.send(signal.SIGCONT)
            until(lambda: bool(zombie.heard("lost")), heir)
            after = [said[0] for _, said in zombie.said[silent_until:]]
            assert "record" not in after[: after.index("lost")], after
            until(lambda: len(zombie.owned) == 1 and len(heir.owned) == 1, heir)


def _from(first: int, end: int) -> set[tuple[int, int]]:
    """What the member that was stopped had not read, of the partition that it owned."""
    return {(p, o) for p in (0, 1) for o in range(first, end)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("dropped", [False, True], ids=["used", "collected"])
def test_a_fork_makes_the_childs_copy_unusable(embedded: EmbeddedKafka, dropped: bool) -> None:
    topic = unique("t")
    embedded.create_topic(topic, partitions=2)
    # Collecting and forking take longer than a short session where a worker's tests left it large.
    member = Member(embedded, unique("g"), topic, session_timeout_ms=10_000)
    with members(member):
        shared(topic, 2, member)
        gc.collect()  # other tests' producers: librdkafka crashes where a child frees its parent's
        listening, speaking = os.pipe()
        pid = os.fork()
        if pid == 0:
            _in_the_child(member, speaking, dropped=dropped)
        os.close(speaking)
        with os.fdopen(listening) as said:
            killer = threading.Timer(PATIENCE, os.kill, (pid, signal.SIGKILL))
            killer.start()
            answer = said.read()
            _, status = os.waitpid(pid, 0)
            killer.cancel()
        assert os.waitstatus_to_exitcode(status) == 0  # -9: it hung
        assert answer.startswith("RuntimeError RuntimeError RuntimeError closed")
        assert "fork" in answer
        publish(embedded, topic, 1, 0, 1)
        until(lambda: len(member.records) == 2, member)  # the parent's goes on
        assert not member.calls("lost")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("inside", ["assigned", "revoked"])
def test_the_call_inside_which_a_fork_happens_goes_on_in_the_parent_alone(
    embedded: EmbeddedKafka, inside: Kind
) -> None:
    topic = unique("t")
    embedded.create_topic(topic)
    publish(embedded, topic, 3, 0)
    children: list[int] = []
    listening, speaking = os.pipe()

    def fork(_: CoopConsumer, __: list[TopicPartition]) -> None:
        gc.collect()  # as above
        children.append(os.fork())

    member = Member(embedded, unique("g"), topic, session_timeout_ms=10_000)  # as above
    member.hooks[inside] = fork
    with members(member):
        if inside == "revoked":
            shared(topic, 1, member)
        while not children:
            said = "nothing"
            try:
                call = member.consumer.close if inside == "revoked" else member.step
                call()
            except RuntimeError as error:
                said = f"RuntimeError {error}"
            finally:
                if children == [0]:  # never returns: the child must not run the parent's tests
                    os.write(speaking, said.encode())
                    os._exit(0)
        os.close(speaking)
        with os.fdopen(listening) as answer:
            killer = threading.Timer(20, os.kill, (children[0], signal.SIGKILL))
            killer.start()
            said = answer.read()
            _, status = os.waitpid(children[0], 0)
            killer.cancel()
        assert os.waitstatus_to_exitcode(status) == 0  # -9: it hung
        assert said.startswith("RuntimeError this consumer was made before a fork"), said


def _in_the_child(member: Member, speaking: int, *, dropped: bool) -> None:
    """Never returns: the child must not run the parent's tests."""
    said = []
    text = ""
    calls: list[Callable[[], object]] = [
        lambda: member.consumer.poll(0),
        lambda: member.consumer.consume(1, 0),
        member.consumer.commit,
    ]
    try:
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                said.append("RuntimeError")
                text = str(error)
        member.consumer.close()
        said.append("closed")
        del calls, call
        if dropped:
            del member.consumer
            gc.collect()
        os.write(speaking, f"{' '.join(said)} {text}".encode())
    finally:
        os._exit(0)


def run_script(text: str, cluster: Cluster, **config: Any) -> subprocess.CompletedProcess[str]:
    """Runs it with a configuration and a topic of one record as arguments."""
    topic = unique("t")
    cluster.create_topic(topic, partitions=1)
    publish(cluster, topic, 1, 0)
    return subprocess.run(
        [sys.executable, "-c", text, json.dumps(settings(cluster, unique("g"), **config)), topic],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


_FORKED = """
import json, os, sys
from kafka_coop import CoopConsumer

with CoopConsumer(json.loads(sys.argv[1])) as consumer:
    consumer.subscribe([sys.argv[2]])
    while not consumer.assignment():
        consumer.poll(0.1)
    if not (child := os.fork()):
        sys.exit(7)
    _, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_may_end_as_programs_do(embedded: EmbeddedKafka) -> None:
    """Not by an abort of librdkafka's, whose handle it would free."""
    ended = run_script(_FORKED, embedded)
    assert ended.stdout == "7\n", ended.stderr


_SUSPENDED = """
import json, sys
from kafka_coop import CoopConsumer

def records(config, topic):
    with CoopConsumer(config) as consumer:
        consumer.subscribe([topic])
        try:
            for message in consumer:
                yield message
        finally:
            try:
                consumer.commit(asynchronous=False)
            except RuntimeError as error:
                # Not its traceback: CPython imports for that, and waits for ever where it has
                # stopped a thread amid an import of its own.
                print(error)

some = records(json.loads(sys.argv[1]), sys.argv[2])
next(some)
"""


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=since_kip_848)])
def test_what_comes_too_late_says_so(kafka: Cluster, protocol: str) -> None:
    """The interpreter ends the generator last, when none of our threads runs any more."""
    ended = run_script(_SUSPENDED, kafka, group_protocol=protocol)
    assert ended.returncode == 0
    assert ended.stdout.startswith("the interpreter has begun to end"), "commit"
    assert "is not left: the interpreter has begun to end" in ended.stderr, "close"
