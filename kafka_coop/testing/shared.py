"""One real cluster for all the processes of a test run.

Under pytest-xdist each worker is a process of its own, and a broker for each would be most
of the machine. Here the first that asks starts a keeper, a process that runs the cluster
until nobody uses it any more. Files in a folder that all share coordinate them:

* ``start.lock`` is held by whoever looks for the cluster, so that one alone starts it;
* ``users.lock`` is held *shared* by every user. The keeper asks for it exclusively, and has
  it once the last user let go, or was killed: the kernel lets go for the dead;
* the run's lock, where there is one, is held *shared* by who runs them all, pytest-xdist's
  controller: workers come and go, and the keeper stays;
* ``keeper.lock`` is held by the keeper for as long as it lives: what one has said that was killed
  counts for nothing;
* ``cluster.json`` says where the cluster is, or why there is none. It goes before the
  cluster does, while the keeper holds ``users.lock``: who comes later starts anew. A broker that
  ends by itself is told of there: its users wait in vain, and those to come need not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias

from kafka_coop.testing.cluster import KafkaCluster, StartedKafka, wait_until
from kafka_coop.testing.container import ContainerKafka
from kafka_coop.testing.jars import CACHE_VARIABLE, cache_folder
from kafka_coop.testing.local import DEFAULT_VERSION, LocalKafka, LocalKafkaError
from kafka_coop.testing.unavailable import KafkaUnavailableError

Kind: TypeAlias = Literal["local", "container"]
"""How a broker is run: from its jars, or in a container."""

# The first start fetches the jars.
_START_TIMEOUT: Final = timedelta(minutes=11)

_COVERAGE: Final = ("COVERAGE_PROCESS_", "COV_CORE_")
"""By which coverage.py, and pytest-cov before it, has each subprocess measured: the keeper would
write its file into the tests' project, once all of them are combined."""

_LOOK: Final = 0.2
"""Seconds between two looks of the keeper's at its users and its brokers."""

_KEEPER: Final = (
    f"import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module({__name__!r}, "
    "run_name='__main__', alter_sys=True)"
)
"""Where this package is comes last on its path, as installed packages do: one of them may have the
name of a module of Python's."""


@contextmanager
def shared_kafka(
    folder: Path,
    version: str = DEFAULT_VERSION,
    *,
    kind: Kind = "local",
    brokers: int = 1,
    run: Path | None = None,
) -> Iterator[KafkaCluster]:
    """The cluster that all processes which name this folder share, started if need be.

    Args:
        folder: An existing folder, the same for all of them.
        version: The release of Apache Kafka, the same for all of them.
        kind: How it is run, the same for all of them.
        brokers: How many, the same for all of them; a container holds one.
        run: The run's lock, the same for all of them: the cluster stays while that is held shared.

    Yields:
        The cluster; what happens in the folder afterwards is the keeper's business.

    Raises:
        KafkaUnavailableError: What it needs is not to be had.
        LocalKafkaError: The cluster did not start, or a broker of it has ended by itself.
    """
    with (folder / "users.lock").open("w") as users:
        with _locked(folder / "start.lock"):
            # Waits for a keeper that is on its way out.
            fcntl.flock(users, fcntl.LOCK_SH)
            lasts = [] if run is None else [str(run.absolute())]
            found = _find_or_start(folder, [version, kind, str(brokers), *lasts])
        try:
            yield KafkaCluster(found["bootstrap_servers"], found["admin_servers"])
        finally:
            # Closing the file would not do: a child that a test has forked holds the lock with us.
            fcntl.flock(users, fcntl.LOCK_UN)


def _find_or_start(folder: Path, what: Sequence[str]) -> dict[str, str]:
    answer = folder / "cluster.json"
    if answer.exists() and not _still_holds(folder, json.loads(answer.read_text())):
        answer.unlink()
    if not answer.exists():
        keeper = _start_keeper(folder, what)
        try:
            wait_until(
                lambda: answer.exists() or keeper.poll() is not None,
                "the keeper of the shared cluster says nothing",
                _START_TIMEOUT,
            )
        finally:
            # It outlives us where others still use the cluster: not ours to wait for.
            keeper.returncode = 0
    if not answer.exists():
        raise LocalKafkaError((folder / "keeper.log").read_text(errors="replace")[-4000:])
    found: dict[str, str] = json.loads(answer.read_text())
    if "unavailable" in found:
        raise KafkaUnavailableError(found["unavailable"])
    if "ended" in found:
        raise LocalKafkaError(f"the shared cluster's {found['ended']}")
    return found


def _still_holds(folder: Path, found: dict[str, str]) -> bool:
    """Whether what a keeper said does. That there is none to be had, whatever has become of it."""
    with (folder / "keeper.lock").open("w") as keepers:
        return "unavailable" in found or not _lock(keepers, fcntl.LOCK_SH)


def _cache(kind: str) -> dict[str, str]:
    """Of the jars, which may be named relative to our folder; a container has its own."""
    return {} if kind == "container" else {CACHE_VARIABLE: str(cache_folder())}


def _start_keeper(folder: Path, what: Sequence[str]) -> subprocess.Popen[bytes]:
    _, kind, *_ = what
    with (folder / "keeper.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603  # this module
            [
                *(sys.executable, "-P", "-c", _KEEPER, str(Path(__file__).parents[2])),
                *(str(folder.absolute()), *what),
            ],
            env={k: v for k, v in os.environ.items() if not k.startswith(_COVERAGE)} | _cache(kind),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A Ctrl-C in the terminal ends the tests first, then the keeper by itself.
            start_new_session=True,
        )


def _keep(folder: Path, version: str, kind: str, brokers: str, *run: str) -> None:
    """The keeper: runs the cluster until nobody holds ``users.lock``, nor the run's."""
    answer = folder / "cluster.json"
    with (
        (folder / "keeper.lock").open("w") as keepers,
        (folder / "users.lock").open("w") as users,
        contextlib.ExitStack() as stack,
    ):
        held = [*(stack.enter_context(Path(one).open("a")) for one in run), users]
        fcntl.flock(keepers, fcntl.LOCK_EX)
        try:
            kafka: StartedKafka = (
                ContainerKafka(version)
                if kind == "container"
                else LocalKafka(version, int(brokers))
            )
            stack.enter_context(kafka)
        except KafkaUnavailableError as error:
            _publish(answer, {"unavailable": str(error)})
            return
        _publish(
            answer,
            {"bootstrap_servers": kafka.bootstrap_servers, "admin_servers": kafka.admin_servers},
        )
        while not all(_lock(one, fcntl.LOCK_EX) for one in held):
            try:
                if isinstance(kafka, LocalKafka):
                    kafka.require_brokers()
            except LocalKafkaError as error:
                _publish(answer, {"ended": str(error)})
                for one in held:
                    fcntl.flock(one, fcntl.LOCK_EX)
                break
            time.sleep(_LOOK)
        answer.unlink()


def _publish(answer: Path, content: dict[str, str]) -> None:
    draft = answer.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.rename(answer)  # readers see all of it or none


def _lock(file: IO[str], how: int) -> bool:
    """Whether it was to be had at once."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), *sys.argv[2:])
