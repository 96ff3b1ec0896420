"""What all panels share: the data source, the filters, sizes and queries."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.statetimeline import Panel as StateTimeline
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

GROUP = 'group=~"$group"'
MEMBER = f'{GROUP}, client_id=~"$client_id"'

_HALF = 12
_QUARTER = 6


def board(name: str, title: str, description: str, *, by_member: bool) -> Dashboard:
    """An empty dashboard with its variables: data source, group and, if wanted, member."""
    made = (
        Dashboard(title)
        .uid(f"kafka-coop-{name}")
        .description(description)
        .tags(["kafka", "kafka_coop"])
        .refresh("10s")
        .time("now-30m", "now")
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_labels("group", "Group", "kafka_coop_generation"))
    )
    if by_member:
        made = made.with_variable(
            _labels("client_id", "Member", f"kafka_coop_generation{{{GROUP}}}")
        )
    return made


def number(title: str, expr: str, description: str, *, unit: str = "short") -> Stat:
    """One figure of now, large."""
    panel = Stat().title(title).description(description).unit(unit).datasource(SOURCE)
    return panel.height(4).span(_QUARTER).with_target(_query(expr, "{{group}}", "A"))


def lines(
    title: str,
    description: str,
    *queries: tuple[str, str],
    unit: str = "short",
    stacked: bool = False,
) -> TimeSeries:
    """Lines over time; each query is an expression and its legend."""
    panel = (
        TimeSeries()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(SOURCE)
        .height(8)
        .span(_HALF)
        .min(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
    )
    if stacked:
        panel = panel.fill_opacity(60).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for letter, (expr, legend) in zip("ABCDEF", queries, strict=False):
        panel = panel.with_target(_query(expr, legend, letter))
    return panel


def states(title: str, expr: str, legend: str, description: str) -> StateTimeline:
    """A bar a series, coloured by its value."""
    panel = StateTimeline().title(title).description(description).datasource(SOURCE)
    return panel.height(8).span(_HALF).with_target(_query(expr, legend, "A"))


def _query(expr: str, legend: str, letter: str) -> Dataquery:
    return Dataquery().expr(expr).legend_format(legend).ref_id(letter).datasource(SOURCE)


def _labels(label: str, title: str, metric: str) -> QueryVariable:
    return (
        QueryVariable(label)
        .label(title)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(include_all=True)
        .all_value(".*")
        .multi(multi=True)
    )
