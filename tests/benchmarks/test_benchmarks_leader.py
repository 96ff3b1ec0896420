"""The yardstick itself: every contestant does the whole work, and the goals are the stated ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.leader.groups import ROWS, Row, Shape
from benchmarks.leader.growth import Point
from benchmarks.leader.growth import table as growth_table
from benchmarks.leader.measure import (
    ASSIGNOR,
    CONTESTANTS,
    FRANZ,
    JAVA,
    OURS,
    Patience,
    Result,
    measure,
)
from benchmarks.leader.report import Line, plot, table
from benchmarks.peers import franz
from benchmarks.peers.franz import FranzPeer
from benchmarks.peers.ours import OurPeer
from benchmarks.peers.wire import Peer, PeerError, PeerTimeoutError, PeerUnavailableError
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.types import Partitions

ONCE = Patience(rounds=1, seconds=0.0, limit=60.0)


@pytest.mark.parametrize("name", CONTESTANTS)
@pytest.mark.parametrize("shape", Shape)
def test_a_contestant_leads_the_whole_group(name: str, shape: Shape) -> None:
    """Everything is assigned once, less what one of the old members has to give up first."""
    row = Row(topics=4, partitions=10, members=5, shape=shape)
    with OurPeer() as ours:
        plan = ours.lead(ASSIGNOR, row.cluster, row.fresh())
    group = row.one_more(plan)
    assert len(group) == len(plan) + 1 == 6
    try:
        peer = CONTESTANTS[name]()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    with peer:
        peer.load(ASSIGNOR, row.cluster, group, own_user_data=True)
        took = peer.run()
        assert took.wall > 0
        assert took.cpu >= 0
        got = {m: decode_assignment(data).partitions for m, data in peer.answers().items()}
    assert got.keys() == group.keys()
    everything = Partitions({t: range(n) for t, n in row.cluster.partitions.items()})
    given = [p for partitions in got.values() for p in partitions]
    assert len(set(given)) == len(given)
    withheld = len(everything) - len(given)
    assert 0 < withheld <= len(everything) // 2
    kept = [got[m] & decode_subscription(group[m]).owned for m in plan]
    assert sum(map(len, kept)) == len(given), "what is new to a member is withheld"


def line(row: Row, ours: float, theirs: float | None, java: float | None, memory: int = 0) -> Line:
    def result(seconds: float | None) -> Result:
        return Result(seconds=[] if seconds is None else [9.0, seconds, 9.0], memory=memory)

    found = {OURS: ours, FRANZ: theirs, JAVA: java}
    return Line(row=row, state="+1", results={n: result(s) for n, s in found.items()})


SMALL = Row(topics=1, partitions=100, members=10)
MILLION = Row(topics=500, partitions=2000, members=2000)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (line(SMALL, 0.009, 0.001, None), "met"),
        (line(SMALL, 0.015, 0.001, None), "missed 1.5x"),
        (line(SMALL, 0.015, 0.016, 0.001), "met"),
        (line(SMALL, 0.015, None, None), ""),
        (line(MILLION, 0.3, 0.9, 3.0), "met"),
        (line(MILLION, 0.6, 0.9, 30.0), "missed 2.0x"),
        (line(MILLION, 0.6, 9.0, 3.0), "missed 2.0x"),
        (line(MILLION, 0.3, 0.9, None), "met"),
        (line(MILLION, 0.1, 0.9, 3.0, memory=5 << 30), "missed: memory"),
    ],
)
def test_goals(measured: Line, verdict: str) -> None:
    assert measured.verdict == verdict
    *_, written = table([measured])
    assert verdict in written


def test_plots_are_written(tmp_path: Path) -> None:
    plot([line(SMALL, 0.1, 0.2, None), line(MILLION, 0.1, 0.2, 0.3)], tmp_path / "leader.svg")
    assert (tmp_path / "leader.svg").read_text().count("kafka_coop") >= 1


def test_growth_is_measured_against_n_log_n() -> None:
    counts = [(2, 2.0), (4, 8.0), (16, 128.0)]
    points = [Point(growing="members", state="fresh", count=n, seconds=s) for n, s in counts]
    *_, last = growth_table(points)
    assert last.endswith("| 2.00 |"), "16 log 16 is eight times 4 log 4; the time grew sixteenfold"


def test_the_rows_are_those_of_the_table_of_peers() -> None:
    assert [r.size for r in ROWS].count(1_000_000) == 3
    assert (ROWS[-1].size, ROWS[-1].members) == (10_000_000, 10_000)


def test_a_run_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "import sys; sys.stdin.buffer.read(1 << 30)"
    with Peer([sys.executable, "-c", slow]) as peer, pytest.raises(PeerTimeoutError):
        peer.run(limit=0.2)

    def broken() -> Peer:
        return Peer([sys.executable, "-c", "raise SystemExit('out of order')"])

    monkeypatch.setitem(CONTESTANTS, OURS, broken)
    assert measure([OURS], SMALL.cluster, SMALL.fresh(), ONCE)[OURS].trouble == "failed"


def test_a_peer_that_ends_says_why() -> None:
    with (
        Peer([sys.executable, "-c", "raise SystemExit('out of order')"]) as peer,
        pytest.raises(PeerError, match="status 1: out of order"),
    ):
        peer.run()


def test_without_go_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_COOP_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setattr(franz, "_FALLBACK", os.fspath(tmp_path / "go"))
    with pytest.raises(PeerUnavailableError, match="install"):
        FranzPeer()
