"""Ours and the built-in source, each measured in a Spark process of its own.

The built-in source's jars are to be had as a pair at 4.0.0 (connector and token provider): it runs
in a PySpark 4.0.0 of its own, which is installed into a folder beside the jars' cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_coop.testing import jars

VERSION = "4.0.0"
_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
)
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A source, the Python whose PySpark runs it, and the jars it needs."""

    name: str
    source: str
    python: Path
    jars: Path | None = None

    def measure(self, what: str, servers: str, topic: str, **more: str | None) -> dict[str, Any]:
        """One measurement (benchmarks/spark/measure.py).

        Raises:
            SystemExit: It failed; its errors are on stderr.
        """
        given = {"source": self.source, "servers": servers, "topic": topic, **more}
        if self.jars is not None:
            given["jars"] = str(self.jars)
        words = [word for key, value in given.items() if value for word in (f"--{key}", value)]
        done = subprocess.run(
            [str(self.python), "-m", "benchmarks.spark.measure", what, *words],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        )
        if done.returncode:
            raise SystemExit(f"{self.name}, {what}: failed with status {done.returncode}")
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        print(f"{self.name}, {what}: {measured}", file=sys.stderr, flush=True)
        return measured


def ours(python: Path | None) -> Contestant:
    """In the PySpark of this Python, or of another one."""
    return Contestant(name="ours", source="kafka_coop", python=python or Path(sys.executable))


def builtin(python: Path | None) -> Contestant:
    """Spark's own, with its jars; all is fetched if it is not there yet."""
    return Contestant(
        name="built-in",
        source="kafka",
        python=python or _pyspark() / "bin" / "python",
        jars=jars.maven_jars(f"spark-sql-kafka-{VERSION}", *_CONNECTOR),
    )


def in_turns(
    what: str,
    contestants: Sequence[Contestant],
    rounds: int,
    servers: str,
    topic: str,
    **more: str,
) -> list[list[dict[str, Any]]]:
    """Ours, theirs, ours, theirs, …: what each one measured, round by round."""
    taken: list[list[dict[str, Any]]] = [[] for _ in contestants]
    for _ in range(rounds):
        for contestant, its in zip(contestants, taken, strict=True):
            its.append(contestant.measure(what, servers, topic, **more))
    return taken


def _pyspark() -> Path:
    """A virtual environment. It is moved when it is made: only its scripts do not outlive that."""
    return jars.cached(f"pyspark-{VERSION}", _install)


def _install(folder: Path) -> None:
    venv.create(folder, with_pip=True)
    packages = [f"pyspark=={VERSION}", "confluent-kafka>=2.16"]
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
