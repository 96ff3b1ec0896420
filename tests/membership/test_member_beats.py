"""When a member beats: a small group in step, a large one each at its own time."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from member_box import NODE, MemberBox, settings

from kafka_coop.errors import RequestTimedOutError
from kafka_coop.membership.effects import CoordinatorChanged, HeartbeatObserved, SendHeartbeat
from kafka_coop.membership.events import CoordinatorLost, HeartbeatAnswered
from kafka_coop.membership.pulse import FOLLOW_UP_AFTER, IN_STEP_UP_TO, Pulse
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import HeartbeatAcked
from kafka_coop.types import Generation, GroupMetadata, MemberId

ME = GroupMetadata(group_id="group", generation=Generation(1), member_id=MemberId("me"))
SYNCED = 100.0


def member(interval: float, *, began: float, heartbeat_interval: timedelta | None = None) -> Pulse:
    """Its first beat, `interval` after it joined, may come before the answer to SyncGroup."""
    pulse = Pulse(settings(heartbeat_interval=heartbeat_interval), count(1).__next__)
    pulse.suggest(timedelta(seconds=interval))
    pulse.start(ME, began, joining_since=began, join_sent_at=began)
    while beat_by(pulse, SYNCED):
        pass
    pulse.synced(began, SYNCED)
    return pulse


def beat_by(pulse: Pulse, latest: float, *, late: float = 0.0) -> float | None:
    """Sends the next beat, and has it answered at once; None: it is due after ``latest``."""
    due = pulse.deadline()
    assert due is not None
    if due > latest:
        return None
    (sent,) = pulse.beat(NODE, due + late)
    assert isinstance(sent, SendHeartbeat)
    answer = HeartbeatAnswered(token=sent.token, answer=HeartbeatAcked(error=ErrorCode.none))
    pulse.answered(answer, due + late)
    return due


def beats(pulse: Pulse, until: float, *, late: float = 0.0) -> list[float]:
    """When they were due; each is sent ``late`` seconds after."""
    found = []
    while (due := beat_by(pulse, until, late=late)) is not None:
        found.append(due)
    return found


ages = st.floats(0.001, 3.0)
intervals = st.floats(0.01, IN_STEP_UP_TO)


@given(ages, ages, intervals, st.floats(0.0, 0.4))
def test_a_small_group_beats_in_step(
    one: float, other: float, interval: float, lateness: float
) -> None:
    of_one, of_other = (member(interval, began=SYNCED - age) for age in (one, other))
    punctual = beats(of_one, SYNCED + 3.0)
    late = beats(of_other, SYNCED + 3.0, late=lateness * interval)
    after = [at for at in punctual if at > SYNCED + 2 * interval]
    assert after == pytest.approx([at for at in late if at > SYNCED + 2 * interval])


@given(ages, intervals)
def test_no_two_beats_come_closer_than_half_an_interval_nor_lie_further_apart_than_one_and_a_half(
    age: float, interval: float
) -> None:
    pulse = member(interval, began=SYNCED - age)
    found = beats(pulse, SYNCED + 3.0)
    gaps = [b - a for a, b in pairwise(found)]
    assert min(gaps) >= interval * 0.499
    assert max(gaps) <= interval * 1.501
    assert found[0] == pytest.approx(SYNCED + interval), "and the first comes an interval later"


def test_who_is_half_an_interval_late_leaves_out_no_more_than_one_beat() -> None:
    pulse = member(0.1, began=SYNCED)
    assert beat_by(pulse, SYNCED + 1, late=0.07) == pytest.approx(SYNCED + 0.1)
    assert beat_by(pulse, SYNCED + 1) == pytest.approx(SYNCED + 0.3)


@given(st.floats(0.01, 2.99))
def test_a_large_group_s_members_keep_their_own_time(age: float) -> None:
    """All at once they would be a burst that the broker gets each few seconds."""
    pulse = member(3.0, began=SYNCED - age)
    found = beats(pulse, SYNCED + 10)[:3]
    assert found == pytest.approx([SYNCED - age + n * 3.0 for n in (1, 2, 3)])


def test_a_member_that_let_a_beat_pass_before_the_answer_beats_at_once() -> None:
    """Its join took a third of the session: the next sign of life must not wait for the others."""
    pulse = Pulse(settings(heartbeat_interval=None), count(1).__next__)
    pulse.suggest(timedelta(seconds=0.05))
    pulse.start(ME, SYNCED, joining_since=SYNCED - 60, join_sent_at=SYNCED - 60)
    pulse.synced(SYNCED, SYNCED)
    due = pulse.deadline()
    assert due is not None
    assert due <= SYNCED


def test_whoever_waits_for_a_round_is_told_by_its_answers_and_beats_as_one_at_rest() -> None:
    """Beats would be in the way of what the round is made of, on each member and at the broker."""
    pulse = member(0.02, began=SYNCED)
    beats(pulse, SYNCED + 1)
    pulse.rejoins()
    waits = beats(pulse, SYNCED + 3)
    assert [b - a for a, b in pairwise(waits)] == pytest.approx([0.2] * 9)
    pulse.start(ME, SYNCED + 3, joining_since=SYNCED + 1, join_sent_at=SYNCED + 1)
    pulse.synced(SYNCED + 3, SYNCED + 3)
    assert beats(pulse, SYNCED + 3.1) == pytest.approx([SYNCED + 3 + 0.02 * n for n in range(1, 6)])


def test_who_leaves_the_group_in_mid_round_does_not_take_its_calm_along() -> None:
    pulse = member(0.02, began=SYNCED)
    pulse.rejoins()
    pulse.stop()
    assert pulse.interval == pytest.approx(0.02)
    pulse.rejoins()
    pulse.stop()
    assert pulse.interval == pytest.approx(0.02), "nor who was not in it"


def test_who_has_had_no_record_for_a_while_hears_of_the_group_less_often() -> None:
    pulse = member(0.02, began=SYNCED)
    pulse.delivered(SYNCED)
    beats(pulse, SYNCED + 9)
    assert pulse.interval == pytest.approx(0.02)
    beats(pulse, SYNCED + 11)
    assert pulse.interval == pytest.approx(0.2)
    assert pulse.news_every == pytest.approx(0.2), "its user need not look more often"


def test_a_group_without_rounds_hears_of_the_next_one_less_often_until_it_comes() -> None:
    pulse = member(0.02, began=SYNCED)
    beats(pulse, SYNCED + 59)
    assert pulse.interval == pytest.approx(0.02), "a service is restarted member by member"
    beats(pulse, SYNCED + 62)
    assert pulse.interval == pytest.approx(0.2)
    assert pulse.news_every == pytest.approx(0.02), "once it comes its user is not to be late"
    pulse.synced(SYNCED + 62, SYNCED + 62)
    assert pulse.interval == pytest.approx(0.02)


def test_an_interval_that_the_user_set_holds() -> None:
    pulse = member(0.5, began=SYNCED, heartbeat_interval=timedelta(seconds=0.02))
    pulse.delivered(SYNCED)
    beats(pulse, SYNCED + 62)
    assert pulse.interval == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("session", "suggested", "own", "paces"),
    [
        (45.0, 1.0, None, 1.0),
        (6.0, 2.5, None, 2.0),
        (45.0, None, None, 3.0),
        (6.0, None, None, 3.0),
        (4.0, None, None, 2.0),
        (6.0, 0.02, 3.0, 3.0),
        (6.0, 0.02, 5.9, 3.0),
    ],
)
def test_beside_other_clients_a_member_beats_as_often_as_they_do_by_default(
    session: float, suggested: float | None, own: float | None, paces: float
) -> None:
    """A suggestion leaves a session time for three beats, all else for two."""
    given = None if own is None else timedelta(seconds=own)
    short = settings(heartbeat_interval=given, session_timeout=timedelta(seconds=session))
    pulse = Pulse(short, count(1).__next__)
    pulse.suggest(None if suggested is None else timedelta(seconds=suggested))
    pulse.start(ME, SYNCED, joining_since=SYNCED, join_sent_at=SYNCED)
    pulse.synced(SYNCED, SYNCED)
    pulse.delivered(SYNCED)
    assert beats(pulse, SYNCED + 100 * paces) == pytest.approx(
        [SYNCED + paces * i for i in range(1, 101)]
    ), "nor does it matter whether there are records, or rounds"


def test_a_follow_up_round_is_asked_for_as_soon_as_it_may_begin_not_in_step() -> None:
    pulse = member(0.1, began=SYNCED - 0.01)
    pulse.announce(SYNCED)
    assert pulse.deadline() == pytest.approx(SYNCED + FOLLOW_UP_AFTER)


def test_nor_is_it_asked_for_sooner_where_the_round_before_it_took_long() -> None:
    """A beat that is due by then would be in the way of whoever revokes."""
    pulse = member(0.02, began=SYNCED - 0.1)
    pulse.announce(SYNCED)
    assert pulse.deadline() == pytest.approx(SYNCED + FOLLOW_UP_AFTER)


def test_whoever_begins_the_follow_up_round_asks_for_it_no_more() -> None:
    pulse = member(0.02, began=SYNCED)
    pulse.announce(SYNCED)
    beat_by(pulse, SYNCED + 0.1)
    pulse.rejoins()
    assert not pulse.announced
    first, second = beats(pulse, SYNCED + 0.5)
    assert second - first == pytest.approx(0.2)


@pytest.mark.parametrize("crosses", ["the answer to JoinGroup", "our next generation"])
def test_a_beat_that_is_refused_for_the_generation_before_holds_up_none(crosses: str) -> None:
    """It was on its way when the group went on. A follow-up round must be heard of at once."""
    pulse = member(3.0, began=SYNCED)
    now = SYNCED + 3.0
    (sent,) = pulse.beat(NODE, now)
    assert isinstance(sent, SendHeartbeat)
    refused = HeartbeatAcked(error=ErrorCode.illegal_generation)
    answer = HeartbeatAnswered(token=sent.token, answer=refused)
    next_one = dataclasses.replace(ME, generation=Generation(2))
    if crosses == "our next generation":
        pulse.start(next_one, now, joining_since=now, join_sent_at=now)
        assert pulse.answered(answer, now)[1:] == (ErrorCode.illegal_generation, ME)
    else:
        pulse.answered(answer, now)
        due = pulse.deadline()
        assert due is not None
        assert due >= now + 0.1, "while it is ours, it is not sent again at once"
        pulse.start(next_one, now, joining_since=now, join_sent_at=now)
    pulse.synced(now, now)
    pulse.announce(now)
    due = pulse.deadline()
    assert due is not None
    assert due <= now + FOLLOW_UP_AFTER


# --- beats that hang -----------------------------------------------------------------------

SESSION = 45.0


def give_up(box: MemberBox, hung: SendHeartbeat) -> None:
    """Its time is over; the coordinator is looked for, and is where it was."""
    box.time_out(hung)
    find_anew(box)


def find_anew(box: MemberBox) -> None:
    assert box.last(CoordinatorChanged).node is None
    box.tick(box.until_deadline())
    box.find()
    assert box.last(CoordinatorChanged).node == NODE


@pytest.mark.parametrize(("interval", "others"), [(None, 2), (SESSION / 2, 1)])
def test_a_beat_that_hangs_leaves_the_session_time_for_another(
    interval: float | None, others: int
) -> None:
    """The connection was half-open, and the coordinator well: it dropped a member that lived."""
    own = None if interval is None else timedelta(seconds=interval)
    box = MemberBox.fresh(heartbeat_interval=own).at(State.STABLE)
    box.beat()
    ends = box.now + SESSION
    hung = box.next_beat()
    for _ in range(others):
        give_up(box, hung)
        hung = box.next_beat()
        assert box.now < ends - 1.0


@pytest.mark.parametrize(("session", "first", "second"), [(45.0, 21.0, 11.25), (6.0, 1.5, 1.5)])
def test_a_slow_broker_is_not_taken_for_one_that_hangs(
    session: float, first: float, second: float
) -> None:
    """Seconds that it may take over a beat, and over the one that makes up for it."""
    box = MemberBox.fresh(session_timeout=timedelta(seconds=session)).at(State.STABLE)
    box.beat()
    assert box.next_beat().timeout.total_seconds() == pytest.approx(first)
    give_up(box, box.last(SendHeartbeat))
    assert box.next_beat().timeout.total_seconds() == pytest.approx(second)


@pytest.mark.parametrize("by", ["a commit", "the session's end"])
def test_a_beat_for_a_coordinator_that_was_given_up_is_waited_for_no_more(by: str) -> None:
    """It kept whoever was found from being asked, and had it forgotten when it failed at last."""
    box = MemberBox.fresh().at(State.STABLE)
    box.beat()
    hung = box.next_beat()
    if by == "a commit":
        box.handle(CoordinatorLost())
    else:
        while box.last(CoordinatorChanged).node is not None:
            box.tick(box.until_deadline())
    assert box.last(HeartbeatObserved).latency is None
    find_anew(box)
    box.tick(box.until_deadline())
    assert box.last(SendHeartbeat) is not hung, "whoever is found is asked at once"
    late = HeartbeatAnswered(token=hung.token, answer=RequestTimedOutError("no answer"))
    assert not box.handle(late)
    box.answer_beat()
    assert box.last(CoordinatorChanged).node == NODE


@pytest.mark.parametrize(
    ("error", "acknowledged"),
    [
        (ErrorCode.none, True),
        (ErrorCode.rebalance_in_progress, True),  # the broker has restarted the session's timer
        (ErrorCode.unknown_member_id, False),
        (ErrorCode.illegal_generation, False),
        (ErrorCode.not_coordinator, False),
    ],
)
def test_a_beat_that_is_refused_is_not_reported_as_acknowledged(
    error: ErrorCode, acknowledged: bool
) -> None:
    """The metrics would show a session that goes on where the coordinator knows of none."""
    box = MemberBox.fresh().at(State.STABLE)
    box.beat(error)
    assert (box.last(HeartbeatObserved).latency is not None) == acknowledged
