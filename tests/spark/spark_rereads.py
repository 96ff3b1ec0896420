"""Which records a group of queries may have read twice: a checker of its history. Pure.

Before a query reads a partition it commits its claim, so the brokers' log of the group's commits
tells who had it from when on, and how far it came. A *tenure* is what one query committed for a
partition without another's commit in between. All that is read belongs to a tenure, and each begins
where the one before ended. So a record is read again only where a tenure ended before what it had
read, and that must have a cause of its own: the run that held the partition had died by then
(killed, or stopped without `drain`), it had lost its session, the group refused what it committed
as it handed over, or a broker was away meanwhile. One death or loss excuses the end of one tenure
of a partition, so each record is read again once for it. Within a tenure nothing is read twice: the
checkpoint knows where it was.

Times are milliseconds, of one clock: all processes are on one host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

Record = tuple[str, int, int]
"""Topic, partition, offset."""
Partition = tuple[str, int]


class Run(NamedTuple):
    """A run of a query, both by their numbers."""

    query: int
    number: int


@dataclass(frozen=True, kw_only=True)
class Commit:
    """That a broker has taken, in the order of its log."""

    by: Run
    of: Partition
    offset: int
    at: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """That a sink has taken; batches of a query that are replayed come into its sink once.

    Attributes:
        asked: When the reader was asked for it.
        planned: When it had answered: what it reads was claimed by then.
    """

    by: Run
    number: int
    records: tuple[Record, ...]
    asked: int
    planned: int


@dataclass(frozen=True, kw_only=True)
class End:
    """Of a run."""

    at: int
    drained: bool


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Partitions went, and the group did not take what was committed before.

    Attributes:
        of: None: whatever the run held.
    """

    by: Run
    at: int
    of: frozenset[Partition] | None


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """Partitions went, and their run knew it: its on_revoke has returned."""

    by: Run
    at: int
    of: frozenset[Partition]


@dataclass(frozen=True, kw_only=True)
class History:
    """All that happened to a group; every run has ended.

    Attributes:
        session: A member that was silent for longer is out.
    """

    produced: frozenset[Record]
    commits: Sequence[Commit]
    batches: Sequence[Batch]
    ends: Mapping[Run, End]
    losses: Sequence[Loss]
    hand_overs: Sequence[HandOver]
    session: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Attributes: missing: In no sink; twice: more than once in all of them; wrong: in words."""

    missing: list[Record]
    twice: list[Record]
    wrong: list[str]


def judge(history: History) -> Verdict:
    """Whether everything was read, and nothing again without an excuse."""
    written = Counter(record for batch in history.batches for record in batch.records)
    return Verdict(
        missing=sorted(history.produced - written.keys()),
        twice=sorted(record for record, times in written.items() if times > 1),
        wrong=sorted(set(_Judge(history).faults())),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tenure:
    query: int
    start: int
    """The offset where it was claimed."""
    stop: int
    """The last offset that was committed."""
    since: int
    until: float
    """When another query claimed the partition."""
    runs: frozenset[int]
    """Those that have committed."""


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """A record in a batch."""

    batch: Batch
    tenure: _Tenure


@dataclass
class _Judge:
    history: History
    _tenures: dict[Partition, list[_Tenure]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        commits: dict[Partition, list[Commit]] = defaultdict(list)
        for commit in self.history.commits:
            commits[commit.of].append(commit)
        self._tenures = {of: _tenures(made) for of, made in commits.items()}

    def faults(self) -> Iterator[str]:
        yield from self._commits_that_go_back()
        readings: dict[Record, list[_Reading]] = defaultdict(list)
        for batch in self.history.batches:
            for record in batch.records:
                tenure = self._tenure(record, batch)
                if tenure is None:
                    yield f"{record}: {batch.by} read it without a claim"
                    continue
                yield from self._outside_its_tenure(record, batch, tenure)
                readings[record].append(_Reading(batch=batch, tenure=tenure))
        for record, found in sorted(readings.items()):
            if len(found) > 1:
                yield from self._again_without_excuse(record, found)

    def _commits_that_go_back(self) -> Iterator[str]:
        last: dict[Partition, Commit] = {}
        for commit in self.history.commits:
            before = last.get(commit.of, commit)
            if commit.offset < before.offset:
                yield f"{commit} goes back behind {before}"
            last[commit.of] = commit

    def _tenure(self, record: Record, batch: Batch) -> _Tenure | None:
        """The last one that the query had begun when the batch was planned."""
        return self._last_tenure(record[:2], batch.by.query, batch.planned)

    def _last_tenure(self, of: Partition, query: int, at: int) -> _Tenure | None:
        begun = [t for t in self._tenures.get(of, []) if t.query == query and t.since <= at]
        return begun[-1] if begun else None

    def _outside_its_tenure(self, record: Record, batch: Batch, tenure: _Tenure) -> Iterator[str]:
        if record[2] < tenure.start:
            yield f"{record}: {batch.by} read it, and claimed from {tenure.start} on"
        if batch.asked > tenure.until:
            yield f"{record}: {batch.by} planned it when another query had claimed the partition"
        drained = self.history.ends[batch.by].drained
        if drained and record[2] >= tenure.stop and not self._was_lost(record, batch, tenure):
            yield f"{record}: {batch.by} was drained, and has not committed it"

    def _again_without_excuse(self, record: Record, found: list[_Reading]) -> Iterator[str]:
        found.sort(key=lambda one: (one.tenure.since, one.batch.by, one.batch.number))
        for one, then in pairwise(found):
            if then.tenure is one.tenure:
                yield f"{record}: {then.batch.by} read it again, and nobody had it in between"
            elif not self._ended_by_death(record, one) and not self._was_lost(
                record, one.batch, one.tenure
            ):
                yield (
                    f"{record}: {then.batch.by} read it again, and {one.batch.by} had neither "
                    "died nor lost it"
                )

    def _ended_by_death(self, record: Record, one: _Reading) -> bool:
        """Whether who held the partition last had died when it was claimed by another.

        Or soon after, and without a hand-over: it had lost its session, and died before it knew.
        """
        tenure = one.tenure
        last = Run(tenure.query, max({one.batch.by.number} | tenure.runs))
        end = self.history.ends[last]
        if end.drained or end.at > tenure.until + self.history.session:
            return False
        return end.at <= tenure.until or not any(
            went.by == last and record[:2] in went.of and went.at >= tenure.since
            for went in self.history.hand_overs
        )

    def _was_lost(self, record: Record, batch: Batch, tenure: _Tenure) -> bool:
        """Whether the tenure is the one that a loss ended."""
        runs = {batch.by.number} | tenure.runs
        return any(
            loss.by.query == tenure.query
            and loss.by.number in runs
            and (loss.of is None or record[:2] in loss.of)
            and self._last_tenure(record[:2], tenure.query, loss.at) is tenure
            for loss in self.history.losses
        )


def _tenures(commits: Sequence[Commit]) -> list[_Tenure]:
    """Of one partition, in order."""
    each = [list(made) for _, made in groupby(commits, lambda commit: commit.by.query)]
    ends: list[float] = [made[0].at for made in each[1:]]
    return [
        _Tenure(
            query=made[0].by.query,
            start=made[0].offset,
            stop=made[-1].offset,
            since=made[0].at,
            until=until,
            runs=frozenset(commit.by.number for commit in made),
        )
        for made, until in zip(each, [*ends, float("inf")], strict=True)
    ]
