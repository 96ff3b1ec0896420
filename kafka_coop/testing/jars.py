"""Kafka's broker as jars: fetched once from Maven's central repository, kept in a cache.

A broker is the artifact ``kafka_2.13`` (``kafka_2.12`` before 2.4) and what it needs at run
time, some 45 MB. Maven resolves and fetches them where it is installed, with the user's own
settings and mirrors; else the package jgo does, which is a Maven resolver in Python.

`python -m kafka_coop.testing.jars 4.1.0` fetches them beforehand.
"""

from __future__ import annotations

import fcntl
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from kafka_coop.testing.broker_settings import release
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

_Fetch: TypeAlias = Callable[[tuple[str, ...], Path], None]

# Without a binding for slf4j a broker logs nothing, and a failed start has no explanation.
_LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
_FIRST_WITH_SCALA_2_13: Final = (2, 4)
_FETCH_TIMEOUT_SECONDS: Final = 600
_COLOURS: Final = re.compile("\x1b\\[[0-9;]*m")
_MOST_SAID: Final = 1000
"""Characters of what Maven says. Its cause comes first, and how to read more of it last."""


CACHE_VARIABLE: Final = "KAFKA_COOP_CACHE"


def kafka_jars(version: str) -> Path:
    """The folder with the jars of a Kafka broker, fetched if they are not there yet.

    They are kept in ``~/.cache/kafka-coop/kafka-<version>`` (``$XDG_CACHE_HOME`` is heeded);
    the environment variable KAFKA_COOP_CACHE names another place for ``kafka-coop``.
    Processes that ask at the same time wait for the one that fetches.

    Raises:
        LocalKafkaUnavailableError: They are neither there nor to be fetched.
        ValueError: That is no release.
    """
    broker = (_broker(version), _LOGGING)
    return cached(f"kafka-{version}", lambda folder: _fetch(broker, folder))


def maven_jars(name: str, *coordinates: str) -> Path:
    """The folder with these artifacts and what they need, kept in the cache under a name.

    Raises:
        LocalKafkaUnavailableError: They are neither there nor to be fetched.
    """
    return cached(name, lambda folder: _fetch(coordinates, folder))


def cached(name: str, make: Callable[[Path], object]) -> Path:
    """A folder of the cache, filled by ``make`` if it is not there yet: whole or not at all.

    Processes that ask at the same time wait for the one that makes it. What one has left that was
    killed over it goes.

    Raises:
        LocalKafkaUnavailableError: It is not there, and nothing can be written to the cache.
    """
    cache = cache_folder()
    made = cache / name
    if made.is_dir():
        return made
    with _locked(cache / f"{name}.lock"):
        if not made.is_dir():
            making = f"{name}.making-"
            for left in cache.glob(f"{glob.escape(making)}*"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=making) as folder:
                filled = Path(folder, "made")
                filled.mkdir()
                make(filled)
                filled.rename(made)
    return made


def _broker(version: str) -> str:
    scala = "2.13" if release(version) >= _FIRST_WITH_SCALA_2_13 else "2.12"
    return f"org.apache.kafka:kafka_{scala}:{version}"


def cache_folder() -> Path:
    """Where all of it is kept; an absolute path.

    Raises:
        LocalKafkaUnavailableError: Nothing names it, and this user has no home; or Java can't be
            told of it.
    """
    # Maven would take a relative one as relative to the folder of its POM.
    if own := os.environ.get(CACHE_VARIABLE):
        return _on_a_class_path(Path(own))
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        caches = Path(shared) if shared else Path.home() / ".cache"
    except RuntimeError as error:
        raise _no_cache(f"the cache of Kafka's jars has no place: {error}") from error
    return _on_a_class_path(caches / "kafka-coop")


def _on_a_class_path(cache: Path) -> Path:
    path = str(cache.absolute())
    if os.pathsep in path:
        raise _no_cache(
            f"the cache of Kafka's jars can't be {path!r}: {os.pathsep!r} stands between two "
            "entries of Java's class path"
        )
    return Path(path)


def _no_cache(why: str) -> LocalKafkaUnavailableError:
    return LocalKafkaUnavailableError(
        f"{why}; set {CACHE_VARIABLE} to a folder that can be written to"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise _no_cache(f"the cache of Kafka's jars can't be written to: {error}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java_environment() -> dict[str, str]:
    """For a JVM's process: under the POSIX locale it finds no path that is not ASCII."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    posix = next(filter(None, named), "C") in {"C", "POSIX"}
    return {**os.environ, "LC_ALL": "C.UTF-8"} if posix else {**os.environ}


def _fetch(coordinates: tuple[str, ...], into: Path) -> None:
    failures = []
    for fetch in _fetchers():
        try:
            fetch(coordinates, into)
        except Exception as error:  # noqa: BLE001  # whatever stops one, the next may work
            failures.append(f"{fetch.__name__.strip('_')}: {error}")
        else:
            return
    why = "; ".join(failures) or "nothing is installed that could"
    raise LocalKafkaUnavailableError(
        f"{', '.join(coordinates)} can't be fetched: {why}. Kafka's jars are fetched by Maven"
        " (`apt-get install maven`) or by the package jgo (`pip install jgo`)"
    )


def _fetchers() -> Iterator[_Fetch]:
    if shutil.which("mvn"):
        yield _maven
    if importlib.util.find_spec("jgo"):
        yield _jgo


def _maven(coordinates: tuple[str, ...], into: Path) -> None:
    pom = into.parent / "pom.xml"
    pom.write_text(_pom(coordinates))
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    done = subprocess.run(  # noqa: S603  # Maven with arguments of our own
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=_FETCH_TIMEOUT_SECONDS,
        env=java_environment(),
    )
    if done.returncode:
        # Of a JAVA_HOME that leads nowhere it tells on the other one.
        said = _COLOURS.sub("", done.stdout + done.stderr)[:_MOST_SAID].strip()
        raise RuntimeError(f"exit status {done.returncode}: {said}")


def _pom(coordinates: tuple[str, ...]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (c.split(":") for c in coordinates)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>kafka-coop</groupId>"
        "<artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _jgo(coordinates: tuple[str, ...], into: Path) -> None:
    import jgo  # noqa: PLC0415  # an optional package

    artifacts = {a.filename: a for c in coordinates for a in jgo.resolve(c) if a.packaging == "jar"}
    with ThreadPoolExecutor(4) as pool:
        for jar in pool.map(_whole_jar, artifacts.values()):
            shutil.copy(jar, into)


def _whole_jar(artifact: Any) -> Path:
    """Jgo keeps what it had of a jar when it was killed, or cut off, and takes it for all."""
    for _ in range(2):
        jar: Path = artifact.resolve()
        if zipfile.is_zipfile(jar):
            return jar
        jar.unlink()
    raise RuntimeError(f"{artifact.filename} came damaged, twice")


if __name__ == "__main__":
    # Before the tests of a CI run, so that none of them waits for the download.
    missing = []
    for wanted in sys.argv[1:]:
        try:
            sys.stdout.write(f"{kafka_jars(wanted)}\n")
        except (LocalKafkaUnavailableError, ValueError) as error:
            missing.append(str(error))
    sys.exit("\n".join(missing) or None)
