"""docker-compose.observe.yml, Prometheus' settings and Grafana's provisioning fit together."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker_compose import compose_tool

ROOT = Path(__file__).parents[2]
OBSERVE = "docker-compose.observe.yml"


def loaded(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return found


SERVICES = loaded(OBSERVE)["services"]


def mounts() -> dict[str, Path]:
    """Path in a container -> path here."""
    pairs = [v.split(":") for s in SERVICES.values() for v in s.get("volumes", ())]
    return {inside: ROOT / outside for outside, inside, *_ in pairs}


def test_what_is_mounted_is_there() -> None:
    assert all(path.is_dir() for path in mounts().values())


def test_prometheus_scrapes_the_services_port() -> None:
    (job,) = loaded("prometheus/prometheus.yml")["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    (name,) = found["names"]
    service = SERVICES[name]
    assert str(found["port"]) in service["expose"]
    assert service["environment"]["METRICS_PORT"] == found["port"]
    rules = loaded("prometheus/prometheus.yml")["rule_files"]
    assert all((mounts()["/etc/prometheus"] / rule).is_file() for rule in rules)


def test_grafana_finds_the_dashboards_and_prometheus() -> None:
    (provider,) = loaded("grafana/provisioning/dashboards/kafka_coop.yaml")["providers"]
    assert list(mounts()[provider["options"]["path"]].glob("*.json"))
    (source,) = loaded("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert source["url"].split("//")[1].split(":")[0] in SERVICES


def test_services_are_told_all_that_the_examples_need() -> None:
    for service in SERVICES.values():
        script = service.get("command", ["", ""])[1]
        if not script:
            continue
        needed = {
            node.slice.value
            for node in ast.walk(ast.parse((ROOT / script).read_text()))
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ"
            if isinstance(node.slice, ast.Constant)
        }
        assert needed == {"BOOTSTRAP_SERVERS"}
        assert needed <= service["environment"].keys()


@pytest.mark.docker
@pytest.mark.parametrize("files", [["docker-compose.yml"], ["docker-compose.yml", OBSERVE]])
def test_docker_compose_takes_the_files(files: list[str]) -> None:
    tool = compose_tool()
    if tool is None:
        missing = pytest.fail if os.environ.get("KAFKA_COOP_DOCKER") else pytest.skip
        missing("docker-compose is not installed: apt-get install docker-compose")
    chosen = [argument for file in files for argument in ("-f", file)]
    done = subprocess.run(
        [*tool, *chosen, "config", "-q"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_brokers_keys_are_made_before_they_are_mounted() -> None:
    """Else Docker makes the folder, empty, and no broker starts."""
    dry = ["make", "-n", "-W", "containers/secrets.sh", "observe", "SERVICES=orders prometheus"]
    # Not what a make that runs these tests says to its own.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        dry, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    secrets, up = done.stdout.splitlines()[-2:]
    assert secrets == "containers/secrets.sh"
    assert up.endswith("-f docker-compose.observe.yml up orders prometheus")


def test_the_context_of_the_example_image_is_what_it_copies() -> None:
    """Not .venv, hundreds of megabytes, nor the brokers' keys."""
    lines = (ROOT / "examples/Dockerfile").read_text().splitlines()
    copied = {f for line in lines if line.startswith("COPY ") for f in line.split()[1:-1]}
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in sent
    assert {line.removeprefix("!") for line in sent if line.startswith("!")} == copied
