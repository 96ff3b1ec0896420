"""What CI tries a second time, and what not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from inner_run import TESTS, inner_run

import failed_again

SHAKY = """
import pathlib
def test_it():
    pathlib.Path('ran').touch()
    assert {result}
"""
HIDDEN = """
    try:
        assert False
    finally:
        raise {}
"""
CI = TESTS.parent / ".ci"
MIXED = sorted((TESTS / "mixed").glob("test_*.py"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load
    Path("pytest.ini").write_text("[pytest]\nmarkers = verdict\n")


def again(*failed: str, ask: bool = False, final: Sequence[str] = ()) -> int:
    """The status of the second run, after these failed in the first."""
    failed_again.FAILED.parent.mkdir(parents=True)
    failed_again.FAILED.write_text(json.dumps(dict.fromkeys(failed, True)))
    failed_again.FINAL.parent.mkdir(parents=True)
    failed_again.FINAL.write_text(json.dumps(list(final)))
    return failed_again.main(ask=ask)


def written(name: str, result: str) -> str:
    """A test with that result, which leaves a mark when it runs."""
    file = Path(name)
    file.parent.mkdir(parents=True)
    file.write_text(SHAKY.format(result=result))
    return f"{name}::test_it"


@pytest.mark.parametrize(("result", "status"), [("True", 0), ("False", 1)])
def test_what_failed_runs_once_more(result: str, status: int) -> None:
    node = written("tests/broker/test_shaky.py", result)
    assert again(f"{node}@java") == status
    assert Path("ran").exists()


@pytest.mark.parametrize("ask", [False, True], ids=["one by one", "as a whole"])
def test_a_verdict_is_final(ask: bool, capsys: pytest.CaptureFixture[str]) -> None:
    node = written("tests/spark/test_shaky.py", "True")
    other = written("tests/broker/test_sound.py", "True")
    assert again(f"{node}@trial", other, ask=ask, final=[f"{node}@trial"]) == 1
    said = capsys.readouterr().out
    assert node in said
    assert other not in said
    assert not Path("ran").exists()


VERDICTS = {
    "an assertion": ("@pytest.mark.verdict", "assert False"),
    "two owners": ("@pytest.mark.verdict", "raise RuntimeError('two owners')"),
    "late": ("@pytest.mark.verdict(late=True)", "raise TimeoutError('no owner')"),
    "hidden": ("@pytest.mark.verdict", HIDDEN.format("TimeoutError('nobody leads')")),
}
NONE = {
    "no patience": ("@pytest.mark.verdict", "raise TimeoutError('no owner')"),
    "pytest's": ("@pytest.mark.verdict", "pytest.fail('Timeout >300.0s')"),
    "no broker": ("@pytest.mark.verdict", "raise LocalKafkaError('it does not start')"),
    "replaced": ("@pytest.mark.verdict", HIDDEN.format("TimeoutError('nobody leads') from None")),
    "not marked": ("", "assert False"),
}


def test_what_a_verdict_is() -> None:
    """Not that a busy machine was late, unless that counts; and no longer when it passes."""
    cases = [*VERDICTS.values(), *NONE.values()]
    head = "import pytest\nfrom kafka_coop.testing.local import LocalKafkaError\n"
    file = Path("test_it.py")

    def write(*bodies: str) -> None:
        tests = [
            f"{mark}\ndef test_{n}():\n    {body}\n"
            for n, ((mark, _), body) in enumerate(zip(cases, bodies, strict=True))
        ]
        file.write_text(head + "".join(tests))

    def final() -> list[str]:
        return list(json.loads(failed_again.FINAL.read_text()))

    write(*(failing for _, failing in cases))
    assert played() == 1
    verdicts = [f"test_it.py::test_{n}" for n in range(len(VERDICTS))]
    assert final() == verdicts, list(VERDICTS)
    write(*["pass"] * len(cases))
    Path("test_other.py").write_text("def test_other(): pass\n")
    assert played("test_other.py") == 0
    assert final() == verdicts, "they have not run"
    assert played() == 0
    assert final() == []


def test_a_fixture_that_fails_is_no_verdict() -> None:
    Path("test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef broker(): raise RuntimeError('it does not start')\n"
        "@pytest.mark.verdict\ndef test_it(broker): pass\n"
    )
    assert played() == 1
    assert json.loads(failed_again.FINAL.read_text()) == []


def played(*words: str) -> int:
    """The status of a pytest that has the plugin."""
    return inner_run("-q", "-p", "verdicts", *words).returncode


def test_what_is_no_verdict_may_be_repeated_as_a_whole() -> None:
    assert again(written("tests/broker/test_shaky.py", "True"), ask=True) == 0
    assert not Path("ran").exists(), "by who asked"


def test_where_no_test_failed_the_whole_may_be_repeated() -> None:
    """An image that could not be pulled, say."""
    assert again(ask=True) == 0


@pytest.mark.parametrize("died", ["os._exit(137)", "raise KeyboardInterrupt"])
def test_a_run_that_was_stopped_is_started_again(
    died: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it did not come to may hold a loss; other words are another run."""
    file = Path("test_it.py")
    file.write_text(f"import os\ndef test_it(): {died}\n")
    Path("test_other.py").write_text("def test_other(): assert False\n")
    assert played("test_it.py") not in (0, 1)
    assert played("test_other.py") == 1
    assert failed_again.main() == failed_again.main(ask=True) == 1
    assert "pytest -q -p verdicts test_it.py\n" in capsys.readouterr().out
    file.write_text("def test_it(): pass\n")
    assert played("test_it.py") == 0
    assert failed_again.main(ask=True) == 0


@pytest.mark.parametrize(
    "file", [TESTS / "trial" / "test_trial_faults.py", *MIXED], ids=lambda file: file.stem
)
def test_trials_of_chance_are_verdicts(file: Path) -> None:
    """All of a module: what a test of it finds depends on what the machine does meanwhile."""
    assert "pytest.mark.verdict(late=True)" in file.read_text().partition("\ndef ")[0]


@pytest.mark.parametrize("target", ["versions", "three", "spark-versions", "containers"])
@pytest.mark.parametrize("forgivable", [True, False])
def test_ci_repeats_a_run_only_where_no_verdict_failed_in_it(
    target: str, forgivable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played with a `make` whose target fails once."""
    answer = 0 if forgivable else 1
    _script(".ci/docker", 'exec "$@"')
    _script(
        "bin/make",
        "echo $1 >>log",
        f"if [ $1 = forgivable ]; then exit {answer}; fi",
        f"[ $1 != {target} ] || [ $(grep -c {target} log) != 1 ]",
    )
    for name in ("mvn", "java", "promtool", "python3", "apt-get"):
        _script(f"bin/{name}", "exit 0")
    monkeypatch.setenv("PATH", f"{Path('bin').absolute()}:{os.environ['PATH']}")
    Path(".ci/run").write_text((CI / "run").read_text())
    status = subprocess.run(["bash", ".ci/run"], check=False).returncode
    targets = ["test", "versions", "three", "spark-versions", "containers"]
    begun, repeated = targets[: targets.index(target) + 1], targets[targets.index(target) :]
    assert (status == 0) == forgivable
    ran = Path("log").read_text().split()
    assert ran == [*begun, "forgivable", *(repeated if forgivable else [])]


def _script(name: str, *lines: str) -> None:
    file = Path(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    file.chmod(0o755)


def test_a_failure_that_is_no_tests_stays_one() -> None:
    assert again() == 1
