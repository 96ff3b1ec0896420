"""A wall clock that is set changes nothing: leases, sessions and timeouts have another."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import pytest
from trial_progress import PATIENCE, until_all_read_on

from kafka_coop.testing.cluster import KafkaCluster, wait_until
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.load import Load
from kafka_coop.testing.trial.verdict import judge
from kafka_coop.testing.trial.wall_clock import WallClock

PARTITIONS = 4
JUMPS = (timedelta(hours=1), timedelta(days=-2), timedelta(days=400), timedelta(0))


def test_a_process_sees_its_own_time_of_day_and_everyones_other_clocks(
    faketime: Path, tmp_path: Path
) -> None:
    """And sleeps as long as it means to."""
    clock = WallClock(faketime, tmp_path / "clock")
    script = textwrap.dedent("""
        import sys, time
        for _ in sys.stdin:
            began = time.monotonic()
            time.sleep(0.01)
            assert 0.01 <= time.monotonic() - began < 10
            boot = time.clock_gettime(time.CLOCK_BOOTTIME)
            print(time.time(), time.monotonic(), boot, flush=True)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for jump in JUMPS:
            clock.set(jump)

            def has_jumped(jump: timedelta = jump) -> bool:
                before = (time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
                print("what time is it?", file=process.stdin)
                told = [float(word) for word in process.stdout.readline().split()]  # type: ignore[union-attr]  # above
                after = (time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
                assert before[0] <= told[1] <= after[0]
                assert before[1] <= told[2] <= after[1]
                return abs(told[0] - time.time() - jump.total_seconds()) < 60

            wait_until(has_jumped, f"a jump by {jump}")
        process.stdin.close()


@pytest.mark.kafka
@pytest.mark.verdict
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_members_whose_wall_clocks_are_set_go_on_undisturbed(
    faketime: Path, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """No round, nothing lost, no silence: whatever the hour."""
    name = f"clocks-{time.time_ns()}"
    kafka.create_topic(name, partitions=PARTITIONS)
    config = {"session.timeout.ms": 10_000}
    with (
        Crew(kafka.bootstrap_servers, name, name, tmp_path, config, faketime=faketime) as crew,
        Load(kafka.admin_servers, name, PARTITIONS, 100) as load,
    ):
        crew.start("a", "ours")
        crew.start("b", "ours")
        wait_until(
            lambda: {len(crew.owned("a")), len(crew.owned("b"))} == {2}, "two members", PATIENCE
        )
        generation, before = crew.generation(), len(callbacks(crew))
        for jump in JUMPS:
            for member in ("a", "b"):
                crew.set_clock(member, jump if member == "a" else -jump)
            until_all_read_on(crew, "a", "b", seconds=3)  # one of them for the clock's own look
        assert crew.generation() == generation
        assert len(callbacks(crew)) == before
        load.stop()
        ends = kafka.end_offsets(name)
        wait_until(lambda: judge(crew.journals(), ends).lost == (), "the last record", PATIENCE)
        for member in ("a", "b"):
            crew.close(member)
        assert judge(crew.journals(), ends).sound


def callbacks(crew: Crew) -> list[str]:
    """Errors, and what changed hands: that a round gave a member nothing may be told later."""
    events = [e for journal in crew.journals().values() for e in journal]
    return [e.kind for e in events if e.kind == "E" or (e.kind in "AVL" and e.partitions)]
