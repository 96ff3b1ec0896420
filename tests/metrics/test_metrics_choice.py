"""What is said of a group that does not run as its member is configured, and when."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.assignors import resolve
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.metrics.choice import StrategyChoice

BOTH = "cooperative-sticky,range"
EAGER_FIRST = "range,cooperative-sticky"
THREE = "constrained-cooperative-sticky,cooperative-sticky,range"


def member(strategies: str) -> StrategyChoice:
    return StrategyChoice([resolve(name) for name in strategies.split(",")])


def a_round(chosen: str, *, cooperative: bool = False) -> RebalanceRecord:
    return RebalanceRecord(
        group_id="orders", client_id="me", protocol_name=chosen, cooperative=cooperative
    )


@pytest.mark.parametrize(
    ("strategies", "chosen", "said"),
    [
        (BOTH, "range", "runs on 'range', not on 'cooperative-sticky'"),
        (BOTH, "cooperative-sticky", "for it also lists range: once all members list"),
        (EAGER_FIRST, "cooperative-sticky", "for it also lists range: once all members list"),
        (THREE, "cooperative-sticky", "not on 'constrained-cooperative-sticky', which"),
        (THREE, "cooperative-sticky", "list 'cooperative-sticky', restart them without range"),
        (EAGER_FIRST, "range", "for this member lists it before cooperative-sticky: list"),
        (
            "range,roundrobin,constrained-cooperative-sticky,cooperative-sticky",
            "range",
            "cooperative-sticky, cooperative-sticky: list 'constrained-cooperative-sticky' first",
        ),
    ],
)
def test_what_costs_the_group_dearly_is_said_once_for_each_change(
    strategies: str, chosen: str, said: str
) -> None:
    choice = member(strategies)
    told = choice.news(a_round(chosen))
    assert told is not None
    assert said in told
    assert choice.news(a_round(chosen)) is None


def test_an_eager_strategy_that_stands_first_is_named_with_its_remedy() -> None:
    """No other member is to blame, and none will change it: the group stays there for ever."""
    assert member(EAGER_FIRST).news(a_round("range")) == (
        "group 'orders' runs on 'range', which stops all partitions in each rebalance, for this"
        " member lists it before cooperative-sticky: list 'cooperative-sticky' first, and once"
        " all members list it, restart them with it alone"
    )


def test_a_cooperative_strategy_over_an_eager_one_is_nothing_to_be_put_right() -> None:
    """Step 2 is what is left to do (docs/UPGRADING.md), and no restart for range."""
    told = member(EAGER_FIRST).news(a_round("cooperative-sticky"))
    assert told == (
        "group 'orders' runs on 'cooperative-sticky', yet this member gives everything up in each"
        " rebalance, for it also lists range: once all members list 'cooperative-sticky', restart"
        " them without range"
    )


@pytest.mark.parametrize(
    ("strategies", "cooperative"),
    [
        ("range", False),
        ("range,roundrobin", False),
        ("sticky", False),
        ("cooperative-sticky", True),
        ("constrained-cooperative-sticky,cooperative-sticky", True),
    ],
)
def test_nothing_is_said_of_a_group_that_runs_as_it_is_asked_to(
    strategies: str, cooperative: bool
) -> None:
    chosen = strategies.partition(",")[0]
    assert member(strategies).news(a_round(chosen, cooperative=cooperative)) is None


def test_the_runbooks_first_step_is_told_of_where_it_stands_and_no_more() -> None:
    """docs/UPGRADING.md: both are listed, the cooperative one first."""
    choice = member(BOTH)
    told = [
        choice.news(a_round(chosen))
        for chosen in ("range", "range", "cooperative-sticky", "cooperative-sticky")
    ]
    assert [text is not None for text in told] == [True, False, True, False]
    assert not any("lists it before" in text for text in told if text)


def test_who_has_the_broker_assign_is_not_said_to_prefer_a_strategy_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No member of such a group lists one, and no restart would have it run on one."""
    config = {
        "bootstrap.servers": "127.0.0.1:9",
        "group.id": "orders",
        "group.protocol": "consumer",
        "group.remote.assignor": "uniform",
        "log_level": 0,
    }
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        consumer._backend._observer.rebalance(a_round("uniform", cooperative=True))  # type: ignore[attr-defined]
    assert not [r for r in caplog.records if r.levelname == "WARNING"]
