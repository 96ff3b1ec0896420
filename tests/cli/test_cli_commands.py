"""The commands as a shell sees them: output, exit status, and never a traceback."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kafka_coop.cli import entry
from kafka_coop.cli.app import _complete_group, run
from kafka_coop.cli.connection import client_config
from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.simulation import check
from kafka_coop.simulation.check import Verdict
from kafka_coop.testing import EmbeddedKafka

NOBODY = "127.0.0.1:1"

FULL = Path("/dev/full")

HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture
def silence() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.getsockname())


@pytest.mark.parametrize(
    "code", ["class Mine", "raise ValueError('no table of costs')", "raise SystemExit(0)"]
)
def test_a_strategy_that_can_not_be_made_is_no_traceback(
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_strategy.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["plan", "--topic", "t=3", "--assignor", "broken_strategy:Mine"]) == Exit.USAGE
    assert "--assignor broken_strategy:Mine: " in capsys.readouterr().err


def test_a_strategy_in_the_working_directory_is_found(tmp_path: Path) -> None:
    """By the installed command, too, whose path begins with the command's own folder."""
    (tmp_path / "own.py").write_text(
        "from kafka_coop.assignors import CooperativeSticky\n"
        "class Mine(CooperativeSticky):\n"
        "    name = 'mine'\n"
    )
    installed = "import sys; from kafka_coop.cli.entry import main; sys.exit(main())"
    asked = ["plan", "--topic", "t=3", "--assignor", "own:Mine", "--json"]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", installed, *asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=HERE,
    )
    assert (ran.returncode, ran.stderr) == (Exit.OK, "")
    assert json.loads(ran.stdout)["steps"][0]["assignor"] == "mine"


def test_a_list_of_groups_that_is_not_whole_is_an_error(
    embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker refuses ListGroups here; elsewhere, while it loads the groups of another."""
    assert run(["groups", "-b", embedded.bootstrap_servers]) == Exit.UNREACHABLE
    assert "not all groups can be listed" in capsys.readouterr().err


def test_each_group_has_a_line_whatever_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any client may choose one; --json has it as it is."""
    names = ["a\nb", "red \x1b[31m", "ünï"]
    monkeypatch.setattr("kafka_coop.cli.reading.group_names", lambda _: names)
    monkeypatch.setattr("kafka_coop.cli.connection.Connection.metadata", lambda _: None)
    assert run(["groups", "-b", NOBODY]) == Exit.OK
    assert capsys.readouterr().out == "a\\nb\nred \\x1b[31m\nünï\n"
    assert run(["groups", "-b", NOBODY, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["groups"] == names


def test_a_group_whose_name_a_shell_would_run_is_not_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any client may choose one, and zsh reads what is completed as its own language."""
    names = ["orders-1.a_b", r"orders\$(reboot)", "orders`reboot`", "orders;reboot", "payments"]
    monkeypatch.setattr("kafka_coop.cli.reading.group_names", lambda _: names)
    context: Any = SimpleNamespace(params={"servers": NOBODY})
    assert _complete_group(context, "orders") == ["orders-1.a_b"]


def test_a_line_of_a_key_in_a_file_of_settings_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings"
    file.write_text("ssl.key.pem=-----BEGIN\nhunter2\n")
    assert run(["describe", "g", "-b", NOBODY, "-F", str(file)]) == Exit.USAGE
    said = capsys.readouterr().err
    assert "line 2" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("command", [["describe", "g"], ["watch", "g"], ["groups"]])
def test_brokers_that_are_not_there(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "-b", NOBODY]) == Exit.UNREACHABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert f"can't reach {NOBODY}" in err
    assert len(err.splitlines()) == 1


def test_a_broker_that_says_nothing(silence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "g", "-b", silence, "--timeout", "0.5"]) == Exit.UNREACHABLE
    assert f"can't reach {silence}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "g"], "--bootstrap-servers"),
        (["describe", "g", "-b", NOBODY, "-X", "secret"], "that is no key=value"),
        (["describe", "g", "-b", NOBODY, "-X", "no.such.key=1"], "no.such.key"),
        (["describe", "g", "-b", NOBODY, "-F", "/no/such/file"], "/no/such/file"),
        (["describe", "g", "-b", NOBODY, "--assignor", "range"], "module:Class"),
        (["describe", "g", "-b", NOBODY, "--assignor", "no.module:A"], "no.module"),
        (["describe", "g", "-b", NOBODY, "--assignor", "pathlib:Path"], "no Assignor"),
        (["plan"], "--topic"),
        (["plan", "g", "-b", NOBODY, "--topic", "t=3"], "a GROUP has its own"),
        (["plan", "g", "-b", NOBODY, "--members", "2"], "a GROUP has its own"),
        (["plan", "g", "-b", NOBODY, "--assignor", "range"], "module:Class"),
        (["plan", "--topic", "t=3", "--change-to", "no.module:A"], "--change-to no.module:A: "),
        (["plan", "--topic", "t=3", "--members", "100000000"], "'--members'"),
        (["plan", "--topic", "t"], "'t' is no topic=partitions"),
        (["plan", "--topic", "t=0"], "'t': a topic has at least one partition"),
        (["plan", "--topic", "t=\u0660"], "is no topic=partitions"),
        (["plan", "--topic", "\udcff=3"], "a topic's name has letters"),
        (["plan", "--topic", "t" * 250 + "=3"], "249 of them at most"),
        (["plan", "--topic", "t=3", "--grow", "a b=3"], "'a b': a topic's name has letters"),
        (["plan", "--topic", "t=2000000000000"], "more than 1,000,000 partitions"),
        (["plan", "--topic", "t=3", "--grow", "t=" + "9" * 5000], "more than 1,000,000 partitions"),
        (["plan", "--topic", "t=3", "--assignor", "best"], "unknown strategy 'best'"),
        (["plan", "--topic", "t=3", "--leave", "x"], "'x' is not in the group"),
        (["plan", "--topic", "t=3", "--join", "member-1"], "choose another id"),
        (["plan", "--topic", "t=3", "--grow", "t=1"], "can't shrink"),
        (["plan", "--topic", "t=3", "--picture", "/no/dir/a.svg"], "/no/dir/a.svg"),
        (["plan", "--topic", "t=3", "--picture", "a.png"], ".html or .svg"),
        (["describe", "g", "-b", NOBODY, "--timeout", "inf"], "'--timeout'"),
        (["groups", "-b", NOBODY, "--timeout", "4000"], "'--timeout'"),
        (["watch", "g", "-b", NOBODY, "--interval", "inf"], "'--interval'"),
        (["describe"], "GROUP"),
        (["describe", "", "-b", NOBODY], "the group's name is empty"),
        (["describe", "a\udcff", "-b", NOBODY], "'a\\udcff'"),
        (["watch", "x" * 32768, "-b", NOBODY], "no group has such a name"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_wrong_usage_names_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_password_on_the_command_line_is_never_shown() -> None:
    with pytest.raises(CommandError) as refused:
        client_config(NOBODY, ["=hunter2"])
    assert "hunter2" not in str(refused.value)


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# TLS\n\nssl.ca.location = /a=b\nclient.id=file\nbootstrap.servers=f:1\n")
    assert client_config(None, ["client.id=line"], file) == {
        "ssl.ca.location": "/a=b",
        "client.id": "line",
        "bootstrap.servers": "f:1",
    }


def test_brokers_on_the_command_line_go_before_those_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whichever way they are given there: else another cluster is looked at than was named."""
    monkeypatch.setenv("KAFKA_COOP_BOOTSTRAP_SERVERS", "127.0.0.1:2")
    for given in (["-b", NOBODY], ["-X", f"bootstrap.servers={NOBODY}"]):
        assert run(["groups", *given]) == Exit.UNREACHABLE
        assert f"can't reach {NOBODY}:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [[], ["describe"], ["watch"], ["groups"], ["plan"], ["simulate"]]
)
def test_every_command_explains_itself(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--help"]) == 0
    assert "Usage: kafka-coop" in capsys.readouterr().out


def test_changes_are_made_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = tmp_path / "plan.html"
    changes = ["--leave", "member-0", "--grow", "t=8", "--change-to", "range", "--join", "new"]
    assert run(["plan", "--topic", "t=6", *changes, "--picture", str(drawn), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["steps"]
    assert [(s["what"], s["assignor"], s["partitions"], len(s["members"])) for s in made] == [
        ("member-0 leaves", "cooperative-sticky", 6, 2),
        ("t grows to 8 partitions", "cooperative-sticky", 8, 2),
        ("the strategy becomes range", "range", 8, 2),
        ("new joins", "range", 8, 3),
    ]
    assert made[0]["moved"] == 0
    assert "If new joins" in drawn.read_text()


def test_the_simulations_verdict_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "check", "--seeds", "2", "--first", "7", "--jobs", "1"]) == Exit.OK
    assert capsys.readouterr().out.splitlines()[-1] == "2 schedules, 0 violations"


def test_a_violation_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Verdict(violated="I1", text="two owners", at=1.0)
    monkeypatch.setattr("kafka_coop.simulation.check.run", lambda *_, **__: bad)
    assert run(["simulate", "check", "--seeds", "1", "--jobs", "1"]) == Exit.NO
    assert capsys.readouterr().out.splitlines()[-1] == "1 schedules, 1 violations"


def test_who_is_interrupted_has_the_totals_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = iter([Verdict()] * 49 + [Verdict(violated="I1", text="two owners")] + [Verdict()])

    def interrupted(*_: object, **__: object) -> Verdict:
        try:
            return next(verdicts)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("kafka_coop.simulation.check.run", interrupted)
    assert run(["simulate", "check", "--seeds", "200", "--jobs", "1"]) == Exit.INTERRUPTED
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "50 schedules, 1 violations"
    assert err == ""


def test_what_can_not_be_read_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> Verdict:
        raise PermissionError(errno.EACCES, "Permission denied", "/some/file")

    monkeypatch.setattr("kafka_coop.simulation.check.run", fails)
    assert run(["simulate", "check", "--seeds", "1", "--jobs", "1"]) == Exit.USAGE
    said = "kafka-coop: can't read or write /some/file: Permission denied\n"
    assert capsys.readouterr().err == said


def test_processes_leave_an_interruption_to_the_one_that_started_them() -> None:
    asks = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    before = signal.getsignal(signal.SIGINT)
    with check._left_alone():
        said = subprocess.run(
            [sys.executable, "-c", asks], capture_output=True, text=True, check=True
        )
    assert said.stdout.strip() == "True"
    assert signal.getsignal(signal.SIGINT) is before


def test_the_module_points_to_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kafka_coop.simulation.check", "--seeds", "1"],
        capture_output=True,
        text=True,
        check=False,
        env=HERE,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("the command is kafka-coop simulate check, or python -m")


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "typer" else found(name)
    )
    assert entry.main([]) == Exit.UNAVAILABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "kafka-coop needs typer: pip install 'kafka-coop[cli]'"


def test_an_interruption_amid_the_import_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "kafka_coop.cli.app", Interrupted("kafka_coop.cli.app"))
    assert entry.main(["--help"]) == Exit.INTERRUPTED


def test_a_reader_that_leaves_early_is_no_error() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "kafka_coop.cli.entry", "plan", "--topic", "t=3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=HERE,
    )
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    said = child.stderr.read()
    child.stderr.close()
    assert (child.wait(60), said) == (Exit.PIPE_CLOSED, b"")


@pytest.mark.parametrize("command", [["plan", "--topic", "t=3"], ["--help"], ["plan", "--help"]])
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line(command: list[str]) -> None:
    with FULL.open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "kafka_coop.cli.entry", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=HERE,
        )
    assert ran.returncode == Exit.USAGE
    assert ran.stderr == "kafka-coop: can't read or write: No space left on device\n"


def test_a_closed_output_is_said_in_one_line() -> None:
    ran = subprocess.run(
        ["sh", "-c", 'exec "$0" -m kafka_coop.cli.entry plan --topic t=3 >&-', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=HERE,
    )
    assert ran.returncode == Exit.USAGE
    assert ran.stderr == "kafka-coop: there is no standard output to write to: it is closed\n"
