"""A watchdog's process outlives its member's, and holds nobody up who waits for that one's end."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import termios
from array import array
from datetime import timedelta
from pathlib import Path

import pytest
from integration_processes import ignores, is_asleep, is_running, niceness
from watchdog_support import leaves

from kafka_coop.config import parse
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import wait_until
from kafka_coop.watchdog.guard import Guard

REFUSALS = 12
"""More than come until it has said that it could not leave; then one more attempt each second."""

PATIENCE = timedelta(seconds=50)
"""Less than the watchdog's own."""

_DIES = """
import logging, os, signal, sys
from kafka_coop.config import parse
from kafka_coop.types import Generation, GroupMetadata, MemberId
from kafka_coop.watchdog.guard import Guard

servers, how = sys.argv[1:]
if how == "full":
    os.set_blocking(2, False)
    try:
        while os.write(2, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(2, True)
settings = parse({"bootstrap.servers": servers, "group.id": "g"}).connection
guard = Guard(settings, logging.getLogger("of the test"), loads_after=3600.0)
guard.start()
me = GroupMetadata(
    group_id="g", generation=Generation(1), member_id=MemberId("dead"), instance_id=None
)
guard.identity(me)
print(guard._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A member's process, of which there is no more to know: it dies beside its watchdog, which is to
load its modules in an hour, or now."""


def command(servers: str, how: str = "") -> list[str]:
    return [sys.executable, "-c", _DIES, servers, how]


def a_guard(*, loads_after: float) -> Guard:
    settings = parse({"bootstrap.servers": "localhost:1", "group.id": "g"}).connection
    return Guard(settings, logging.getLogger(__name__), loads_after=loads_after)


def is_told(guard: Guard) -> bool:
    """Whether it has read what was written for it, or some of it."""
    assert guard._process is not None
    assert guard._process.stdin is not None
    left = array("i", [0])
    fcntl.ioctl(guard._process.stdin.fileno(), termios.FIONREAD, left)
    return not left[0]


@pytest.fixture
def refusing(embedded: EmbeddedKafka) -> EmbeddedKafka:
    """Lets nobody leave for some seconds, as a coordinator that loads its groups."""
    embedded.fail("LeaveGroup", *[int(ErrorCode.coordinator_load_in_progress)] * REFUSALS)
    embedded.track_requests()
    return embedded


def test_who_reads_a_dead_members_errors_to_the_end_need_not_wait_for_its_watchdog(
    refusing: EmbeddedKafka,
) -> None:
    # It returns when the last process that holds the pipe's other end has let go of it.
    died = subprocess.run(
        command(refusing.bootstrap_servers),
        capture_output=True,
        text=True,
        timeout=PATIENCE.total_seconds(),
        check=False,
    )
    assert leaves(refusing) <= REFUSALS, "it waited until the watchdog had succeeded"
    (said,) = died.stderr.splitlines()
    assert "could not leave" in said
    assert "COORDINATOR_LOAD_IN_PROGRESS" in said
    wait_until(lambda: leaves(refusing) == REFUSALS + 1, "it gave up with its words", PATIENCE)
    watchdog = int(died.stdout)
    wait_until(lambda: not is_running(watchdog), "it has left, and stays", PATIENCE)


def test_nor_where_no_broker_can_be_reached() -> None:
    died = subprocess.run(
        command("127.0.0.1:1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE.total_seconds(),
        check=False,
    )
    watchdog = int(died.stdout)
    assert is_running(watchdog), "it does not go on trying"
    os.kill(watchdog, signal.SIGKILL)
    (said,) = died.stderr.splitlines()
    assert "could not leave" in said
    assert "connection refused" in said


def test_a_reader_that_does_not_read_is_not_waited_for(refusing: EmbeddedKafka) -> None:
    """A full pipe may be why the member was killed."""
    with subprocess.Popen(
        command(refusing.bootstrap_servers, "full"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as member:
        assert member.stdout is not None
        watchdog = int(member.stdout.readline())
        wait_until(lambda: leaves(refusing) == REFUSALS + 1, "it waits", PATIENCE)
        wait_until(lambda: not is_running(watchdog), "it has left, and stays", PATIENCE)


def test_a_member_without_standard_error_has_a_watchdog_like_others(
    refusing: EmbeddedKafka,
) -> None:
    subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command(refusing.bootstrap_servers)],
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE.total_seconds(),
        check=False,
    )
    wait_until(lambda: leaves(refusing) == REFUSALS + 1, "it gave up with its words", PATIENCE)


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_it_loads_nothing_while_its_member_joins() -> None:
    guard = a_guard(loads_after=3600.0)
    guard.start()
    try:
        assert guard._process is not None
        pid = guard._process.pid
        wait_until(lambda: is_asleep(pid) and is_told(guard), "it does not wait")
        loaded = Path(f"/proc/{pid}/maps").read_text()
        assert len(niceness(pid)) == 1
        assert "_pickle" not in loaded, "the first that it is to load"
    finally:
        guard.close()


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_it_outlives_what_stops_a_service_that_has_just_begun() -> None:
    guard = a_guard(loads_after=3600.0)
    guard.start()
    try:
        assert guard._process is not None
        pid = guard._process.pid
        stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        wait_until(lambda: all(ignores(pid, number) for number in stops), "they would end it")
    finally:
        guard.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is a process's")
def test_it_yields_to_its_member_while_it_loads_and_not_when_it_has_to_leave() -> None:
    """The member joins just then; and who leaves is not to wait for who is busy."""
    guard = a_guard(loads_after=0.0)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    guard.start()
    try:
        assert guard._process is not None
        pid = guard._process.pid
        wait_until(lambda: ours + 10 in niceness(pid), "it loads at the usual priority")
        assert os.getpriority(os.PRIO_PROCESS, pid) == ours, "the first thread's"
    finally:
        guard.close()
