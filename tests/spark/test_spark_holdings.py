"""Whoever holds a partition: a model in which owners, crashes and commits are played through.

The model knows which offsets are durable anywhere. Its queries plan, run and commit batches by
`Holdings` alone, of the partition or without it, die at any point, and start again from their
checkpoints, with a replay where one is due. Nothing may be skipped, whoever continues; and nothing
that a checkpoint has read is read by it again as long as nobody else has claimed the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.spark.holdings import NOTHING, Committed, Holdings
from kafka_coop.spark.offsets import Claim, Known, Range, SourceOffset, TakenOver
from kafka_coop.spark.remembered import Remembered
from kafka_coop.spark.replay import _begin
from kafka_coop.types import TopicPartition

ONE = TopicPartition("orders", 0)
Action = Callable[[], None]


@dataclass
class Group:
    """What outlives every process."""

    committed: Committed = NOTHING
    owner: Query | None = None
    durable: set[int] = field(default_factory=set)
    end: int = 3
    claimed_by: str = ""
    claims: int = 0
    """How often another one has claimed it than before."""
    reached: int = 0
    """How far that one has come with what it began to read since."""

    def take_claim(self, name: str) -> None:
        """By a commit of that one."""
        if self.claimed_by != name:
            self.claimed_by, self.reached = name, 0
            self.claims += 1

    def read_plainly(self) -> None:
        """A consumer that knows nothing of claims reads a record and commits."""
        offset = self.committed.offset or 0
        self.durable.add(offset)
        self.committed = Committed(offset=offset + 1, run=None)
        self.take_claim("")
        self.end = max(self.end, offset + 1)


class Query:
    """A query: its checkpoint (`logged`, `durable`) outlives its process (`holdings`)."""

    def __init__(self, name: str, group: Group) -> None:
        self.name = name
        self.group = group
        self.logged: SourceOffset | None = None
        self.durable = True
        self.holdings: Holdings | None = None
        self.batch: Range | None = None
        self.began = 0
        self.runs = 0
        self.own_log = TopicPartition(f"log-{name}", 0)  # that nobody else ever has
        identities: Any = SimpleNamespace(known={})
        self.remembered = Remembered(
            group="g", cluster="", id=name, topics={}, identities=identities, taken=TakenOver()
        )

    def actions(self) -> Iterator[Action]:
        """What may happen to it next."""
        holdings = self.holdings
        if holdings is None:
            yield self.start
            return
        yield self.die
        yield lambda: holdings.hear({ONE: self.group.committed})
        if self.batch is None and self.durable:
            yield self.plan_without_it
        if self.group.owner is None:
            yield self.own
            yield lambda: self.own(claims=False)
        elif self.group.owner is not self:
            yield self.own  # the session of the other was lost
            yield self.take_over
        if self.batch is None and not self.durable:
            yield self.replay
        elif self.batch is None and self.group.owner is self:
            yield self.plan
            yield self.shorten
            yield self.lose
        elif self.batch is not None and not self.durable:
            yield self.finish
        elif self.batch is not None:
            yield self.settle
            yield lambda: self.settle(commits=False)

    def start(self) -> None:
        self.holdings = Holdings(self._new_run(), self.logged.run if self.logged else None)
        if self.logged is not None:
            self.holdings.remember(self.logged, durable=self.durable)
        before = self.logged.run if self.logged else self.holdings.run
        committed = Committed(offset=0, run=before)
        position = self.holdings.position_from(self.own_log, committed) or 0
        self.holdings.hold(self.own_log, position, committed)

    def die(self) -> None:
        self.holdings, self.batch = None, None
        if self.group.owner is self:
            self.group.owner = None

    def come_again(self) -> None:
        """It dies, and its next run is given the partition."""
        self.die()
        self.start()
        self.own()

    def take_over(self) -> None:
        """The other hands over, if no batch of its reads the partition."""
        other = self.group.owner
        assert other is not None
        assert other.holdings is not None
        if other.holdings.busy([ONE]):
            return
        other.commit()
        self.own()

    def lose(self) -> None:
        """Its session ends, and nobody has it for a while."""
        assert self.holdings is not None
        self.holdings.drop([ONE])
        self.group.owner = None

    def own(self, *, claims: bool = True) -> None:
        """Without claims: the commit fails."""
        other, holdings = self.group.owner, self.holdings
        assert holdings is not None
        if other is not None and other.holdings is not None:
            other.holdings.drop([ONE])
        self.group.owner = self
        committed = self.group.committed
        known = holdings.position_from(ONE, committed)
        holdings.hold(ONE, (committed.offset or 0) if known is None else known, committed)
        if claims:
            self.commit()

    def commit(self) -> None:
        assert self.holdings is not None
        group = self.group
        if (offset := self.holdings.news().get(ONE)) is not None:
            claim = self.holdings.claim(ONE)
            group.committed = Committed.under(claim, offset)
            self.holdings.committed(ONE, offset, claim)
            group.take_claim(self.name)

    def plan(self) -> None:
        holdings = self.holdings
        assert holdings is not None
        if holdings.renew() or ONE not in holdings.ready():
            self.commit()
        position = holdings.ready()[ONE]
        span = Range(position, max(position, min(self.group.end, position + 2)))
        if span.size:
            self.begin({ONE: span})

    def plan_without_it(self) -> None:
        """It is with others, or is still to be claimed: the batch is of another partition."""
        holdings = self.holdings
        assert holdings is not None
        holdings.renew()
        position = holdings.held[self.own_log].position
        holdings.committed(self.own_log, position, holdings.claim(self.own_log))
        self.begin({self.own_log: Range(position, position + 1)})

    def begin(self, chosen: dict[TopicPartition, Range]) -> None:
        """Spark logs its end."""
        holdings = self.holdings
        assert holdings is not None
        self.logged = self.remembered.end(holdings, chosen, taken_over=(), replays=False)
        self.durable, self.batch = False, chosen.get(ONE, Range(0, 0))
        self.began = self.group.claims
        holdings.begin(self.logged.to_json(), chosen)

    def shorten(self) -> None:
        """Records are lost (an unclean election); it may die right after it has said so."""
        holdings = self.holdings
        assert holdings is not None
        if (end := holdings.held[ONE].reached - 1) < 0:
            return
        self.group.end = end
        self.group.durable = set(range(end)) & self.group.durable
        self.group.reached = min(self.group.reached, end)
        holdings.shorten(ONE, end)
        self.commit()

    def replay(self) -> None:
        holdings, logged, committed = self.holdings, self.logged, self.group.committed
        assert holdings is not None
        assert logged is not None
        wanted = {of: span for of, span in logged.ranges.items() if span.size}
        if ONE in wanted and ONE not in holdings.ready():
            taken = committed.run != logged.run or (committed.offset or 0) >= wanted[ONE].stop
            if not taken:
                return  # it waits
        self.began = self.group.claims
        self.batch = _begin(holdings, logged, wanted, logged.to_json()).get(ONE, Range(0, 0))

    def finish(self) -> None:
        """The sink and the commit log have it."""
        assert self.batch is not None
        self.group.durable |= set(range(*self.batch))
        self.durable = True
        if self.group.claims == self.began and self.group.claimed_by == self.name:
            self.group.reached = max(self.group.reached, self.batch.stop)

    def settle(self, *, commits: bool = True) -> None:
        """LatestOffset is entered; the commit may fail."""
        holdings = self.holdings
        assert holdings is not None
        assert self.logged is not None
        assert holdings.is_under_way(self.logged.to_json())
        holdings.finish()
        self.batch = None
        if commits and self.group.owner is self:
            self.commit()

    def _new_run(self) -> str:
        self.runs += 1
        return f"{self.name}{self.runs}"


@settings(max_examples=3000, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=10, max_size=80))
def test_nothing_is_skipped_whoever_goes_on(choices: list[int]) -> None:
    group = Group()
    queries = [Query("a", group), Query("b", group)]
    for choice in choices:
        actions = [action for query in queries for action in query.actions()]
        if group.owner is None:
            actions.append(group.read_plainly)
        actions[choice % len(actions)]()
        group.end += choice % 2
        assert set(range(group.committed.offset or 0)) <= group.durable, "committed, not durable"
        assert not (group.committed.unread and group.committed.offset), "somebody has read it"
        owner = group.owner
        if owner is not None and owner.holdings is not None and not owner.holdings.busy([ONE]):
            hold = owner.holdings.held[ONE]
            position = hold.position
            assert set(range(position)) <= group.durable, f"{owner.name} goes on at {position}"
            if hold.shortened is None:
                assert position >= (group.committed.offset or 0), f"{owner.name} reads it again"
            if group.claimed_by == owner.name:
                assert position >= group.reached, "nobody else has claimed it"


@given(st.lists(st.booleans(), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_who_never_claimed_it_gives_it_back_as_it_was(
    restarts: list[bool], is_lost: bool, hears: bool
) -> None:
    """Meanwhile the checkpoint logs batches of other partitions; its runs come and go."""
    group = Group()
    ours, other = Query("a", group), Query("b", group)
    ours.start()
    ours.own()
    ours.plan()
    if is_lost:  # in the midst of its batch
        other.start()
        other.own(claims=False)
        ours.finish()
        ours.settle()
    else:
        ours.finish()
        ours.die()
        other.start()
        other.own(claims=False)
        ours.start()
    for restart in restarts:
        assert ours.holdings is not None
        if hears:
            ours.holdings.hear({ONE: group.committed})
        ours.plan_without_it()
        ours.finish()
        ours.settle()
        if restart:
            ours.die()
            ours.start()
    other.die()
    assert group.committed.offset == 0, "the group knows nothing"
    ours.own(claims=False)
    ours.plan_without_it()  # held, and its claim was refused
    ours.finish()
    ours.come_again()
    assert ours.holdings is not None
    assert ours.holdings.held[ONE].position == 2
    assert group.committed.offset == 2


def test_a_replay_is_known_although_its_run_dies_right_after_it() -> None:
    """The batch before was durable, too, and the group has not heard of either."""
    group = Group(end=4)
    query = Query("a", group)
    query.start()
    query.own()
    query.plan()
    query.finish()
    query.settle(commits=False)
    query.plan()
    query.come_again()
    query.replay()
    assert query.batch == Range(2, 4)
    query.finish()
    query.come_again()
    assert query.holdings is not None
    assert query.holdings.held[ONE].position == 4
    assert group.committed.offset == 4


def test_what_leaves_while_a_replay_is_due_is_committed_as_far_as_it_is_known() -> None:
    holdings = Holdings("second", "first")
    logged = SourceOffset(group="g", id="id", run="first", topics={}, ranges={ONE: Range(3, 9)})
    holdings.remember(logged, durable=False)
    holdings.hold(ONE, 3, Committed(offset=0, run="first"))
    assert holdings.news() == {}
    assert holdings.ready() == {ONE: 3}
    holdings.leave([ONE])
    assert holdings.news() == {ONE: 3}


@pytest.mark.parametrize("loses", [False, True], ids=["held and not claimed", "lost"])
def test_a_log_that_became_shorter_is_remembered_until_the_group_knows(loses: bool) -> None:
    """Else the next run would begin where the group is, and skip what was written up to there."""
    first, before = held_at(9, committed=9), Committed(offset=9, run="run")
    first.shorten(ONE, 4)
    if loses:
        first.drop([ONE])
    second = Holdings("second", "run")
    second.remember(
        SourceOffset(group="g", id="id", run=first.run, known=first.known_besides()), durable=True
    )
    second.hear({ONE: before})  # it is with another, which never claims it
    third = Holdings("third", "second")
    third.remember(
        SourceOffset(group="g", id="id", run="second", known=second.known_besides()), durable=True
    )
    assert third.position_from(ONE, before) == 4


def test_a_log_that_became_shorter_is_claimed_anew_before_anything_is_planned() -> None:
    logged = SourceOffset(group="g", id="id", run="first", topics={}, ranges={ONE: Range(1, 2)})
    second = Holdings("second", "first")
    second.remember(logged, durable=True)
    second.hold(ONE, 2, Committed(offset=1, run="first"))
    second.shorten(ONE, 1)
    assert second.news() == {ONE: 1}


def test_what_was_lost_in_mid_batch_counts_whatever_it_is_claimed_under() -> None:
    """Another partition came back from others, and all is claimed anew."""
    holdings = held_at(0, committed=0)
    holdings.begin({}, {ONE: Range(0, 10)})
    holdings.drop([ONE])
    holdings.start_over({"another"})
    holdings.hold(ONE, 0, Committed(offset=0, run="run"))
    holdings.committed(ONE, 0, holdings.claim(ONE))
    assert holdings.run != "run"
    holdings.finish()
    assert holdings.held[ONE].position == 10


def test_the_end_of_a_batch_tells_what_the_group_does_not_know() -> None:
    holdings = held_at(9, committed=4)
    assert holdings.known_besides() == {}, "what is held and claimed is in its ranges"
    holdings.drop([ONE])
    assert holdings.known_besides() == {ONE: Known(9, frozenset({"run"}))}
    holdings.hear({ONE: Committed(offset=4, run="run")})
    holdings.hear({ONE: NOTHING})
    assert holdings.ahead == {ONE}, "untouched, or it has expired"
    holdings.hear({ONE: Committed(offset=4, run="theirs")})
    assert not holdings.known_besides()
    holdings = held_at(9, committed=9)
    holdings.drop([ONE])
    assert not holdings.known_besides(), "it was handed over"


def held_at(position: int, *, committed: int) -> Holdings:
    """One partition, claimed."""
    holdings = Holdings("run")
    holdings.hold(ONE, position, Committed(offset=committed, run="run"))
    return holdings


def test_what_is_committed_does_not_go_back_for_a_horizon() -> None:
    holdings = held_at(3, committed=9)
    assert holdings.news() == {}
    holdings.move(ONE, 5)  # what has fallen off at the beginning is no reason either
    assert holdings.news() == {}


def test_what_is_committed_goes_back_with_the_log() -> None:
    holdings = held_at(9, committed=9)
    holdings.shorten(ONE, 4)
    assert holdings.news() == {ONE: 4}
    assert holdings.ready() == {}, "read before the group knew"
    holdings.committed(ONE, 9, Claim("run"))  # one that was under way
    assert holdings.news() == {ONE: 4}
    holdings.committed(ONE, 4, holdings.claim(ONE))
    assert holdings.news() == {}
    assert holdings.ready() == {ONE: 4}


def test_a_horizon_goes_on_in_a_log_that_has_become_shorter() -> None:
    """The group is told of the log's end, not of where the horizon is."""
    holdings = held_at(2, committed=9)
    holdings.shorten(ONE, 6)
    assert holdings.news() == {ONE: 6}
    holdings.committed(ONE, 6, holdings.claim(ONE))
    assert holdings.ready() == {ONE: 2}
    holdings.begin({}, {ONE: Range(2, 5)})
    holdings.finish()
    assert holdings.news() == {}
    holdings.begin({}, {ONE: Range(5, 8)})
    holdings.finish()
    assert holdings.news() == {ONE: 8}


def test_the_checkpoints_word_does_not_count_for_a_log_that_has_become_shorter() -> None:
    logged = SourceOffset(group="g", id="id", run="run", topics={}, ranges={ONE: Range(3, 9)})
    first = held_at(9, committed=9)
    first.shorten(ONE, 4)
    again = Holdings("another", "run")
    again.remember(logged, durable=True)
    assert again.position_from(ONE, Committed(offset=9, run="run")) == 9
    assert again.position_from(ONE, Committed(offset=4, run=first.run)) is None


def test_nor_for_a_partition_that_others_had_meanwhile() -> None:
    """It would have what they did done again, or skip what took the place of what they lost."""
    logged = SourceOffset(group="g", id="id", run="run", topics={}, ranges={ONE: Range(3, 9)})
    first = held_at(9, committed=9)
    first.drop([ONE])
    first.hold(ONE, 12, Committed(offset=12, run="theirs"))
    assert first.news() == {ONE: 12}
    again = Holdings("another", "run")
    again.remember(logged, durable=True)
    assert again.position_from(ONE, Committed(offset=12, run=first.run)) is None


def test_what_comes_back_untouched_is_not_claimed_again() -> None:
    holdings = held_at(9, committed=9)
    holdings.drop([ONE])
    holdings.hold(ONE, 9, Committed(offset=9, run="run"))
    assert holdings.news() == {}
    assert holdings.ready() == {ONE: 9}


def test_a_claim_that_failed_leaves_no_word_on_what_another_does() -> None:
    """It went on under its own claim, far beyond where we had been given it."""
    holdings = Holdings("ours")
    holdings.hold(ONE, 500, Committed(offset=500, run="theirs"))
    holdings.drop([ONE])  # the session was lost before the claim was committed
    assert holdings.position_from(ONE, Committed(offset=900, run="theirs")) is None
    holdings.hold(ONE, 900, Committed(offset=900, run="theirs"))
    assert holdings.claim(ONE).run != "ours", "the word of an offset logged before would count"


def test_a_claim_of_which_nobody_heard_counts() -> None:
    """The commit was taken, and its answer lost."""
    holdings = Holdings("ours")
    holdings.hold(ONE, 500, NOTHING)
    holdings.drop([ONE])
    assert holdings.position_from(ONE, Committed(offset=500, run="ours")) == 500


def restarted(after: Committed, *, before: str = "first") -> int | None:
    """Where the checkpoint goes on whose last batch was ``before``'s."""
    logged = SourceOffset(group="g", id="id", run=before, topics={}, ranges={ONE: Range(3, 9)})
    third = Holdings("third", before)
    third.remember(logged, durable=True)
    return third.position_from(ONE, after)


def committed_by(second: Holdings, offset: int) -> Committed:
    return Committed.under(second.claim(ONE), offset)


def test_who_planned_no_batch_has_not_moved_the_partition() -> None:
    second = Holdings("second", "first")
    second.hold(ONE, 9, Committed(offset=3, run="first"))
    assert committed_by(second, 9).after is None, "nothing is known of it"
    logged = SourceOffset(group="g", id="id", run="first", topics={}, ranges={ONE: Range(3, 9)})
    second.remember(logged, durable=True)
    second.hold(ONE, 9, Committed(offset=3, run="first"))
    assert restarted(committed_by(second, 9)) == 9
    second.hold(ONE, 9, committed_by(second, 9))
    assert restarted(committed_by(second, 9)) == 9, "and came back untouched"


def test_who_took_it_over_from_another_has() -> None:
    second = Holdings("second", "first")
    logged = SourceOffset(group="g", id="id", run="first", topics={}, ranges={ONE: Range(3, 9)})
    second.remember(logged, durable=True)
    second.hold(ONE, 12, Committed(offset=12, run="theirs"))
    assert restarted(committed_by(second, 12)) is None
    second.drop([ONE])
    second.hold(ONE, 12, Committed(offset=12, run=second.run))
    assert restarted(committed_by(second, 12)) is None, "and came back untouched"


def test_a_horizon_that_is_half_read_is_not_skipped_by_who_planned_no_batch() -> None:
    """What is committed is ahead of it: the state is not there yet."""
    logged = SourceOffset(group="g", id="id", run="first", topics={}, ranges={ONE: Range(60, 80)})
    second = Holdings("second", "first")
    second.remember(logged, durable=True)
    committed = Committed(offset=100, run="first")
    position = second.position_from(ONE, committed)
    assert position == 80
    second.hold(ONE, position, committed)
    assert second.renew()
    assert second.news() == {ONE: 100}
    third = Holdings("third", "first")
    third.remember(logged, durable=True)
    assert third.position_from(ONE, committed_by(second, 100)) == 80


def test_an_orphan_of_long_ago_moves_nothing() -> None:
    """Lost in a batch, read on by others, back, claimed, and lost again: then the batch is done."""
    holdings = held_at(0, committed=0)
    holdings.begin({}, {ONE: Range(0, 10)})
    holdings.drop([ONE])
    holdings.hold(ONE, 300, Committed(offset=300, run="theirs"))
    claim = holdings.claim(ONE)
    holdings.committed(ONE, 300, claim)
    holdings.drop([ONE])
    holdings.finish()
    assert holdings.position_from(ONE, Committed(offset=300, run=claim.run)) == 300


def test_what_nobody_has_read_is_so_until_a_batch_has() -> None:
    first, second = Holdings("first"), Holdings("second")
    first.hold(ONE, 9, NOTHING)
    assert not committed_by(first, 9).has_been_read
    second.hold(ONE, 9, committed_by(first, 9))
    assert not committed_by(second, 9).has_been_read, "it was claimed, and claimed again"
    second.begin({}, {ONE: Range(9, 12)})
    assert not committed_by(second, 9).has_been_read, "the batch may never be durable"
    second.finish()
    assert committed_by(second, 12).has_been_read
    third = Holdings("third")
    third.hold(ONE, 12, committed_by(second, 12))
    assert committed_by(third, 12).has_been_read, "by others"


def test_what_comes_back_unread_is_known_to_have_been_read_here() -> None:
    """Its batch was durable and not committed: what keeps state would count it twice."""
    first = Holdings("first")
    first.hold(ONE, 0, NOTHING)
    logged = SourceOffset(group="g", id="id", run="first", topics={}, ranges={ONE: Range(0, 5)})
    other = Holdings("other")
    other.hold(ONE, 0, committed_by(first, 0))
    given_back = committed_by(other, 0)
    assert not given_back.has_been_read
    again = Holdings("again", "first")
    again.remember(logged, durable=True)
    assert again.position_from(ONE, given_back) is None
    assert again.has_read_beyond(ONE, given_back)
    assert not Holdings("newcomer").has_read_beyond(ONE, given_back)


def test_an_offset_without_a_claim_was_read_up_to() -> None:
    assert Committed(offset=9, run=None).has_been_read
    assert not NOTHING.has_been_read
