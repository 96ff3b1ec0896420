"""When who has nothing to revoke is told to begin the follow-up round (`may_go_ahead`)."""

from __future__ import annotations

from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Generation, Partitions, Subscription

OURS = SubscriptionMarks()
BUSY = SubscriptionMarks(busy=True)
DRAINING = SubscriptionMarks(draining=True)


def member(*owned: int, marks: SubscriptionMarks | None = OURS) -> bytes:
    return encode_subscription(
        Subscription(
            topics=("t",),
            owned=Partitions({"t": owned}) if owned else Partitions(),
            generation=Generation(3 if owned else -1),
            user_data=None if marks is None else append_marks(None, marks),
        )
    )


def led(
    members: dict[str, bytes],
    *,
    of: int = 4,
    strategy: str = "cooperative-sticky",
    announced: bool = False,
    commits: bool = True,
) -> LeaderOutcome:
    return lead(strategy, {"t": of}, members, announced=announced, commits_while_joining=commits)


def ahead(outcome: LeaderOutcome) -> bool:
    """What all members are told."""
    marks = [split_marks(decode_assignment(b).user_data)[1] for b in outcome.assignments.values()]
    told = {m.ahead for m in marks if isinstance(m, AssignmentMarks)}
    (one,) = told
    return one


def test_where_a_member_joins_or_drains() -> None:
    assert ahead(led({"a": member(0, 1, 2, 3), "new": member()}))
    assert ahead(led({"a": member(0, 1, marks=DRAINING), "b": member(2, 3)}))


def test_not_where_no_round_follows() -> None:
    outcome = led({"a": member(0, 1), "b": member(2, 3)})
    assert not outcome.follow_up
    assert not ahead(outcome)
    assert not ahead(led({"a": member(0, 1, 2, 3), "new": member()}, strategy="range"))


def test_not_after_a_round_that_was_announced_nor_where_no_commit_is_taken() -> None:
    joined = {"a": member(0, 1, 2, 3), "new": member()}
    for outcome in led(joined, announced=True), led(joined, commits=False):
        assert outcome.follow_up
        assert not ahead(outcome)


def test_not_where_who_is_to_revoke_is_busy() -> None:
    assert not ahead(led({"a": member(0, 1, 2, 3, marks=BUSY), "new": member()}))
    assert not ahead(
        led({"a": member(0, 1, 2), "b": member(3, 4, 5, marks=BUSY), "new": member()}, of=6)
    )
    assert ahead(led({"a": member(0, 1, 2, 3), "new": member(marks=BUSY)})), "it gives nothing up"


def test_not_where_somebody_gains_what_is_free_and_may_hear_of_it_too_late() -> None:
    outcome = led({"a": member(0, 1, 2, 3), "new": member()}, of=6)
    got = decode_assignment(outcome.assignments["new"]).partitions
    assert got == Partitions({"t": [4, 5]})
    assert outcome.follow_up
    assert not ahead(outcome)


def test_not_beside_members_of_other_clients() -> None:
    outcome = led({"a": member(0, 1, 2, 3), "java": member(marks=None)})
    assert outcome.follow_up
    assert not ahead(outcome)
