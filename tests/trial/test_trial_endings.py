"""A member that ends by itself has failed, unless it says why with a status of its own."""

from __future__ import annotations

import fcntl
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.trial import crew as crews
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.ending import (
    HANGS,
    NOT_PLACED,
    NOT_ROLLED_BACK,
    OUTCOME_UNKNOWN,
    REASONS,
)
from kafka_coop.testing.trial.faults import Deck, Started
from kafka_coop.testing.trial.outcome import Plan, Result
from kafka_coop.testing.trial.run import _endings, _mourn, _torment

PATIENCE = timedelta(seconds=60)
PLAN = Plan(faults=1, lasting=timedelta(seconds=1), members=1, transactions=True)

UNEXPECTED = {
    "exception": "raise ValueError('bang')",
    "signal": "import os; print('before', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)",
    "in order": "pass",
}


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Crew]]:
    """A crew of one member, that runs a script."""
    with Crew("", "g", "t", tmp_path) as crew:

        def go(script: str) -> Crew:
            command = [sys.executable, "-c", f"import sys; {script}"]
            monkeypatch.setattr(crews, "_python", lambda _: command)
            crew.start("m1", "ours", output="somewhere")
            return crew

        yield go


LIVES = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("is here", file=sys.stderr, flush=True)
time.sleep(600)
"""
A_TRIAL = """
import os, signal, sys, time
from pathlib import Path
from kafka_coop.testing.trial import crew as crews
crews._python = lambda _: [sys.executable, "-c", sys.argv[2], sys.argv[1] + "/lock"]
with crews.Crew("", "g", "t", Path(sys.argv[1])) as crew:
    crew.start("m1", "ours")
    while not crew.last_words("m1"):
        time.sleep(0.01)
    crew.stop("m1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_member_that_is_stopped_dies_with_a_trial_that_is_killed(tmp_path: Path) -> None:
    """It can't hear that its standard input has ended, and would be stopped for ever."""
    killed = subprocess.run(
        [sys.executable, "-c", A_TRIAL, str(tmp_path), LIVES],
        check=False,
        timeout=PATIENCE.total_seconds(),
    )
    assert killed.returncode == -signal.SIGKILL

    def is_gone() -> bool:
        with (tmp_path / "lock").open("r+") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    wait_until(is_gone, "the member is still there", PATIENCE)


def mourned(crew: Crew) -> Result:
    wait_until(lambda: not crew.running, "it does not end", PATIENCE)
    arena: Any = SimpleNamespace(crew=crew, output="somewhere")
    result = Result(plan=PLAN.to_dict())
    assert _mourn(arena, result) == ["m1"]
    assert _mourn(arena, result) == [], "once"
    result.endings = _endings(crew.statuses())
    return result


@pytest.mark.parametrize("death", UNEXPECTED)
def test_a_death_that_nobody_meant_fails_the_trial(crew: Callable[[str], Crew], death: str) -> None:
    result = mourned(crew(UNEXPECTED[death]))
    told = {"exception": "status 1: ", "signal": "status -11: ", "in order": "status 0: "}
    words = {"exception": "ValueError: bang", "signal": "before", "in order": ""}
    (failed,) = result.failed
    assert told[death] in failed
    assert words[death] in failed
    assert not result.sound
    assert result.endings == {}


@pytest.mark.parametrize("status", REASONS)
def test_an_end_for_a_reason_is_counted(crew: Callable[[str], Crew], status: int) -> None:
    result = mourned(crew(f"sys.exit({status})"))
    assert result.sound
    assert result.endings == {REASONS[status]: ["m1"]}


@pytest.mark.parametrize("death", ["exception", "signal"])
def test_who_dies_while_it_leaves_is_not_forgiven_either(
    crew: Callable[[str], Crew], death: str
) -> None:
    made = crew("sys.stdin.read(); " + UNEXPECTED[death])
    with pytest.raises(RuntimeError, match="m1 ended with status"):
        made.close_all(forgiven=REASONS)


def test_who_learns_while_it_leaves_that_it_is_in_doubt_is(crew: Callable[[str], Crew]) -> None:
    made = crew(f"sys.stdin.read(); sys.exit({OUTCOME_UNKNOWN})")
    made.close_all(forgiven=REASONS)
    result = mourned(made)
    assert result.sound
    assert result.endings == {REASONS[OUTCOME_UNKNOWN]: ["m1"]}
    assert {*made.killed} == {"m1"}, "what the group did meanwhile it has not heard of"


def test_who_leaves_in_order_is_not_mourned(crew: Callable[[str], Crew]) -> None:
    made = crew("sys.stdin.read()")
    made.close_all(forgiven=REASONS)
    assert made.deserters() == []


@pytest.mark.parametrize("told", [False, True], ids=["by itself", "as it was told to"])
def test_for_who_ends_by_itself_another_comes_unless_one_has_come_already(
    crew: Callable[[str], Crew], monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    made = crew(f"sys.stdin.read() if {told} else None; sys.exit({HANGS})")
    if told:
        made.ask_to_leave("m1")
    wait_until(lambda: not made.running, "it does not end", PATIENCE)
    recruited: list[str] = []
    arena: Any = SimpleNamespace(
        crew=made,
        kafka=SimpleNamespace(require_brokers=lambda: None),
        chance=random.Random(1),
        others={},
        replace=recruited.append,
    )
    monkeypatch.setattr(Deck, "draw", lambda *_: ("f", Started(what="")))
    _torment(PLAN, arena, Result(plan=PLAN.to_dict()), lambda _: None)
    assert recruited == ([] if told else ["m1"])


def run_copier(script: str) -> subprocess.CompletedProcess[str]:
    """With a copier of which only what is given works."""
    before = """
        import threading
        from types import SimpleNamespace
        from confluent_kafka import KafkaError, KafkaException
        from kafka_coop.testing.trial import member

        job = SimpleNamespace(bootstrap="", group="", name="", topic="t", output="")
        consumer = SimpleNamespace(assignment=list, position=list, consumer_group_metadata=bytes)
        copier = member._Copier(job, consumer, journal=None)

        def fails(*_, **why):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", **why))
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(before) + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_transaction_that_hangs_ends_its_process() -> None:
    done = run_copier("""
        class Stuck:
            def send_offsets_to_transaction(self, *_):
                threading.Event().wait()

        member._STUCK_SECONDS = 0.1
        copier._send_offsets(Stuck())
    """)
    assert done.returncode == HANGS
    assert "send_offsets_to_transaction" in done.stderr, "its last words say where"


def test_offsets_that_are_sent_in_time_end_nothing() -> None:
    done = run_copier("""
        sent = SimpleNamespace(send_offsets_to_transaction=lambda *_: None)
        member._STUCK_SECONDS = 1
        copier._send_offsets(sent)
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()  # to its end, whichever it has
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_commit_without_an_answer_ends_its_process() -> None:
    done = run_copier("""
        member._commit(SimpleNamespace(commit_transaction=lambda _: fails(retriable=True)))
    """)
    assert done.returncode == OUTCOME_UNKNOWN
    assert "outcome" in done.stderr


def test_a_transaction_that_can_not_be_rolled_back_ends_its_process() -> None:
    done = run_copier("""
        copier._ready = fails
        copier._recover(KafkaException(KafkaError(KafkaError._TIMED_OUT, "at first")))
    """)
    assert done.returncode == NOT_ROLLED_BACK
    assert "at first" in done.stderr
    assert "no answer" in done.stderr


def test_the_consumers_own_failure_is_counted_by_itself() -> None:
    """The transaction is settled: what failed is asking for, or going back to, what it left."""
    done = run_copier("""
        copier._ready = lambda: None
        copier._consumer = SimpleNamespace(assignment=list, committed=lambda *_, **__: fails())
        copier._recover(KafkaException(KafkaError(KafkaError._TIMED_OUT, "at first")))
    """)
    assert done.returncode == NOT_PLACED
    assert "no answer" in done.stderr


def test_an_offset_that_is_not_told_is_not_taken_for_none() -> None:
    done = run_copier("""
        copier._ready = lambda: None
        where = SimpleNamespace(topic="t", partition=0, offset=-1001, error=KafkaError(14))
        copier._consumer = SimpleNamespace(assignment=list, committed=lambda *_, **__: [where])
        copier._recover(KafkaException(KafkaError(KafkaError._TIMED_OUT, "at first")))
    """)
    assert done.returncode == NOT_PLACED


def test_what_else_goes_wrong_is_an_exception() -> None:
    done = run_copier("""
        copier._ready = lambda: [][0]
        copier._recover(KafkaException(KafkaError(KafkaError._TIMED_OUT, "at first")))
    """)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
