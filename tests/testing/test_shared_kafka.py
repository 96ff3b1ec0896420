"""One real broker for all processes of a run, and the fixtures that hand it out."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from integration_processes import children
from listening import is_served

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.container import ContainerKafka, ContainerKafkaError
from kafka_coop.testing.local import LocalKafkaError
from kafka_coop.testing.shared import _LOOK, shared_kafka
from kafka_coop.testing.unavailable import KafkaUnavailableError

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter that finds this package, and of pytest's environment only the rest."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != "CI"}
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
    )


def test_users_share_it_and_the_last_one_ends_it(tmp_path: Path) -> None:
    with shared_kafka(tmp_path) as first:
        with shared_kafka(tmp_path) as second:
            assert first.bootstrap_servers == second.bootstrap_servers
        first.create_topic("still-here")
    wait_until(lambda: not is_served(first.bootstrap_servers), "the keeper goes on")
    assert not (tmp_path / "cluster.json").exists()
    # Who comes later has one of their own.
    with shared_kafka(tmp_path) as third:
        assert "still-here" not in third.admin().list_topics(timeout=10).topics


def test_a_user_that_is_killed_is_a_user_that_left(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from kafka_coop.testing.shared import shared_kafka
        with shared_kafka(Path({str(tmp_path)!r})) as kafka:
            print(kafka.bootstrap_servers, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    servers = python("-c", script).stdout.strip()
    assert servers
    wait_until(lambda: not is_served(servers), "the keeper goes on")


def test_a_broker_that_has_ended_is_told_to_who_comes_later(tmp_path: Path) -> None:
    """Else each of their tests would wait for its time-out, and not know what for."""
    with shared_kafka(tmp_path) as kafka:
        (broker,) = children({keeper_of(tmp_path)}, b"kafka.Kafka")
        os.kill(broker, signal.SIGKILL)
        wait_until(lambda: "ended" in said(tmp_path), "the keeper does not notice")
        with pytest.raises(LocalKafkaError, match="broker 1 ended"), shared_kafka(tmp_path):
            pass
    # Who comes before the keeper has its lock is a user, too.
    wait_until(lambda: not (tmp_path / "cluster.json").exists(), "the keeper goes on")
    with shared_kafka(tmp_path) as another:
        assert another.bootstrap_servers != kafka.bootstrap_servers
        assert another.admin().list_topics(timeout=10).brokers


def test_what_a_keeper_said_that_was_killed_counts_for_nothing(tmp_path: Path) -> None:
    with shared_kafka(tmp_path) as kafka:
        os.kill(keeper_of(tmp_path), signal.SIGKILL)
        wait_until(lambda: not is_served(kafka.bootstrap_servers), "the broker outlives it")
        assert "bootstrap_servers" in said(tmp_path)
        with shared_kafka(tmp_path) as another:
            assert another.admin().list_topics(timeout=10).brokers


def said(folder: Path) -> dict[str, str]:
    answer: dict[str, str] = json.loads((folder / "cluster.json").read_text())
    return answer


def keeper_of(folder: Path) -> int:
    (pid,) = children({os.getpid()}, str(folder).encode())
    return pid


def test_a_keeper_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_COOP_CACHE", str(tmp_path))
    (tmp_path / "kafka-9.9.9").mkdir()  # no jars in it
    with pytest.raises(LocalKafkaError, match="StorageTool"), shared_kafka(tmp_path, "9.9.9"):
        pass


def test_the_keeper_looks_where_a_relative_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_COOP_CACHE", "mine")
    (tmp_path / "mine" / "kafka-9.9.9").mkdir(parents=True)  # no jars in it
    with pytest.raises(LocalKafkaError, match="StorageTool"), shared_kafka(tmp_path, "9.9.9"):
        pass


def test_a_container_has_no_use_for_the_cache_of_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_COOP_CACHE", "which:java:could:not:read")
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/daemon")
    with (
        pytest.raises(KafkaUnavailableError, match="Docker"),
        shared_kafka(tmp_path, kind="container"),
    ):
        pass


def test_what_is_not_to_be_had_is_told_to_every_user(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"unavailable": "no Java"}))
    for _ in range(2):
        with pytest.raises(KafkaUnavailableError, match="no Java"), shared_kafka(tmp_path):
            pass


def test_who_has_left_holds_nothing_through_a_child_that_it_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the keeper and its brokers live as long as the child does."""
    answer = {"bootstrap_servers": "127.0.0.1:1", "admin_servers": "127.0.0.1:1"}
    (tmp_path / "cluster.json").write_text(json.dumps(answer))
    of_the_child: list[int] = []
    plain = fcntl.flock

    def shared_with_a_child(file: Any, how: int) -> None:
        plain(file, how)
        if how == fcntl.LOCK_SH:
            of_the_child.append(os.dup(file.fileno()))  # what a fork does

    monkeypatch.setattr(fcntl, "flock", shared_with_a_child)
    with (tmp_path / "keeper.lock").open("w") as keeper:
        plain(keeper, fcntl.LOCK_EX)  # as one that is alive does
        with shared_kafka(tmp_path):
            pass
    try:
        with (tmp_path / "users.lock").open("w") as keepers:
            plain(keepers, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(*of_the_child)


def run_pytest(folder: Path, test: str, *options: str, **environment: str) -> str:
    (folder / "test_it.py").write_text(textwrap.dedent(test))
    plugin = ("-p", "kafka_coop.testing.pytest_plugin", "-p", "no:randomly")
    done = python(
        "-m",
        "pytest",
        "-rs",
        "--rootdir",
        str(folder),
        *plugin,
        *options,
        str(folder),
        **environment,
    )
    return done.stdout + done.stderr


def test_it_stays_for_a_run_whose_workers_come_and_go(tmp_path: Path) -> None:
    """What the first has made the last one finds, for whoever runs them holds the run's lock."""
    run, answer = tmp_path / "run.lock", tmp_path / "cluster.json"
    with run.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with shared_kafka(tmp_path, run=run) as first:
            pass
        for _ in range(5):  # of the keeper's looks at its users
            time.sleep(_LOOK)
            assert answer.exists()
        with shared_kafka(tmp_path, run=run) as second:
            assert first.bootstrap_servers == second.bootstrap_servers
    wait_until(lambda: not answer.exists(), "the keeper goes on")


def test_the_workers_of_xdist_share_one(tmp_path: Path) -> None:
    test = """
        import fcntl, os, pytest
        from pathlib import Path

        def test_it(local_kafka, tmp_path_factory):
            assert local_kafka.admin().list_topics(timeout=10).brokers
            here = Path(__file__).parent
            (here / os.environ["PYTEST_XDIST_WORKER"]).write_text(local_kafka.bootstrap_servers)
            run = tmp_path_factory.getbasetemp().parent / "kafka-coop-run.lock"
            with pytest.raises(BlockingIOError), run.open("a") as ended:
                fcntl.flock(ended, fcntl.LOCK_EX | fcntl.LOCK_NB)
    """
    said = run_pytest(tmp_path, test, "-n", "2", "--dist", "each")
    assert "2 passed" in said, said
    (servers,) = {(tmp_path / worker).read_text() for worker in ("gw0", "gw1")}
    wait_until(lambda: not is_served(servers), "the keeper goes on")


def test_a_run_inside_a_workers_test_has_a_broker_of_its_own(tmp_path: Path) -> None:
    """It has the worker's environment, and would leave its broker's folder beside its own."""
    test = """
        def test_it(local_kafka):
            assert local_kafka.admin().list_topics(timeout=10).brokers
    """
    own = tmp_path / "all" / "own"
    own.parent.mkdir()
    told = run_pytest(tmp_path, test, f"--basetemp={own}", PYTEST_XDIST_WORKER="gw0")
    assert "1 passed" in told, told
    assert [*own.parent.iterdir()] == [own]


UNAVAILABLE = """
    from contextlib import contextmanager
    import pytest
    from kafka_coop.testing import shared
    from kafka_coop.testing.unavailable import KafkaUnavailableError

    @pytest.fixture(scope="session", autouse=True)
    def _nothing_installed():
        @contextmanager
        def refuse(*arguments, **named):
            raise KafkaUnavailableError("no Java here")
            yield
        shared.shared_kafka = refuse

    def test_it(local_kafka):
        pass
"""


def test_where_it_is_not_to_be_had_tests_are_skipped_but_not_in_ci(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, UNAVAILABLE)
    assert "1 skipped" in said
    assert "no Java here" in said
    said = run_pytest(tmp_path, UNAVAILABLE, CI="true")
    assert "1 error" in said
    assert "no Java here" in said


WHICHEVER = """
    import pytest

    def test_one(kafka_cluster):
        kafka_cluster.create_topic("t", partitions=2)
        print(repr(kafka_cluster))

    @pytest.mark.real_kafka
    def test_what_only_a_real_one_does(kafka_cluster):
        assert kafka_cluster.admin().list_topics(timeout=10).cluster_id
"""


def test_an_option_chooses_the_broker(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, WHICHEVER, "--kafka=embedded")
    assert "1 passed, 1 skipped" in said
    assert "needs a real broker" in said
    assert "2 passed" in run_pytest(tmp_path, WHICHEVER)
    assert "invalid choice: 'big'" in run_pytest(tmp_path, WHICHEVER, "--kafka=big")


def test_the_option_may_want_a_container(tmp_path: Path, has_docker: None) -> None:
    assert "2 passed" in run_pytest(tmp_path, WHICHEVER, "--kafka=container")


def test_an_image_that_is_not_to_be_had_names_the_remedy(has_docker: None) -> None:
    with pytest.raises(KafkaUnavailableError, match=r"build-image\.sh 0\.0\.0"):
        ContainerKafka("0.0.0")


def test_a_daemon_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(KafkaUnavailableError, match="start one"):
        ContainerKafka()


def test_a_broker_that_ends_at_once_shows_its_log(has_docker: None) -> None:
    with (
        pytest.raises(ContainerKafkaError, match="Not a number of type INT"),
        ContainerKafka(properties={"node.id": "none"}),
    ):
        pass


def test_the_embedded_broker_is_a_fixture_too(tmp_path: Path) -> None:
    test = """
        def test_one(embedded_kafka):
            embedded_kafka.create_topic("mine")

        def test_another(embedded_kafka):
            embedded_kafka.create_topic("mine")
    """
    assert "2 passed" in run_pytest(tmp_path, test)


@pytest.mark.parametrize(
    ("fixture", "options"), [("embedded_kafka", ()), ("kafka_cluster", ("--kafka=embedded",))]
)
def test_without_a_mock_cluster_tests_are_skipped_and_fail_in_ci(
    tmp_path: Path, fixture: str, options: tuple[str, ...]
) -> None:
    test = f"""
        import pytest
        from kafka_coop.testing import librdkafka

        @pytest.fixture(scope="session", autouse=True)
        def _nothing_found():
            def refuse():
                raise librdkafka.MockClusterUnavailableError("no mock here")
            librdkafka.load = refuse

        def test_it({fixture}):
            pass
    """
    said = run_pytest(tmp_path, test, *options)
    assert "1 skipped" in said, said
    assert "no mock here" in said
    assert "1 error" in run_pytest(tmp_path, test, *options, CI="1")


@pytest.mark.parametrize(
    ("kind", "version"),
    [("embedded", "3.9.1"), ("local", "4"), ("local-3", "4.1.0/x"), ("container", "a/b")],
)
def test_a_release_that_is_none_is_refused(tmp_path: Path, kind: str, version: str) -> None:
    said = run_pytest(
        tmp_path, "def test_it(): pass", f"--kafka={kind}", f"--kafka-version={version}"
    )
    assert "ERROR: --kafka-version" in said, said


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    script = """import sys, kafka_coop.testing.pytest_plugin
heavy = {"confluent_kafka", "numpy", "ctypes", "kafka_coop.testing.embedded"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
