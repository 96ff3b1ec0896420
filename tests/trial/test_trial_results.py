"""What a run writes is read again, judged anew, and told in the report."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_coop.testing.trial import judge_again, run
from kafka_coop.testing.trial.ending import HANGS, REASONS
from kafka_coop.testing.trial.origin import Origin
from kafka_coop.testing.trial.outcome import NANO, Injected, Plan, Result
from kafka_coop.testing.trial.report import main, report
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

PLAN = Plan(faults=2, lasting=timedelta(minutes=2), members=3, partitions=4, rate=5)
ORIGIN = Origin(commit="0123456789abcdef", clean=True, kafka="4.1.0", date="2026-01-02T03:04:05")


def test_a_result_is_read_back() -> None:
    fault = Injected(at=1, name="broker killed", what="", roles=("controller",), silent=1.5)
    result = Result(
        plan=PLAN.to_dict(),
        origin=ORIGIN,
        faults=[fault, fault],
        ends={3: 4},
        committed={3: 4},
        endings={"why": ["m1"]},
    )
    again = Result.from_dict(json.loads(result.to_json()))
    assert again == result
    assert again.session == PLAN.session
    assert again.complete
    assert not replace(again, faults=[fault]).complete
    assert "ends" not in json.loads(result.summary())


def test_a_widened_topic_tells_when_its_partitions_came() -> None:
    faults = [Injected(at=7, name="topic grown", what="the topic has 5 partitions")]
    assert Result(plan=PLAN.to_dict(), faults=faults).born() == {4: 7}


OF_OLD: dict[str, Any] = {
    "plan": {**PLAN.to_dict(), "faults": 4},
    "faults": [
        {"at": 1 * NANO, "name": "member killed", "what": "m1 killed, m3 started", "silent": 0.0},
        {"at": 3 * NANO, "name": "broker restarted", "what": "broker 2 restarted", "silent": 0.0},
        {
            "at": 4 * NANO,
            "name": "member paused beyond its session",
            "what": "m2 stopped for 8.0 s",
            "silent": 0.0,
        },
        {
            "at": 9 * NANO,
            "name": "leaders and coordinator moved",
            "what": "preferred leaders elected",
            "silent": 0.0,
        },
    ],
    "produced": 3,
    "in_hand": 9,
    "late": 0,
    "failed": [],
}


def lines(*told: str) -> str:
    """``R 2 0 7``: in second 2 record 7 of partition 0."""
    words = [line.split(" ", 2) for line in told]
    return "".join(f"{w[0]} {int(w[1]) * NANO} {' '.join(w[2:])}\n" for w in words)


@pytest.fixture
def run_of_old(tmp_path: Path) -> Path:
    tmp_path.joinpath("m1.journal").write_text(lines("S 0", "A 0 1 0", "R 0 0 0"))
    zombie = lines("S 0", "A 0 1 1", "R 12 1 0", "L 14 1 1", "X 15")
    tmp_path.joinpath("m2.journal").write_text(zombie)
    heir = lines("S 0", "A 7 2 0", "A 10 3 1", "R 7 0 1", "R 11 1 0", "V 15 3 0,1", "X 15")
    tmp_path.joinpath("m3.journal").write_text(heir)
    tmp_path.joinpath("old.json").write_text(json.dumps(OF_OLD))
    return tmp_path


def again(folder: Path, *more: str) -> int:
    given = ["--journals", str(folder), "--result", str(folder / "old.json")]
    return judge_again.main([*given, "--out", str(folder / "new.json"), *more])


def test_a_run_of_old_is_judged_anew(run_of_old: Path) -> None:
    assert again(run_of_old) == 0
    new = Result.from_dict(json.loads((run_of_old / "new.json").read_text()))
    assert new.ends == {0: 2, 1: 1}
    assert new.killed == {"m1": 1 * NANO}
    assert (new.late, new.in_hand, new.repeated, new.committed) == (0, 1, 1, None)
    assert [f.member for f in new.faults] == ["m1", "", "m2", ""]
    assert new.faults[1].until == 9 * NANO, "it served again before the next but one"
    assert new.faults[2].until == pytest.approx(11.9 * NANO)
    assert new.faults[3].name == "preferred leaders elected, if not yet"
    assert new.longest_ownerless == 6
    (run_of_old / "new.json").rename(run_of_old / "result.json")
    assert judge_again.main(["--journals", str(run_of_old)]) == 0, "and once more, where it lies"


@pytest.mark.parametrize(
    "change",
    [
        {"produced": 4},
        {"faults": OF_OLD["faults"][:2] + OF_OLD["faults"][3:]},
        {"plan": {**OF_OLD["plan"], "faults": 5}},
        {"failed": ["m9: bang"]},
    ],
    ids=["lost at the end", "a late record without a stop", "too few faults", "failed"],
)
def test_a_run_of_old_that_was_not_sound_fails(run_of_old: Path, change: dict[str, Any]) -> None:
    (run_of_old / "old.json").write_text(json.dumps({**OF_OLD, **change}))
    assert again(run_of_old) == 1


def test_no_journals_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        judge_again.main(["--journals", str(tmp_path), "--result", "none"])


@pytest.mark.parametrize(
    "written",
    [None, "{", "[]", '{"plan": {}}'],
    ids=["no result", "half a result", "a list", "something else"],
)
def test_no_result_no_verdict(
    run_of_old: Path, written: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if written is not None:
        (run_of_old / "result.json").write_text(written)
    with pytest.raises(SystemExit):
        judge_again.main(["--journals", str(run_of_old)])
    assert f"--result {run_of_old / 'result.json'}" in capsys.readouterr().err


@pytest.mark.parametrize("written", [None, "no JSON", "[]", '{"plan": {}}', "\xff"])
def test_the_report_of_what_is_no_result_says_so(
    tmp_path: Path, written: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.json"
    if written is not None:
        path.write_bytes(written.encode("latin-1"))
    with pytest.raises(SystemExit):
        main([str(path)])
    said = capsys.readouterr().err
    assert str(path) in said
    assert "give a file that a run wrote with --result" in said


@pytest.fixture
def no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: Any, **__: Any) -> None:
        pytest.fail("brokers were started")

    monkeypatch.setattr(run, "LocalKafka", started)


@pytest.mark.usefixtures("no_brokers")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--faults 0", "argument --faults: a number above 0, not '0'"),
        ("--minutes nan", "argument --minutes: a number above 0, not 'nan'"),
        ("--minutes 1e300", "argument --minutes: less than a million years, not '1e300'"),
        ("--members -1", "argument --members: a number above 0"),
        ("--rate 0", "argument --rate: a number above 0"),
        ("--others -1", "argument --others: a number, 0 or above, not '-1'"),
        ("--others 6", "--others 6: fewer than --members, 6"),
        ("--others 2 --transactions", "--others: with --transactions members of ours alone copy"),
        ("--result {0}/none/r.json", "--result {0}/none/r.json: can't be written there"),
        ("--result {0}", "--result {0}: can't be written there"),
        ("--journals {0}", "--journals {0}: File exists: name a new folder"),
    ],
)
def test_what_a_run_can_not_do_it_says_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    """An hour's result was lost where there was no folder for it."""
    with pytest.raises(SystemExit, match="2"):
        run.main(given.format(tmp_path).split())
    assert said.format(tmp_path) in capsys.readouterr().err


def test_a_run_without_brokers_says_what_they_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(**_: Any) -> None:
        raise LocalKafkaUnavailableError("install a JRE")

    monkeypatch.setattr(run, "LocalKafka", none)
    monkeypatch.setattr(run, "end_in_order_at_sigterm", lambda: None)
    assert run.main([]) == 2
    assert capsys.readouterr().err == "install a JRE\n"


def test_a_result_may_lie_beside_the_journals_that_are_yet_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = Result(plan=replace(PLAN, faults=0).to_dict())
    monkeypatch.setattr(run, "LocalKafka", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(run, "end_in_order_at_sigterm", lambda: None)
    monkeypatch.setattr(run, "run", lambda *_: sound)
    journals = tmp_path / "kept"
    assert run.main(["--journals", str(journals), "--result", str(journals / "r.json")]) == 0
    assert Result.from_dict(json.loads((journals / "r.json").read_text())) == sound


def told(*faults: Injected, **more: Any) -> str:
    result = Result(plan=PLAN.to_dict(), faults=[*faults], **more)
    return report([json.loads(result.to_json())])


def test_the_report_tells_what_was_and_what_was_lost() -> None:
    faults = [
        Injected(at=0, name="member killed", what="", silent=s, ownerless=2.5)
        for s in (1.0, 3.0, None)
    ]
    text = told(*faults, lost=17, overlaps=["one"], failed=["m1: bang"], silent_too_long=["p"])
    assert "| **lost** | 17 |" in text
    assert "| **two owners** | 1 |" in text
    assert "| **silent for too long** | 1 |" in text
    assert "| **wrong offsets** | not looked at |" in text
    assert "| member killed | 3 | 2.00 | 3.00 | 2.50 |" in text
    assert "m1: bang" in text
    assert "copied" not in text
    assert "{" not in text, "the slacks are filled in"


def test_the_report_says_who_was_of_other_clients() -> None:
    plan = replace(PLAN, others=2)
    result = Result(plan=plan.to_dict(), late_of_others=4)
    text = report([json.loads(result.to_json())])
    assert "## At least once: 0 faults, 3 members, 2 of them of other clients\n" in text
    assert "| late records of other clients' members | 4 |" in text
    assert "of other clients\n" not in told()
    assert "late records of other" not in told()


def test_the_report_says_when_a_fault_is_charged_with_nothing() -> None:
    text = told(Injected(at=0, name="broker killed", what=""), committed={0: 1})
    assert "| broker killed | 1 | - | - | - |" in text
    assert "| **wrong offsets** | 0 |" in text
    assert "was not recorded" in text


def test_the_report_counts_who_went_down() -> None:
    taken: list[tuple[str, tuple[str, ...] | None]] = [
        ("broker killed", ("controller", "coordinator")),
        ("broker out of disk", ("controller",)),
        ("broker killed", ()),
        ("broker killed", None),
        ("broker restarted", ("coordinator",)),
        ("brokers restarted in turn", ("coordinator", "controller")),
    ]
    text = told(*(Injected(at=0, name=name, what="", roles=roles) for name, roles in taken))
    assert (
        "Of 3 crashes of a broker (broker killed, broker out of disk), 2 took the active controller"
        " and 1 the group's coordinator; of 2 orderly restarts, of one broker or of each in turn,"
        " 1 took the active controller and 2 the group's coordinator. Of 1 brokers out of disk 0"
        " went on, and of the orderly restarts 0 came to no end: these were killed.\n"
    ) in text


def test_the_report_counts_who_did_not_end_as_it_should() -> None:
    stubborn = [
        Injected(at=0, name=name, what="", roles=(), in_vain=True)
        for name in ("broker out of disk", "broker restarted", "broker restarted")
    ]
    well = Injected(at=0, name="broker out of disk", what="", roles=())
    text = told(*stubborn, well)
    assert "Of 2 brokers out of disk 1 went on, and of the orderly restarts 2 came to no" in text


def test_the_report_says_how_long_the_faults_took() -> None:
    first, last = (Injected(at=s * NANO, name="member left", what="") for s in (7, 3700))
    lasting = replace(first, until=3730 * NANO)
    assert "0:02:00, the machine permitting; they took 1:01:33. 4" in told(first, last)
    assert "they took 1:02:03." in told(lasting, last)
    assert "they took" not in told()


def test_the_report_says_which_code_it_was() -> None:
    assert "Code: commit 0123456789ab; Kafka 4.1.0; 2026-01-02T03:04:05." in told(origin=ORIGIN)
    assert "0123456789ab, changed since;" in told(origin=replace(ORIGIN, clean=False))
    assert "Code: no git clone; Kafka" in told(origin=replace(ORIGIN, commit="", clean=False))


def test_the_report_says_why_members_ended_by_themselves() -> None:
    plan = replace(PLAN, transactions=True)
    result = Result(plan=plan.to_dict(), endings={REASONS[HANGS]: ["m1", "m7"]})
    text = report([json.loads(result.to_json())])
    for status, words in REASONS.items():
        assert f"| {words} | {2 if status == HANGS else 0} |" in text
    assert "why members ended" not in told(), "without transactions they must not"


def test_the_report_of_a_result_of_old_says_what_was_not_recorded() -> None:
    values = json.loads(Result(plan=replace(PLAN, transactions=True).to_dict()).to_json())
    for new in ("origin", "endings", "taken_by_pauses", "slow", "outlived"):
        del values[new]
    text = report([values])
    assert "From which code was not recorded." in text
    assert "Why members ended by themselves was not recorded." in text
    assert "| **taken by a short pause** | not looked at |" in text
    again = Result.from_dict(values)
    assert (again.origin, again.endings, again.slow) == (None, None, None)
