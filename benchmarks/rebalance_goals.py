"""What a rebalance may cost, and whether it did: the goals of `benchmarks.rebalance` and its like.

Of a group of ours: a partition that moves in a join or a leave has an owner again, and a record,
within 50 ms; after a kill within 300 ms where there are watchdogs, else within the session timeout
and 0.1 s. What stays is never silent for more than 60 ms.

A restart of one of ours is a leave and a join: others own what moves while its process ends and
its successor starts, so that the same 50 ms hold, for the gaps of both together. No gap of a
static member's restart is a goal: its partitions wait for the process and for nothing else, which
is each service's own time. What holds there is that nobody hears of it: there is no round.

Of a group that is mixed, whoever leads or joins it: it is no worse than its peers without ours,
Java's and librdkafka's members in one group, in the same phase of heartbeats and the same run;
where those were not measured, than the worse of the two, each in a group of its own. Of both: no
record is missing, and the group comes to rest in time.

Our own gaps are judged by their median, for half of each is where an event falls between two
records; silences by the longest. A mixed group's, and those that it is compared with, by their
mean: what all of them wait for is a heartbeat, up to 3 s away, or one more, by where between two of
them the event falls. The runs spread the events evenly over that, so that a mean of all is the
cost to be expected, where a median is that of one or two runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rebalance_cost import Cost

Costs = Mapping[tuple[str, str, str], Sequence[Cost]]
"""Of each client, phase and event."""

STATIC = "static"
OURS = ("kafka_coop", "close", "drain", STATIC)
MIXED = "mixed"
THEIRS = "theirs"
PEERS = ("cooperative-sticky", "java")
SESSION_MS = 6000.0
WATCHED = "+watchdog"

_GAP_MS = {"join": 50.0, "leave": 50.0, "restart": 50.0}
_WATCHED_KILL_MS = 300.0
_KILL_MS = SESSION_MS + 100.0
_SILENCE_MS = 60.0
_SPACING_MS = 24.0
"""Between two records of a partition: a gap, and a silence, ends with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One figure of one row beside what it may be, both in ms where they are times."""

    row: tuple[str, str, str]
    what: str
    figure: float
    most: float

    @property
    def met(self) -> bool:
        return self.figure <= self.most


def verdicts(costs: Costs) -> Iterator[Verdict]:
    """Of every row that has a goal."""
    for (client, phase, event), runs in costs.items():
        name = client.split("+")[0]
        mixed = name.split("-")[0] == MIXED  # whoever leads, or joins
        if not mixed and name not in OURS:
            continue
        row = client, phase, event
        missing = sum(run.missing for run in runs)
        yield Verdict(row=row, what="records missing", figure=missing, most=0)
        unsettled = sum(_is_unsettled(run, event) for run in runs)
        yield Verdict(row=row, what="runs not at rest in time", figure=unsettled, most=0)
        limits = _of_peers(costs, phase, event) if mixed else _of_ours(client, event)
        for what, most in limits.items():
            if (figure := _figure(what, runs)) is not None:
                yield Verdict(row=row, what=what, figure=figure, most=most)


def verdict(costs: Costs) -> int:
    """Prints a table of what was judged by; returns the exit status: 1 where a goal was missed."""
    found = list(verdicts(costs))
    print("\n| client | heartbeats | event | judged by | is | at most | |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        if one.most or not one.met:
            cells = [*one.row, one.what, f"{one.figure:,.0f}", f"{one.most:,.0f}"]
            print(f"| {' | '.join(cells)} | {'met' if one.met else 'missed'} |")
    return 0 if all(one.met for one in found) else 1


def _is_unsettled(run: Cost, event: str) -> bool:
    """Also where something happened and no owner changed: whoever was to come is not there."""
    if run.convergence is None:
        return event != "nothing"
    return run.convergence.seconds is None


def _of_ours(client: str, event: str) -> Mapping[str, float]:
    if event == "nothing":
        return {}  # the machine's own silence
    if client == STATIC:
        return {_ROUNDS: 0, _SILENCE: _SILENCE_MS}
    limits = {_GAP: _GAP_MS[event]} if event in _GAP_MS else {}
    if event == "kill":
        limits[_GAP] = _WATCHED_KILL_MS if WATCHED in client else _KILL_MS
    return {**limits, _SILENCE: _SILENCE_MS}


def _of_peers(costs: Costs, phase: str, event: str) -> Mapping[str, float]:
    """None where they were not measured. All times are as exact as the records are close."""
    together = (THEIRS, phase, event) in costs
    peers = (THEIRS,) if together else PEERS
    theirs = [costs.get((peer, phase, event), ()) for peer in peers]
    if event == "nothing" or not all(theirs):
        return {}
    limits = {}
    for what in (_MEAN, _SILENCE):
        figures = [figure for runs in theirs if (figure := _figure(what, runs)) is not None]
        if figures:
            limits[what] = max(figures) + _SPACING_MS
    if _SILENCE in limits:
        limits[_SILENCE] = max(limits[_SILENCE], _SILENCE_MS)
    return limits


_GAP = "gap, median"
_MEAN = "gap, mean"
_SILENCE = "silence, longest"
_ROUNDS = "rounds, most"
_GAPS = {_GAP: statistics.median, _MEAN: statistics.mean}


def _figure(what: str, runs: Sequence[Cost]) -> float | None:
    """None where nothing moved, or nothing stayed."""
    if what == _ROUNDS:
        return max((run.convergence.rounds for run in runs if run.convergence), default=None)
    if what in _GAPS:
        gaps = [gap for run in runs for gap in run.gaps]
        return _GAPS[what](gaps) if gaps else None
    return max((silence for run in runs for silence in run.silences), default=None)
