"""The checker of random schedules, on histories that are written down: what it lets pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from spark_rereads import (
    Batch,
    Commit,
    End,
    HandOver,
    History,
    Loss,
    Partition,
    Record,
    Run,
    Verdict,
    judge,
)

LOG: Partition = ("orders", 0)
A, B, C = 1, 2, 3


@dataclass
class Story:
    """Of one partition, line by line: each thing happens a moment after the one before."""

    at: int = 0
    commits: list[Commit] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    ends: dict[Run, End] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    hand_overs: list[HandOver] = field(default_factory=list)
    logged: dict[int, int] = field(default_factory=dict)

    def commit(self, query: int, offset: int, *, run: int = 1) -> Story:
        self.at += 10
        self.commits.append(Commit(by=Run(query, run), of=LOG, offset=offset, at=self.at))
        return self

    def plan(
        self, query: int, start: int, stop: int, *, run: int = 1, and_again: bool = False
    ) -> Story:
        """And it comes into the sink, sooner or later; perhaps twice."""
        self.at += 10
        number = self.logged.get(query, 0)
        self.logged[query] = number + 1
        self.batches.append(
            Batch(
                by=Run(query, run),
                number=number,
                records=tuple(records(start, stop) * (2 if and_again else 1)),
                asked=self.at,
                planned=self.at + 1,
            )
        )
        return self

    def end(self, query: int, *, run: int = 1, drained: bool = False) -> Story:
        self.at += 10
        self.ends[Run(query, run)] = End(at=self.at, drained=drained)
        return self

    def lose(self, query: int, *, run: int = 1, all_: bool = False) -> Story:
        self.at += 10
        of = None if all_ else frozenset({LOG})
        self.losses.append(Loss(by=Run(query, run), at=self.at, of=of))
        return self

    def hand_over(self, query: int, *, run: int = 1) -> Story:
        self.at += 10
        by = Run(query, run)
        self.hand_overs.append(HandOver(by=by, at=self.at, of=frozenset({LOG})))
        return self

    def later(self) -> Story:
        """A member that was silent meanwhile is out."""
        self.at += 1000
        return self

    def verdict(self, *, produced: int = 10) -> Verdict:
        """Who has not ended by now is stopped."""
        runs = {commit.by for commit in self.commits} | {batch.by for batch in self.batches}
        for run in sorted(runs - self.ends.keys()):
            self.end(run.query, run=run.number)
        return judge(
            History(
                produced=frozenset(records(0, produced)),
                commits=self.commits,
                batches=self.batches,
                ends=self.ends,
                losses=self.losses,
                hand_overs=self.hand_overs,
                session=1000,
            )
        )


def records(start: int, stop: int) -> list[Record]:
    return [(*LOG, offset) for offset in range(start, stop)]


def half_read_by_a() -> Story:
    """It has claimed the partition, and read 5 of 10 records that it has not committed."""
    return Story().commit(A, 0).plan(A, 0, 5)


def replayed_after_another() -> Story:
    """Its first run has read nothing; the second one has claimed the partition back from B."""
    story = Story().commit(A, 0).end(A).commit(B, 0).end(B, drained=True)
    return story.commit(A, 0, run=2).plan(A, 0, 5, run=2)


ORDERLY = {
    "one query": half_read_by_a().commit(A, 5).plan(A, 5, 10).commit(A, 10),
    "handed over": half_read_by_a().commit(A, 5).commit(B, 5).plan(B, 5, 10),
    "drained": half_read_by_a().commit(A, 5).end(A, drained=True).commit(B, 5).plan(B, 5, 10),
    "taken up by the same checkpoint": half_read_by_a()
    .end(A)
    .commit(A, 5, run=2)
    .plan(A, 5, 10, run=2),
    "replayed": Story().commit(A, 0).end(A).plan(A, 0, 5, run=2).plan(A, 5, 10, run=2),
}

IRREDUCIBLE = {
    "killed": (half_read_by_a().end(A).commit(B, 0).plan(B, 0, 10), 5),
    "killed, and so is the next one": (
        half_read_by_a().end(A).commit(B, 0).plan(B, 0, 10).end(B).commit(C, 0).plan(C, 0, 10),
        10,
    ),
    "killed, and given back unread": (
        half_read_by_a()
        .end(A)
        .commit(B, 0)
        .end(B, drained=True)
        .commit(A, 0, run=2)
        .plan(A, 0, 10, run=2),
        5,
    ),
    "lost while its tasks go on": (
        half_read_by_a().commit(B, 0).plan(B, 0, 10).lose(A).end(A, drained=True),
        5,
    ),
    "lost, and killed before it knew": (
        half_read_by_a().commit(B, 0).plan(B, 0, 10).end(A),
        5,
    ),
    "lost, although others hand over": (
        half_read_by_a().commit(B, 0).hand_over(B).commit(C, 0).plan(C, 0, 10).end(A),
        5,
    ),
    "lost, although it had handed over before": (
        Story()
        .commit(A, 0)
        .hand_over(A)
        .commit(B, 0)
        .hand_over(B)
        .commit(A, 0)
        .plan(A, 0, 5)
        .commit(C, 0)
        .plan(C, 0, 10)
        .end(A),
        5,
    ),
    "a broker was away": (
        half_read_by_a().lose(A, all_=True).commit(B, 0).plan(B, 0, 10).end(A, drained=True),
        5,
    ),
}

UNEXCUSED = {
    "without a kill": (
        half_read_by_a().hand_over(A).commit(B, 0).plan(B, 0, 10),
        "had neither died nor lost it",
    ),
    "killed after it handed over": (
        half_read_by_a().hand_over(A).commit(B, 0).plan(B, 0, 10).end(A),
        "had neither died nor lost it",
    ),
    "killed long after another had it": (
        half_read_by_a().commit(B, 0).plan(B, 0, 10).later().end(A),
        "had neither died nor lost it",
    ),
    "drained": (
        half_read_by_a().end(A, drained=True).commit(B, 0).plan(B, 0, 10),
        f"{Run(A, 1)} ",
    ),
    "a second time after one kill": (
        half_read_by_a()
        .end(A)
        .commit(B, 0)
        .plan(B, 0, 10)
        .hand_over(B)
        .commit(C, 0)
        .plan(C, 0, 10),
        f"{Run(B, 1)} had neither died nor lost it",
    ),
    "a second time after one loss": (
        half_read_by_a()
        .lose(A)
        .commit(B, 0)
        .end(B, drained=True)
        .commit(A, 0)
        .plan(A, 0, 10)
        .hand_over(A)
        .commit(C, 0)
        .plan(C, 0, 10),
        f"{Run(C, 1)} read it again, and {Run(A, 1)} had neither died nor lost it",
    ),
    "after who came back has handed over": (
        half_read_by_a()
        .end(A)
        .commit(A, 0, run=2)
        .end(A, run=2, drained=True)
        .commit(B, 0)
        .plan(B, 0, 10),
        f"{Run(A, 1)} had neither died nor lost it",
    ),
    "what a later run has lost": (
        half_read_by_a().end(A, drained=True).lose(A, run=2).commit(B, 0).plan(B, 0, 10),
        f"{Run(A, 1)} ",
    ),
    "a replay, by whoever came next": (
        replayed_after_another().end(A, run=2).commit(A, 0, run=3).plan(A, 0, 10, run=3),
        "nobody had it in between",
    ),
    "although another had it, which never claimed it": (
        half_read_by_a().end(A).plan(A, 5, 7, run=2).end(A, run=2).plan(A, 0, 10, run=3),
        "nobody had it in between",
    ),
    "a replay that was drained": (
        replayed_after_another()
        .commit(A, 5, run=2)
        .end(A, run=2, drained=True)
        .plan(A, 0, 10, run=3),
        "nobody had it in between",
    ),
    "after another query's death": (
        half_read_by_a().hand_over(A).commit(B, 0).end(B).commit(C, 0).plan(C, 0, 10),
        f"{Run(A, 1)} had neither died nor lost it",
    ),
    "what the group knew": (
        half_read_by_a().commit(A, 5).end(A).commit(B, 5).plan(B, 0, 10),
        f"{Run(B, 1)} read it, and claimed from 5 on",
    ),
    "although the group knew, which a commit takes back": (
        half_read_by_a().commit(A, 5).end(A).commit(B, 0).plan(B, 0, 10),
        "goes back behind",
    ),
    "by the same run": (half_read_by_a().plan(A, 0, 10), "nobody had it in between"),
    "by the same checkpoint, which nobody has interrupted": (
        half_read_by_a().end(A).plan(A, 0, 10, run=2),
        "nobody had it in between",
    ),
    "by the same batch": (
        Story().commit(A, 0).plan(A, 0, 5, and_again=True).plan(A, 5, 10),
        "nobody had it in between",
    ),
    "by one that had not claimed it": (
        half_read_by_a().end(A).plan(B, 0, 10),
        "without a claim",
    ),
    "by one from which it had been taken": (
        half_read_by_a().end(A).commit(B, 0).commit(C, 0).plan(B, 0, 10).lose(B),
        "planned it when another query had claimed the partition",
    ),
}


@pytest.mark.parametrize("story", ORDERLY.values(), ids=ORDERLY)
def test_what_is_read_once_passes(story: Story) -> None:
    assert story.verdict() == Verdict(missing=[], twice=[], wrong=[])


@pytest.mark.parametrize(("story", "twice"), IRREDUCIBLE.values(), ids=IRREDUCIBLE)
def test_what_is_irreducible_passes(story: Story, twice: int) -> None:
    assert story.verdict() == Verdict(missing=[], twice=records(0, twice), wrong=[])


@pytest.mark.parametrize(("story", "why"), UNEXCUSED.values(), ids=UNEXCUSED)
def test_what_is_read_again_without_an_excuse_is_told(story: Story, why: str) -> None:
    verdict = story.verdict()
    assert not verdict.missing
    assert verdict.wrong
    assert all(why in told for told in verdict.wrong), verdict.wrong


def test_a_kill_excuses_what_was_not_committed_alone() -> None:
    story = Story().commit(A, 0).plan(A, 0, 5).commit(A, 5).plan(A, 5, 10).end(A)
    verdict = story.commit(B, 5).plan(B, 4, 10).verdict()
    assert verdict.twice == records(4, 10)
    assert verdict.wrong == [
        f"{(*LOG, 4)}: {Run(B, 1)} read it, and claimed from 5 on",
    ]


def test_what_is_in_no_sink_is_missing() -> None:
    verdict = half_read_by_a().end(A).commit(B, 6).plan(B, 6, 10).verdict()
    assert verdict == Verdict(missing=records(5, 6), twice=[], wrong=[])


def test_who_was_drained_has_committed_all_although_nobody_reads_it_again() -> None:
    verdict = half_read_by_a().end(A, drained=True).verdict(produced=5)
    assert verdict.wrong == [
        f"{record}: {Run(A, 1)} was drained, and has not committed it" for record in records(0, 5)
    ]
