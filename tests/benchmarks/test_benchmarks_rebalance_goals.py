"""What a rebalance may cost, and the exit status where it costs more."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rebalance_cost import Convergence, Cost
from benchmarks.rebalance_goals import verdict, verdicts

REST = Convergence(0.1, 1)


def row(client: str, event: str, **cost: Any) -> dict[tuple[str, str, str], list[Cost]]:
    cost = {"moved": 3, "convergence": REST, **cost}
    return {(client, "spread", event): [Cost(**cost)]}


@pytest.mark.parametrize(
    ("client", "event", "gap", "met"),
    [
        ("kafka_coop", "join", 50, True),
        ("kafka_coop", "join", 51, False),
        ("kafka_coop+drain", "leave", 51, False),
        ("kafka_coop", "kill", 6100, True),
        ("kafka_coop", "kill", 6101, False),
        ("kafka_coop+drain+watchdog", "kill", 300, True),
        ("kafka_coop+watchdog", "kill", 301, False),
        ("close", "restart", 50, True),
        ("close", "restart", 51, False),
        ("drain", "restart", 51, False),
        ("java", "restart", 3000, True),
        ("java", "join", 3000, True),
    ],
)
def test_how_long_a_gap_may_be(client: str, event: str, gap: float, *, met: bool) -> None:
    assert verdict(row(client, event, gaps=[gap - 1, gap, gap + 1000.0])) == (0 if met else 1)


def test_what_stays_may_be_silent_for_so_long_however_rarely() -> None:
    assert verdict(row("drain", "restart", silences=[20.0] * 100 + [61.0])) == 1
    assert verdict(row("drain", "restart", silences=[20.0] * 100 + [60.0])) == 0
    assert verdict(row("kafka_coop", "nothing", silences=[200.0])) == 0, "the machine's own"


def test_a_static_member_may_take_its_time_and_nobody_else_hears_of_it() -> None:
    def restart(rounds: int) -> dict[tuple[str, str, str], list[Cost]]:
        return row("static", "restart", gaps=[900.0], convergence=Convergence(0.9, rounds))

    assert verdict(restart(rounds=0)) == 0
    assert verdict(restart(rounds=1)) == 1
    assert verdict(row("static", "restart", gaps=[900.0], convergence=None)) == 1


def test_an_event_that_did_not_happen_is_not_well() -> None:
    assert verdict(row("kafka_coop", "join", convergence=None)) == 1
    assert verdict(row("kafka_coop", "nothing", convergence=None)) == 0


@pytest.mark.parametrize("client", ["kafka_coop", "mixed"])
def test_nothing_may_be_missing_and_a_group_must_come_to_rest(client: str) -> None:
    assert verdict(row(client, "join", gaps=[20.0], missing=1)) == 1
    assert verdict(row(client, "join", gaps=[20.0], convergence=Convergence(None, 2))) == 1


def test_a_mixed_group_is_no_worse_than_the_worse_of_its_peers() -> None:
    peers = {
        **row("cooperative-sticky", "kill", gaps=[4000.0], silences=[1000.0]),
        **row("java", "kill", gaps=[5000.0], silences=[30.0]),
    }
    good = row("mixed", "kill", gaps=[4900.0], silences=[1020.0])
    assert verdict({**peers, **good}) == 0
    assert verdict({**peers, **row("mixed", "kill", gaps=[5023.0])}) == 0, "a record's spacing"
    assert verdict({**peers, **row("mixed", "kill", gaps=[5025.0])}) == 1
    assert verdict({**peers, **row("mixed", "kill", gaps=[100.0, 100.0, 15_000.0])}) == 1, "mean"
    assert verdict({**peers, **row("mixed", "kill", gaps=[100.0, 6000.0, 6000.0])}) == 0
    assert verdict({**peers, **row("mixed", "kill", gaps=[9.0], silences=[1025.0])}) == 1
    assert verdict(good) == 0, "there is nothing to compare it with"


@pytest.mark.parametrize("name", ["mixed-java-leads", "mixed-librdkafka-joins+drain"])
def test_the_goal_is_the_same_whoever_leads_or_joins_a_mixed_group(name: str) -> None:
    theirs = row("theirs", "join", gaps=[3000.0])
    assert verdict({**theirs, **row(name, "join", gaps=[3020.0])}) == 0
    assert verdict({**theirs, **row(name, "join", gaps=[3030.0])}) == 1


def test_where_its_peers_were_in_one_group_it_is_that_which_counts() -> None:
    """Members of two clients beat at two times, and a round waits for both."""
    costs = {
        **row("cooperative-sticky", "leave", gaps=[1800.0]),
        **row("java", "leave", gaps=[1900.0]),
        **row("theirs", "leave", gaps=[2300.0], silences=[20.0]),
    }
    assert verdict({**costs, **row("mixed", "leave", gaps=[2320.0], silences=[59.0])}) == 0
    assert verdict({**costs, **row("mixed", "leave", gaps=[2330.0])}) == 1
    assert verdict({**costs, **row("mixed", "leave", gaps=[9.0], silences=[61.0])}) == 1


def test_the_table_leaves_out_what_went_without_saying(capsys: pytest.CaptureFixture[str]) -> None:
    verdict({**row("kafka_coop", "join", gaps=[60.0], silences=[44.0], missing=2)})
    assert capsys.readouterr().out.splitlines()[3:] == [
        "| kafka_coop | spread | join | records missing | 2 | 0 | missed |",
        "| kafka_coop | spread | join | gap, median | 60 | 50 | missed |",
        "| kafka_coop | spread | join | silence, longest | 44 | 60 | met |",
    ]


def test_runs_of_a_row_are_judged_together() -> None:
    runs = [Cost(moved=1, gaps=[gap], convergence=REST) for gap in (10.0, 20.0, 90.0)]
    (gap,) = (v for v in verdicts({("kafka_coop", "spread", "join"): runs}) if v.figure == 20.0)
    assert gap.met
