"""Dashboards and rules, on a real Prometheus that scrapes a living group."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from integration_processes import whole_lines
from prometheus_server import PrometheusServer, prometheus, tool

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.embedded import EmbeddedKafka

ROOT = Path(__file__).parents[2]
RULES = ROOT / "prometheus" / "rules.yml"
PARTITIONS = 6
PATIENCE = timedelta(seconds=180)


def queries() -> list[tuple[str, str]]:
    """Every panel's queries as ``(where, expression)``, variables filled in."""
    found = []
    for file in sorted((ROOT / "grafana" / "dashboards").glob("*.json")):
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                expr = re.sub(r"\$(group|client_id)", ".*", target["expr"])
                expr = expr.replace("$__rate_interval", "5s")
                assert "$" not in expr
                found.append((f"{file.stem}: {panel['title']} {target['refId']}", expr))
    return found


def test_the_rules_do_what_their_tests_say() -> None:
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(RULES.with_name("rules_test.yml"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    text = RULES.with_name("rules_test.yml").read_text()
    raised = {
        block.split("alertname: ", 1)[1].split()[0]
        for block in re.split(r"- eval_time|- \{eval_time", text)
        if "exp_alerts:" in block
    }
    assert raised == alerts


def test_the_generated_dashboards_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "-m", "grafana", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_panels_have_descriptions_and_boards_different_names() -> None:
    boards = [json.loads(f.read_text()) for f in (ROOT / "grafana" / "dashboards").glob("*.json")]
    assert len({b["uid"] for b in boards}) == len({b["title"] for b in boards}) == 4
    assert all(p["description"] for b in boards for p in b["panels"])


class Service:
    """The example service as a process."""

    def __init__(self, servers: str, name: str, folder: Path, **settings: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "examples" / "observed_service.py")],
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "BOOTSTRAP_SERVERS": servers,
                    "CLIENT_ID": name,
                    "METRICS_PORT": "0",
                    "SESSION_TIMEOUT_MS": "2000",
                    **settings,
                },
            )
        try:
            wait_until(lambda: "on port" in self._log.read_text(), "it serves nothing", PATIENCE)
        except TimeoutError:
            self.process.kill()
            self.process.wait()
            raise
        found = re.search(r"on port (\d+)", self._log.read_text())
        assert found is not None
        self.port = int(found[1])

    def health(self) -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)["consumers"][0]
        except HTTPError as refused:
            with refused:
                found = json.load(refused)["consumers"][0]
        return found

    def rebalances(self) -> list[dict[str, Any]]:
        """The structured events of its log."""
        lines = [json.loads(line) for line in whole_lines(self._log)]
        return [line["kafka_coop"] for line in lines if "kafka_coop" in line]


def shared_by(*services: Service) -> Callable[[], bool]:
    def shared() -> bool:
        found = [s.health() for s in services]
        return all(h["stable"] for h in found) and sum(h["owned"] for h in found) == PARTITIONS

    return shared


@contextmanager
def orders(servers: str) -> Iterator[None]:
    """Publishes to every partition, some records a second."""
    stop = threading.Event()

    def publish() -> None:
        producer = Producer({"bootstrap.servers": servers})
        while not stop.wait(0.02):
            for partition in range(PARTITIONS):
                producer.produce("orders", b"order", partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(900)
def test_every_panel_shows_data_of_a_scale_out_a_slow_callback_and_a_crash(
    embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    embedded.create_topic("orders", partitions=PARTITIONS)
    servers = embedded.bootstrap_servers
    targets = tmp_path / "targets.json"
    running: list[Service] = []

    def start(name: str, **settings: str) -> Service:
        running.append(Service(servers, name, tmp_path, **settings))
        listed = [{"targets": [f"127.0.0.1:{s.port}" for s in running]}]
        draft = targets.with_suffix(".draft")
        draft.write_text(json.dumps(listed))
        draft.rename(targets)
        return running[-1]

    try:
        with orders(servers), prometheus(tmp_path, targets, RULES) as server:
            began = time.time()
            one = start("one", FLUSH_SECONDS="1")
            wait_until(shared_by(one), "one does not own everything", PATIENCE)
            two = start("two", WORK_SECONDS="0.05")
            wait_until(shared_by(one, two), "two get no share", PATIENCE)
            three = start("three")
            wait_until(shared_by(one, two, three), "three get no share", PATIENCE)
            two.process.kill()
            wait_until(shared_by(one, three), "nobody took over", PATIENCE)
            _all_have_data(server, began)
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(60) == 0
            events = one.rebalances()
        slow = [e for e in events if e["phases_seconds"]["revoke"] >= 1]
        assert slow
        assert any(e["plan"] is not None and e["plan"]["moved"] for e in events)
    finally:
        for service in running:
            service.process.kill()
            service.process.wait()


def _all_have_data(server: PrometheusServer, began: float) -> None:
    """The last scrapes may still be to come."""
    rules = [(n, n) for n in re.findall(r"record: (\S+)", RULES.read_text())]
    waiting = dict([*queries(), *rules])

    def complete() -> bool:
        for where, expr in list(waiting.items()):
            series = server.range(expr, began, time.time(), 0.5)
            values = [float(value) for one in series for _, value in one["values"]]
            if any(math.isfinite(value) for value in values):
                del waiting[where]
        return not waiting

    try:
        wait_until(complete, "no data", PATIENCE)
    except TimeoutError:
        pytest.fail(f"no data: {waiting}")
