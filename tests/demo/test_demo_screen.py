"""What is shown, at any width, without a terminal."""

from __future__ import annotations

import io

import numpy as np
import pytest
from demo_support import rebalanced
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, generate_latest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from kafka_coop.demo import results
from kafka_coop.demo.check import Killed, position
from kafka_coop.demo.delays import Delays, Total
from kafka_coop.demo.flights import Flight, parse
from kafka_coop.demo.group import Group, State
from kafka_coop.demo.journal import ENTRY, encode_entry
from kafka_coop.demo.reports import Called, Committed, Progress
from kafka_coop.demo.results import Outcome, delays_table, metrics_table, outcome, verdict_lines
from kafka_coop.demo.screen import Screen, Standing, event, panel, status_line
from kafka_coop.metrics.member import MemberMetrics
from kafka_coop.metrics.scrape import MemberSnapshot

WIDTHS = [40, 79, 80, 120]
STANDING = Standing(elapsed=12.3, published=150_000, total=336_776)
NAMES = {"TUL": "Tulsa International, a long name for an airport"}


def rendered(shown: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(cell_len(line) for line in text.splitlines()) <= width
    return text


@pytest.fixture
def group() -> Group:
    group = Group(12)
    for number in range(1, 5):
        name = f"member-{number}"
        group.started(name, number)
        group.heard(name, rebalanced(role="leader" if number == 1 else "follower"), 1)
        owned = list(range(number - 1, 12, 4))
        group.heard(name, Called(callback="on_assign", partitions=owned), 2)
        group.heard(name, Progress(processed=10_000, arrivals={"TUL": Total(99, 3_000)}), 2)
        group.heard(name, Progress(processed=123_456, arrivals={"TUL": Total(99, 3_000)}), 3)
    group.heard("member-1", Committed(offsets={0: 140_000}), 3)
    group.ended("member-4", State.KILLED)
    return group


@pytest.fixture(scope="module")
def exposition() -> str:
    registry = CollectorRegistry()
    metrics = MemberMetrics(
        group_id="g",
        client_id="c",
        registry=registry,
        snapshot=MemberSnapshot,
        clock=lambda: 0.0,
    )
    text = generate_latest(registry).decode()
    metrics.close()
    return text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_panel_says_it_all_at_any_width(group: Group, width: int) -> None:
    text = rendered(panel(group, STANDING, width), width)
    for needed in ("44%", "41%", "member-1 leader   █···█···█···", "113,456/s", "TUL 30"):
        assert needed in text
    assert "member-4 killed   ············" in text
    assert ("generation 3" in text) is (width > 40)


def test_the_panel_in_ascii(group: Group) -> None:
    assert rendered(panel(group, STANDING, 40, ascii_only=True), 40).isascii()


def test_the_panel_before_anything_has_happened() -> None:
    text = rendered(panel(Group(12), Standing(elapsed=0, published=0, total=10), 40), 40)
    assert "0%" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_an_event_keeps_all_its_words(width: int) -> None:
    words = "rebalance [bold]not markup[/bold] " + "word " * 30
    text = rendered(event(99.9, 2, "member-2", words), width)
    assert text.count("word") == 30
    assert "99.9" in text
    assert "[bold]" in text


def test_one_line_without_a_terminal(group: Group) -> None:
    line = status_line(group, STANDING)
    assert "1 2 3 - 1 2 3 - 1 2 3 -" in line
    assert "published  44%, committed  41%" in line


def test_without_a_terminal_there_are_lines_and_no_escapes(group: Group) -> None:
    file = io.StringIO()
    long = "on_assign [+1] " + "x" * 100
    with Screen(Console(file=file, width=40)) as screen:
        screen.say("A scene.")
        screen.tell(1.0, 1, "member-1", long)
        screen.show(group, STANDING)
        screen.show(group, STANDING)
    text = file.getvalue()
    assert "\x1b" not in text
    assert f"  1.0 s  member-1  {long}\n" in text
    assert text.count("owners of") == 1


def test_on_a_terminal_the_panel_is_live_and_cleared_at_the_end(group: Group) -> None:
    file = io.StringIO()
    console = Console(
        file=file, width=80, height=30, force_terminal=True, _environ={"TERM": "xterm"}
    )
    with Screen(console) as screen:
        screen.show(group, STANDING)
        screen.tell(1.0, 1, "member-1", "on_assign  +1")
    text = file.getvalue()
    assert "member-1" in text
    assert "\x1b[?25h" in text  # the cursor is back


def test_no_color_has_no_colors(group: Group) -> None:
    file = io.StringIO()
    console = Console(
        file=file,
        width=80,
        force_terminal=True,
        _environ={"TERM": "xterm-256color", "NO_COLOR": "1"},
    )
    console.print(panel(group, STANDING, 80))
    assert "\x1b[3" not in file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_fit(width: int, exposition: str) -> None:
    delays = Delays(departures={"JFK": Total(5, 60)}, arrivals={"TUL": Total(200, 6_000)})
    text = rendered(delays_table(delays, NAMES), width)
    assert "+12.0" in text
    assert "+30.0" in text
    members = {"member-1": exposition, "member-2": None, "member-3": exposition}
    text = rendered(metrics_table(members, width), width)
    assert "none" in text  # it was never polled
    unfolded = "".join(text.split())
    for metric, kind in results._METRICS:
        assert metric + (f'{{kind="{kind}"}}' if kind else "") in unfolded


def journal(partition: int, offsets: range, flights: list[Flight]) -> NDArray[np.void]:
    data = b"".join(encode_entry(partition, offset, flights[offset]) for offset in offsets)
    return np.frombuffer(data, ENTRY)


def judged(rows: list[bytes], *, first: range, second: range) -> Outcome:
    """Two members of one partition; the first is killed."""
    flights = [parse(row) for row in rows]
    published = np.array([position(0, offset) for offset in range(len(rows))], np.int64)
    journals = {"member-1": journal(0, first, flights), "member-2": journal(0, second, flights)}
    return outcome(rows, published, journals, Killed(name="member-1", committed={0: 45}))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_that_repeats_passes(rows: list[bytes], width: int) -> None:
    result = judged(rows[:100], first=range(60), second=range(40, 100))
    assert result.passed
    text = " ".join(
        rendered(line, width).replace("\n", " ") for line in verdict_lines(result, 31.4)
    )
    words = " ".join(text.split())
    assert "100 flights published, 100 processed at least once, 0 lost, 20 repeated" in words
    assert "15 that member-1 had processed since its last commit" in words
    assert "5 that a member had not committed" in words
    assert "PASSED after 31.4 s" in words


def test_a_run_that_loses_a_flight_fails(rows: list[bytes]) -> None:
    result = judged(rows[:100], first=range(60), second=range(61, 100))
    assert not result.passed
    text = "\n".join(line.plain for line in verdict_lines(result, 1))
    assert "1 lost" in text
    assert "FAILED" in text


def test_a_run_that_computes_wrongly_fails(rows: list[bytes]) -> None:
    result = judged(rows[:100], first=range(60), second=range(40, 100))
    wrong = Outcome(
        verdict=result.verdict, computed=Delays(), expected=result.expected, killed=None
    )
    assert not wrong.passed
    assert "DIFFER" in "\n".join(line.plain for line in verdict_lines(wrong, 1))
