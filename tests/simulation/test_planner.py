"""The capacity planner: its model against the box, its scenarios, its command."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kafka_coop.membership.pulse import CALM_INTERVAL, FOLLOW_UP_AFTER, FOLLOW_UP_INTERVAL
from kafka_coop.simulation import faults as ft
from kafka_coop.simulation import run as planner
from kafka_coop.simulation.invariants import Watcher
from kafka_coop.simulation.planner.group import CoarseGroup
from kafka_coop.simulation.planner.incidents import Fates, Incident, Kind, fates
from kafka_coop.simulation.planner.ownership import fewest_moves
from kafka_coop.simulation.planner.pace import hurried_beats
from kafka_coop.simulation.planner.report import Result, result_of
from kafka_coop.simulation.planner.scenario import COOPERATIVE, Plan, ScenarioError, load, parse
from kafka_coop.simulation.planner.timeline import Phase, Timeline, ordinal
from kafka_coop.simulation.process import Process
from kafka_coop.simulation.settling import settle
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import GROUP, MemberPlan, Scenario, Timing, World
from kafka_coop.types import Generation, Partitions, TopicPartition

SMALL: Mapping[str, object] = {
    "topics": [{"partitions": 24}],
    "members": 4,
    "leader": 0.001,
    "commit": 0.002,
    "session_timeout": 9,
    "steps": [{"do": "scale-out", "at": 10, "by": 0.25, "within": 0}],
}


def planned(table: Mapping[str, object], client: str) -> Result:
    _, (result,) = planner.simulate(parse({**table, "compare": [client]}, "here"))
    return result


class Gaps(Watcher):
    """How long each partition had no owner in the box."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[TopicPartition, float] = {}
        self.longest: dict[TopicPartition, float] = {}

    def releasing(
        self, process: Process, partitions: Partitions, unsaved: Iterable[TopicPartition]
    ) -> None:
        super().releasing(process, partitions, unsaved)
        self.lost.update(dict.fromkeys(partitions, process.world.agenda.now))

    def owning(self, process: Process, partitions: Partitions, generation: Generation) -> None:
        super().owning(process, partitions, generation)
        for partition in partitions:
            if partition in self.lost:
                gap = process.world.agenda.now - self.lost.pop(partition)
                self.longest[partition] = max(gap, self.longest.get(partition, 0.0))


def boxed(client: str, strategy: str, heartbeat: float | None, leaves: bool) -> tuple[int, Gaps]:
    """Four members; one more comes, or one goes. Returns the rounds that it takes."""
    plan = MemberPlan(
        topics=("topic-0",),
        strategies=(strategy,),
        client=client,
        habits=UserHabits(poll_interval=0.1),
    )
    names = [f"m{i}" for i in range(5)]
    starts = [ft.Incident(at=0.3 * i, fault=ft.Start(member=m)) for i, m in enumerate(names[:4])]
    scenario = Scenario(
        seed=1,
        topics={"topic-0": 24},
        members=dict.fromkeys(names, plan),
        timing=Timing(session=9.0, rebalance=30.0, heartbeat=heartbeat, latency=(0.0005, 0.0)),
        incidents=tuple(starts),
    )
    world = World(scenario)
    world.watcher = world.surroundings.watcher = gaps = Gaps()
    world.run_until(60.0)
    before = world.cluster.coordinator.generation(GROUP)
    gaps.longest.clear()
    if leaves:
        world._happen(ft.Close(member="m3"))
    else:
        world._happen(ft.Start(member="m4"))
    world.run_until(80.0)
    settle(world)
    return world.cluster.coordinator.generation(GROUP) - before, gaps


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(
    ("client", "dialect", "strategy", "heartbeat"),
    [
        ("kafka-coop", "", "cooperative-sticky", None),
        ("cooperative", "librdkafka", "cooperative-sticky", 3.0),
        ("eager", "java", "roundrobin", 3.0),
    ],
)
def test_the_model_takes_the_rounds_and_the_time_that_the_box_takes(
    client: str, dialect: str, strategy: str, heartbeat: float | None, leaves: bool
) -> None:
    steps: list[dict[str, object]] = (
        [{"do": "rolling-deploy", "at": 10, "batch": 0.25, "within": 0, "down": 500, "every": 1e5}]
        if leaves
        else [{"do": "scale-out", "at": 10, "by": 0.25, "within": 0}]
    )
    table = {**SMALL, "steps": steps}
    plan = parse({**table, "compare": [client]}, "here")
    (group,), _ = planner.simulate(plan)
    first = [r for r in group.rounds if r.opened < 400]
    rounds, gaps = boxed(dialect, strategy, heartbeat, leaves)
    assert len(first) == rounds
    interval = heartbeat or 0.1
    spread = interval if client == "eager" or leaves else 0.15
    modelled = (
        first[-1].assigned - first[-1].opened if leaves else planned(table, client).gaps.longest
    )
    longest = max(gaps.longest.values())
    assert longest == pytest.approx(modelled, abs=spread + 0.1)


def test_what_moves_is_what_has_to() -> None:
    for client in ("cooperative", "kafka-coop"):
        result = planned(SMALL, client)
        assert (result.moved, result.minimum, result.rounds) == (4, 4, 2)
        assert result.gaps.partitions == result.moved == result.stopped
    eager = planned(SMALL, "eager")
    assert eager.stopped == eager.gaps.partitions == 24
    assert eager.moved > eager.minimum


def test_a_follow_up_round_waits_for_a_heartbeat_unless_it_was_announced() -> None:
    assert planned(SMALL, "cooperative").gaps.longest > 2.8
    assert planned(SMALL, "kafka-coop").gaps.longest < 0.2


def test_a_lost_zone_is_noticed_when_its_sessions_run_out() -> None:
    table = {**SMALL, "members": 6, "steps": [{"do": "zone-loss", "at": 10, "zone": 1}]}
    result = planned(table, "kafka-coop")
    assert (result.moved, result.minimum) == (8, 8)
    assert result.gaps.p50 == pytest.approx(9.0, abs=0.5)


def test_members_who_came_before_count_for_a_zone_that_is_lost() -> None:
    steps = [{"do": "scale-out", "at": 10, "by": 1}, {"do": "zone-loss", "at": 60, "zone": 5}]
    plan = parse({**SMALL, "zones": 6, "steps": steps}, "here")
    assert sum(i.kind is Kind.CRASH for i in fates(plan).incidents) == 1
    with pytest.raises(ScenarioError, match=r"steps\.1\.zone = 5: none of 4 members"):
        parse({**SMALL, "zones": 6, "steps": [{**steps[0], "at": 61}, steps[1]]}, "here")


AT_ONCE = {"do": "rolling-deploy", "batch": 1, "within": 0, "down": 10}


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        pytest.param(
            [{"do": "scale-out", "by": 1, "within": 100}, {**AT_ONCE, "at": 30}],
            8,
            id="a deploy amid a scale-out",
        ),
        pytest.param([AT_ONCE, {**AT_ONCE, "at": 15}], 4, id="two deploys"),
        pytest.param([AT_ONCE, {"do": "zone-loss", "at": 15}], 2, id="lost amid a deploy"),
        pytest.param(
            [{"do": "rolling-deploy", "batch": 0.25, "every": 60}, {"do": "zone-loss", "at": 80}],
            2,
            id="lost between two batches",
        ),
        pytest.param(
            [{"do": "scale-out", "by": 1, "within": 0}, {"do": "zone-loss"}],
            4,
            id="lost as they start",
        ),
    ],
)
def test_steps_may_overlap(steps: list[Mapping[str, object]], left: int) -> None:
    plan = parse({**SMALL, "zones": 2, "steps": steps, "compare": ["kafka-coop"]}, "here")
    (group,), _ = planner.simulate(plan)
    assert group.rounds[-1].members == left
    assert np.all(group.ownership.owner >= 0)


def test_who_was_lost_before_it_started_is_shown_as_down() -> None:
    steps = [{"do": "scale-out", "by": 1, "within": 100}, {"do": "zone-loss", "at": 11}]
    plan = parse({**SMALL, "zones": 2, "steps": steps, "compare": ["kafka-coop"]}, "here")
    (group,), _ = planner.simulate(plan)
    down = {s.row for s in group.timeline.spans if s.phase is Phase.DOWN and s.end > group.ends}
    assert down == {0, 2, 4, 6}


def test_a_gap_that_never_ends_lasts_to_the_end_of_the_run() -> None:
    plan = parse({**SMALL, "members": 1}, "here")
    alone = Fates([Incident(at=10.0, process=0, kind=Kind.CRASH)], np.array([0]), np.array([0]))
    group = CoarseGroup(plan, COOPERATIVE, alone)
    group.run()
    gaps = result_of(group).gaps
    assert gaps.partitions == 24
    assert gaps.p50 == gaps.longest == pytest.approx(9.0, abs=3.0), "until its session is over"


def test_a_deploy_gives_every_partition_back() -> None:
    steps = [{"do": "rolling-deploy", "at": 10, "batch": 0.5, "down": 5, "every": 30}]
    plan = parse({**SMALL, "steps": steps, "compare": ["kafka-coop"]}, "here")
    (group,), (result,) = planner.simulate(plan)
    assert np.all(group.ownership.owner >= 0)
    assert result.moved == result.minimum


def test_who_hands_over_first_leaves_nothing_idle_for_a_heartbeat() -> None:
    steps = [{"do": "rolling-deploy", "at": 10, "batch": 0.25, "within": 0.1, "every": 30}]
    ours = {"protocol": "cooperative", "heartbeat": 2, "hurries": True, "beats_from_sync": False}
    compare = [{**ours, "name": f"{drains}", "drains": drains} for drains in (False, True)]
    table = {**SMALL, "members": 8, "steps": steps, "compare": compare}
    _, (closing, draining) = planner.simulate(parse(table, "here"))
    assert draining.gaps.longest < 0.3
    assert closing.gaps.longest > 1.0
    assert draining.moved == draining.minimum
    assert draining.rounds <= 2 * closing.rounds


def test_a_group_at_rest_beats_as_it_does_a_minute_after_its_last_round() -> None:
    result = planned(SMALL, "kafka-coop")
    assert result.load.resting == pytest.approx(5 / CALM_INTERVAL)


def test_the_same_plan_gives_the_same_result() -> None:
    assert planned(SMALL, "cooperative") == planned(SMALL, "cooperative")


@pytest.mark.parametrize(
    ("owner", "members", "fewest"),
    [
        ([0, 0, 1, 1], [0, 1], 0),
        ([0, 0, 1, 1], [1, 2], 2),
        ([0, 0, 0, 0], [0, 1], 2),
        ([0, 0, 0, 1, 1], [0, 1], 0),
        ([0, 0, 1, 1, 1], [0, 1, 2], 1),
    ],
)
def test_the_fewest_moves(owner: list[int], members: list[int], fewest: int) -> None:
    assert fewest_moves(np.array(owner), np.array(members)) == fewest


def test_the_pace_of_a_hurry_is_the_machine_s() -> None:
    beats = hurried_beats(3.0, 45.0, 1.0)
    assert beats[:2] == pytest.approx([FOLLOW_UP_AFTER, FOLLOW_UP_AFTER + FOLLOW_UP_INTERVAL])
    assert all(b > a for a, b in pairwise(beats))
    assert beats[-1] - beats[-2] > 0.05, "the longer it takes, the less they hurry"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"members": 0}, "here: members = 0: Input should be greater than or equal to 1 (1 to"),
        ({"memebers": 3}, "here: memebers = 3: Extra inputs are not permitted (there is: name,"),
        ({"topics": [{"partitions": -1}]}, "here: topics.0.partitions = -1: Input should be"),
        ({"steps": [{"do": "dance"}]}, "here: steps.0 = {'do': 'dance'}: Input tag 'dance'"),
        ({"steps": [{"do": "zone-loss", "zone": 7}]}, "steps.0.zone = 7: there are 3 zones"),
        ({"steps": [{"do": "scale-out"}]}, "here: steps.0.by: Field required (0.5 for half"),
        (
            {"compare": [{"name": "x", "protocol": "eager", "strategy": "range", "drains": True}]},
            "an eager group can't drain members: leave drains out",
        ),
        (
            {"members": 1, "steps": [{"do": "zone-loss", "zone": 0}]},
            "steps.0.zone = 0: all members are in it then, and some must be left: raise members",
        ),
        (
            {"zones": 1, "steps": [{"do": "zone-loss"}]},
            "all members are in it then, and some must be left: raise members = 4, or zones = 1",
        ),
        (
            {"members": 10, "zones": 20, "steps": [{"do": "zone-loss", "zone": 15}]},
            "steps.0.zone = 15: none of 10 members is in it then: name another, or raise members",
        ),
        (
            {
                "zones": 2,
                "steps": [{"do": "zone-loss", "at": 20, "zone": 1}, {"do": "zone-loss"}],
            },
            "steps.0.zone = 1: all members are in it then",
        ),
        ({"seed": -1}, "here: seed = -1: Input should be greater than or equal to 0 (a whole"),
        ({"session_timeout": 1e-9}, "session_timeout = 1e-09: Input should be greater than or"),
        ({"coordinator": 1e-9}, "coordinator = 1e-09: Input should be greater than or equal to 1"),
        (
            {"compare": [{"name": "x", "protocol": "eager", "heartbeat": 1e-9}]},
            "compare.0.heartbeat = 1e-09: Input should be greater than or equal to 0.001",
        ),
        ({"compare": ["eager", "eager"]}, "compare: eager is there twice: name each once"),
        (
            {"callback": 400},
            "here: poll + callback + commit = 0.1 + 400.0 + 0.002 = 400.102: must be below reba",
        ),
        ({"rebalance_timeout": 0.001}, "raise it, or lower one of the others"),
        ({"poll": 1e6, "round_trip": 60}, "= 1000000.002: must be below rebalance_timeout"),
        ({"compare": ["quick"]}, "here: compare.0 = 'quick': must be a table of fields"),
        ({"compare": "eager"}, "here: compare = 'eager': must be a list (clients: eager, cooper"),
        ({"steps": {"do": "scale-out"}}, "here: steps = {'do': 'scale-out'}: must be a list (at"),
        ({"steps": [5]}, "here: steps.0 = 5: must be a table of fields (at least one: scale-out"),
        ({"steps": []}, "here: steps = []: Tuple should have at least 1 item"),
        (
            {"compare": [{"name": "x", "protocol": "cooperative", "strategy": "range"}]},
            "range is not cooperative: choose another strategy",
        ),
        (
            {"compare": [{"name": "x", "protocol": "eager", "strategy": "luck"}]},
            "compare.0.strategy = 'luck': ",
        ),
    ],
)
def test_a_bad_scenario_is_refused_by_field_value_and_remedy(
    change: Mapping[str, object], said: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse({**SMALL, **change}, "here")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": [{"do": "scale-out"}]},
        {"compare": ["quick"]},
        {"topics": [{"partitions": -1}]},
    ],
)
def test_what_is_wrong_inside_a_list_is_said_once(change: Mapping[str, object]) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse({**SMALL, **change}, "here")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("table", [None, "members: 3", [SMALL], 7])
def test_a_scenario_is_a_table(table: object) -> None:
    with pytest.raises(
        ScenarioError, match=r"^here: must be a table of fields, and is "
    ) as refused:
        parse(table, "here")
    assert "(there is: name, seed, topics, members" in str(refused.value)


@pytest.mark.parametrize("client", ["eager", "cooperative", "kafka-coop"])
def test_members_that_miss_every_round_are_no_endless_run(client: str) -> None:
    table = {**SMALL, "poll": 0.01, "rebalance_timeout": 0.05, "round_trip": 60}
    with pytest.raises(ScenarioError, match=r"after 100 rounds.*rebalance_timeout = 0\.05: raise"):
        planned(table, client)


TOML = """
members = 4
leader = 0.001
session_timeout = 9
topics = [{ partitions = 24 }]
steps = [{ do = "scale-out", at = 10, by = 0.25, within = 0 }]
"""


def test_the_command_prints_a_table_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "grow.toml").write_text(TOML)
    assert planner.main([str(tmp_path / "grow.toml"), "--out", str(tmp_path)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()[:4]
    assert head.split()[:4] == ["client", "rounds", "moved", "minimum"]
    assert [row.split()[0] for row in rows] == ["eager", "cooperative", "kafka-coop"]
    told = json.loads((tmp_path / "grow.json").read_text())
    assert [c["client"] for c in told["clients"]] == ["eager", "cooperative", "kafka-coop"]
    assert told["clients"][1]["timeline"]["spans"]
    assert (tmp_path / "grow.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def never_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate(_plan: Plan) -> None:
        pytest.fail("simulated before it was tried whether anything can be written")

    monkeypatch.setattr(planner, "simulate", simulate)


@pytest.mark.usefixtures("never_simulates")
@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("file", "file: is no directory: name another"),
        ("file/below", "below: is no directory: name another"),
        pytest.param(
            "/proc",
            "--out /proc: can't be written (",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux's /proc"),
        ),
        (".", "grow.json can't be written: name another"),
    ],
)
def test_where_nothing_can_be_written_is_said_before_the_run(
    out: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "grow.json").mkdir()
    (tmp_path / "grow.toml").write_text(TOML)
    assert planner.main([str(tmp_path / "grow.toml"), "--out", str(tmp_path / out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--out ")
    assert said in line


def test_the_plot_says_whom_it_shows() -> None:
    assert Timeline(np.arange(4), 200).shown() == "member"
    assert Timeline(np.arange(10_000), 200).shown() == "every 50th of 10,000 members"


@pytest.mark.parametrize(
    ("number", "said"), [(2, "2nd"), (3, "3rd"), (11, "11th"), (21, "21st"), (112, "112th")]
)
def test_ordinals(number: int, said: str) -> None:
    assert ordinal(number) == said


def test_without_matplotlib_there_is_all_but_the_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "grow.toml").write_text(TOML)
    assert planner.main([str(tmp_path / "grow.toml"), "--out", str(tmp_path)]) == 0
    assert "pip install matplotlib" in capsys.readouterr().err
    assert (tmp_path / "grow.json").exists()


NESTED = 3000 * "[" + 3000 * "]"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.toml", "members = ", "is no TOML"),
        ("x.ini", "", "'.ini': use .toml, .yaml or .yml"),
        ("x.toml", "members = 0", "x.toml: members = 0: "),
        pytest.param("x.toml", f"a = {NESTED}", "x.toml: is nested too deeply", id="deep TOML"),
        pytest.param("x.yaml", f"a: {NESTED}", "x.yaml: is nested too deeply", id="deep YAML"),
        pytest.param("x.toml", f"a = {5000 * '9'}", "x.toml: is no TOML", id="large number"),
        ("x.yaml", "name: 2026-02-31", "x.yaml: is no YAML"),
        ("x.yaml", "drains: !!bool maybe", "x.yaml: is no YAML: a value is not what its tag"),
        ("x.yaml", "seed: !!int ''", "x.yaml: is no YAML: a value is not what its tag"),
        ("x.yaml", "name: !!timestamp soon", "x.yaml: is no YAML: a value is not what its tag"),
        ("x.yaml", "", "x.yaml: must be a table of fields, and is empty"),
    ],
)
def test_the_command_refuses_what_it_can_not_read(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert planner.main([str(tmp_path / name), "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_members_that_hardly_make_it_come_to_rest() -> None:
    steps = [{"do": "rolling-deploy", "at": 10, "batch": 0.05}]
    late = {"poll": 3, "rebalance_timeout": 4, "leader": 0.5, "session_timeout": 45}
    table = {**SMALL, **late, "topics": [{"partitions": 2000}], "members": 500, "steps": steps}
    assert planned(table, "eager").interrupted > 20


def test_the_command_says_which_file_never_rests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "busy.toml"
    file.write_text("rebalance_timeout = 0.2\n" + TOML)
    assert planner.main([str(file), "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file}: eager: no rest at ")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.toml: can't be read"):
        load(Path("nowhere.toml"))


def test_yaml_says_the_same(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(dict(SMALL)))
    assert load(tmp_path / "x.yaml") == Plan.model_validate(SMALL)


SCENARIOS = sorted((Path(__file__).parents[2] / "examples" / "scenarios").iterdir())


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: str(file.name))
def test_an_example_can_be_loaded(file: Path) -> None:
    plan = load(file)
    assert plan.members > 0
    assert plan.steps


def test_there_are_examples_of_each_step() -> None:
    assert {step.do for file in SCENARIOS for step in load(file).steps} == {
        "rolling-deploy",
        "scale-out",
        "zone-loss",
    }
