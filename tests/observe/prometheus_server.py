"""A real Prometheus, as Debian packages it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from kafka_coop.testing.cluster import wait_until


def tool(name: str) -> str:
    """The program's path. Without it tests are skipped, and fail where CI is set."""
    found = shutil.which(name)
    if found is not None:
        return found
    missing = f"{name} is not installed: apt-get install prometheus"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


class PrometheusServer:
    """What a running one is asked."""

    def __init__(self, url: str) -> None:
        self._url = url

    def range(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of a range query."""
        asked = {"query": expr, "start": start, "end": end, "step": step}
        found: list[dict[str, Any]] = self._get("/api/v1/query_range", asked)["result"]
        return found

    def now(self, expr: str) -> list[dict[str, Any]]:
        """The series of a query at this moment."""
        found: list[dict[str, Any]] = self._get("/api/v1/query", {"query": expr})["result"]
        return found

    def ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def _get(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        with urlopen(f"{self._url}{path}?{urlencode(query)}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
            return found


@contextmanager
def prometheus(folder: Path, targets: Path, rules: Path) -> Iterator[PrometheusServer]:
    """Runs one that scrapes, twice a second, what is listed in a file of targets."""
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {
                        "job_name": "kafka_coop",
                        "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
                    }
                ],
            }
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            server = PrometheusServer(f"http://{address}")
            wait_until(server.ready, "Prometheus is not ready")
            yield server
        finally:
            process.kill()
            process.wait()
