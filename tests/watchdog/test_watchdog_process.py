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
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from integration_dying import dying
from integration_processes import ignores, is_asleep, is_running, niceness
from watchdog_support import leaves

from kafka_coop import CoopConsumer
from kafka_coop.config import parse
from kafka_coop.errors import ConfigurationError
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.testing import EmbeddedKafka
from kafka_coop.testing.cluster import wait_until
from kafka_coop.types import Generation, GroupMetadata, MemberId
from kafka_coop.watchdog.guard import Guard

REFUSALS = 12
"""More than come until it has said that it could not leave; then one more attempt each second."""

PATIENCE = timedelta(seconds=50)
"""Less than the watchdog's own."""


@contextmanager
def started(*, loads_after: float) -> Iterator[tuple[Guard, int]]:
    """A watchdog of this process, and its process id."""
    settings = parse({"bootstrap.servers": "localhost:1", "group.id": "g"}).connection
    guard = Guard(settings, logging.getLogger(__name__), loads_after=loads_after)
    guard.start()
    try:
        assert guard._process is not None
        yield guard, guard._process.pid
    finally:
        guard.close()


def joined(generation: int) -> GroupMetadata:
    return GroupMetadata(
        group_id="g",
        generation=Generation(generation),
        member_id=MemberId(f"m-{generation}"),
        instance_id=None,
    )


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
        dying({"bootstrap.servers": refusing.bootstrap_servers}),
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
        dying({"bootstrap.servers": "127.0.0.1:1"}),
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
        dying({"bootstrap.servers": refusing.bootstrap_servers}, "full"),
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
        [
            "sh",
            "-c",
            'exec "$@" 2>&-',
            "sh",
            *dying({"bootstrap.servers": refusing.bootstrap_servers}),
        ],
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE.total_seconds(),
        check=False,
    )
    wait_until(lambda: leaves(refusing) == REFUSALS + 1, "it gave up with its words", PATIENCE)


def test_one_that_could_not_be_started_again_is_started_with_the_next_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a machine has no room for at one rebalance, it may have at the next."""
    with started(loads_after=3600.0) as (guard, pid):
        assert guard._process is not None
        guard._process.kill()
        guard._process.wait()
        with monkeypatch.context() as full:
            full.setattr(sys, "executable", "/no/interpreter")
            guard.identity(joined(1))
        guard.identity(joined(2))
        assert guard._process is not None, "never again"
        assert guard._process.pid != pid
        assert guard._process.poll() is None
    guard.identity(joined(3))
    assert guard._process is None, "it was closed"


def it_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match="needs a Python interpreter"),
        started(loads_after=3600.0),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "value"), [("frozen", True), ("executable", None), ("executable", "")]
)
def test_a_program_that_has_no_interpreter_beside_it_is_refused_and_not_started_again(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """A bundled program would start itself, with its consumer and watchdog, again and again."""
    monkeypatch.setattr(sys, name, value, raising=False)
    it_is_refused()


def test_under_uwsgi_whose_binary_is_no_interpreter_it_is_refused_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", ModuleType("uwsgi"))
    it_is_refused()


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
@pytest.mark.parametrize("ignored", [0, 1])
def test_it_ignores_the_environment_where_its_consumer_does(
    monkeypatch: pytest.MonkeyPatch, ignored: int
) -> None:
    """It gets the consumer's credentials: no module of PYTHONPATH is to see them."""
    monkeypatch.setattr(sys, "flags", SimpleNamespace(ignore_environment=ignored))
    with started(loads_after=3600.0) as (_, pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert (b"-E" in words) == bool(ignored)


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_one_that_may_not_be_killed_ends_all_the_same() -> None:
    """Its member has given up the rights of root, with which it was started."""

    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    with started(loads_after=60) as (guard, pid):
        guard.identity(joined(1))
        process = guard._process
        assert process is not None
        process.kill = refused  # type: ignore[method-assign]  # as the kernel would
        guard.close()
        assert process.returncode == 0
        assert not is_running(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_a_ctrl_c_while_the_membership_ends_leaves_no_watchdog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"bootstrap.servers": "localhost:1", "group.id": "g", "coop.watchdog": True}
    consumer = CoopConsumer({**settings, "log_level": 0})
    guard = consumer._backend._guard  # type: ignore[attr-defined]  # the classic one's
    pid = guard._process.pid

    def strike(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer._backend._thread, "join", strike)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert not is_running(pid)
    monkeypatch.undo()
    consumer._backend._thread.join(10)  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_it_loads_nothing_while_its_member_joins() -> None:
    with started(loads_after=3600.0) as (guard, pid):
        wait_until(lambda: is_asleep(pid) and is_told(guard), "it does not wait")
        loaded = Path(f"/proc/{pid}/maps").read_text()
        assert len(niceness(pid)) == 1
        assert "_pickle" not in loaded, "the first that it is to load"


def test_it_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may run in /tmp, where anybody can leave a module, and never imports from there."""
    trace = tmp_path / "imported"
    for name in ("select", "pickle"):
        (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()")
    monkeypatch.chdir(tmp_path)
    with started(loads_after=3600.0) as (guard, _):
        wait_until(lambda: is_told(guard) or trace.exists(), "it does not begin")
    assert not trace.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_it_outlives_what_stops_a_service_that_has_just_begun() -> None:
    stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    with started(loads_after=3600.0) as (_, pid):
        wait_until(lambda: all(ignores(pid, number) for number in stops), "they would end it")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is a process's")
def test_it_yields_to_its_member_while_it_loads_and_not_when_it_has_to_leave() -> None:
    """The member joins just then; and who leaves is not to wait for who is busy."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    with started(loads_after=0.0) as (_, pid):
        wait_until(lambda: ours + 10 in niceness(pid), "it loads at the usual priority")
        assert os.getpriority(os.PRIO_PROCESS, pid) == ours, "the first thread's"
