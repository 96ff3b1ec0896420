"""The end of the play: what the journals say, against what was published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kafka_coop.demo import delays
from kafka_coop.demo.check import Killed, Positions, Verdict, first_of_each, judge, positions
from kafka_coop.demo.delays import Delays, Total
from kafka_coop.demo.flights import parse_batch
from kafka_coop.demo.journal import ENTRY

_SHOWN_ARRIVALS: Final = 6
_FEWEST_FLIGHTS: Final = 100
_WIDE: Final = 80

_METRICS: Final[tuple[tuple[str, str], ...]] = (
    ("kafka_coop_rebalance_latency_seconds_count", ""),
    ("kafka_coop_rebalance_latency_seconds_sum", ""),
    ("kafka_coop_moved_partitions_total", "assigned"),
    ("kafka_coop_moved_partitions_total", "revoked"),
    ("kafka_coop_moved_partitions_total", "lost"),
    ("kafka_coop_assigned_partitions", ""),
    ("kafka_coop_heartbeat_latency_seconds_count", ""),
    ("kafka_coop_heartbeat_latency_seconds_sum", ""),
    ("kafka_coop_heartbeat_failures_total", ""),
    ("kafka_coop_commit_latency_seconds_count", ""),
    ("kafka_coop_commit_latency_seconds_sum", ""),
    ("kafka_coop_poll_interval_max_seconds", ""),
)
"""The metrics shown, each with the value of its label ``kind``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the check is about.

    Attributes:
        computed: The members' delays, each record counted once.
        expected: The same from the file, in one go.
    """

    verdict: Verdict
    computed: Delays
    expected: Delays
    killed: Killed | None

    @property
    def passed(self) -> bool:
        """Whether nothing was lost, and the delays are right."""
        return self.verdict.at_least_once and self.computed == self.expected


def outcome(
    rows: Sequence[bytes],
    published: Positions,
    journals: Mapping[str, NDArray[np.void]],
    killed: Killed | None,
) -> Outcome:
    """Judges the journals by what was published."""
    at = {name: positions(j["partition"], j["offset"]) for name, j in journals.items()}
    everything = np.concatenate([np.empty(0, ENTRY), *journals.values()])
    once = everything[first_of_each(np.concatenate([np.empty(0, np.int64), *at.values()]))]
    return Outcome(
        verdict=judge(published, at, killed=killed),
        computed=delays.of_entries(once),
        expected=Delays.of(parse_batch(rows)),
        killed=killed,
    )


def delays_table(computed: Delays, names: Mapping[str, str]) -> RenderableType:
    """The airports where flights were latest."""
    table = Table(box=box.SIMPLE_HEAD, title="Mean delays, in minutes", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("airport", overflow="fold")
    table.add_column("flights", justify="right", no_wrap=True)
    table.add_column("delay", justify="right", no_wrap=True)
    left = delays.worst(computed.departures, len(computed.departures), at_least=1)
    came = delays.worst(computed.arrivals, _SHOWN_ARRIVALS, at_least=_FEWEST_FLIGHTS)
    for what, rows in (("from", left), ("to", came)):
        for airport, total in rows:
            table.add_row(what, *_airport(airport, total, names))
    return table


def _airport(code: str, total: Total, names: Mapping[str, str]) -> Iterator[str]:
    yield f"{code} {names.get(code, '')}".rstrip()
    yield f"{total.flights:,}"
    yield f"{total.mean:+.1f}"


def metrics_table(expositions: Mapping[str, str | None], width: int) -> RenderableType:
    """Some of the members' metrics; a member without any was killed.

    Narrow terminals see each metric on a line, and its values on the next.
    """
    values = [None if e is None else _samples(e) for e in expositions.values()]
    title = f"Metrics of members 1 to {len(values)} before they left (-: it was killed)"
    table = Table(box=None, title=title, title_justify="left", pad_edge=False)
    table.add_column("", overflow="fold")
    if width >= _WIDE:
        for name in expositions:
            table.add_column(name.removeprefix("member-"), justify="right", no_wrap=True)
    for metric, kind in _METRICS:
        label = f'{metric}{{kind="{kind}"}}' if kind else metric
        cells = ["-" if v is None else _number(v.get((metric, kind))) for v in values]
        if width >= _WIDE:
            table.add_row(label, *cells)
        else:
            table.add_row(f"{label}\n  {'  '.join(cells)}")
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "none"  # of what never happened there is no series
    return f"{value:.0f}" if value.is_integer() else f"{value:.3g}"


def _samples(exposition: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("kind", "")): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


def verdict_lines(result: Outcome, elapsed: float) -> Iterator[Text]:
    """The last words: what was published, processed, lost and repeated, and for which reason."""
    verdict = result.verdict
    yield Text(
        f"Check by offsets: {verdict.published:,} flights published,"
        f" {verdict.processed:,} processed at least once, {verdict.lost.size:,} lost,"
        f" {verdict.repeated:,} repeated."
    )
    yield Text(f"  Repeats: {_reasons(result)}.")
    if verdict.unpublished:
        yield Text(f"  {verdict.unpublished:,} processed that nobody published.")
    airports = len({*result.expected.departures, *result.expected.arrivals})
    same = "equal" if result.computed == result.expected else "DIFFER FROM"
    yield Text(
        f"  The members' delays for {airports} airports, repeats dropped by offset, {same}"
        " those computed from the file in one go."
    )
    word, style = ("PASSED", "bold green") if result.passed else ("FAILED", "bold red")
    yield Text(f"{word} after {elapsed:.1f} s.", style=style)


def _reasons(result: Outcome) -> str:
    verdict = result.verdict
    others = verdict.repeated - verdict.repeated_after_kill
    reasons = []
    if result.killed is not None:
        reasons.append(
            f"{verdict.repeated_after_kill:,} that {result.killed.name} had processed since its"
            " last commit when it was killed"
        )
    if others or not reasons:
        reasons.append(f"{others:,} that a member had not committed when their partition moved on")
    return ", ".join(reasons)
