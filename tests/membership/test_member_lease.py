"""Until when records may be handed out: what each answer of the broker proves, and what not."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
from member_box import NODE, MemberBox, partitions, settings

from kafka_coop.membership.effects import (
    Effect,
    EndLease,
    ExtendLease,
    SendHeartbeat,
    SendJoin,
    SendSync,
)
from kafka_coop.membership.events import HeartbeatAnswered
from kafka_coop.membership.pulse import Pulse
from kafka_coop.membership.states import State
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import HeartbeatAcked
from kafka_coop.types import Generation, GroupMetadata, MemberId

SESSION, REBALANCE = 10.0, 30.0


class PulseBox:
    """A pulse of generation 1 that has joined at 0, and synced at 1."""

    def __init__(self) -> None:
        self.pulse = Pulse(
            settings(
                session_timeout=timedelta(seconds=SESSION),
                rebalance_timeout=timedelta(seconds=REBALANCE),
                heartbeat_interval=timedelta(seconds=1),
            ),
            count(1).__next__,
        )
        self.lease = float("-inf")
        self.start(1, joining_since=0.0, now=0.5)
        self.sync(sent_at=1.0)

    def start(
        self, generation: int, *, joining_since: float, now: float, again: float | None = None
    ) -> None:
        identity = GroupMetadata(
            group_id="group", generation=Generation(generation), member_id=MemberId("me")
        )
        sent_at = joining_since if again is None else again
        self.pulse.start(identity, now, joining_since=joining_since, join_sent_at=sent_at)

    def sync(self, *, sent_at: float) -> None:
        self._note(self.pulse.synced(sent_at, sent_at))

    def beat(self, *, sent: float, answered: float, error: ErrorCode = ErrorCode.none) -> None:
        (request,) = self.pulse.beat(NODE, sent)
        assert isinstance(request, SendHeartbeat)
        answer = HeartbeatAnswered(token=request.token, answer=HeartbeatAcked(error=error))
        self._note(self.pulse.answered(answer, answered)[0])

    def _note(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, ExtendLease):
                self.lease = effect.until
            elif isinstance(effect, EndLease):
                self.lease = float("-inf")


@pytest.fixture
def box() -> PulseBox:
    return PulseBox()


def test_a_round_gives_a_lease_from_its_join_on_not_from_its_sync(box: PulseBox) -> None:
    assert box.lease == SESSION


def test_it_counts_from_when_the_heartbeat_was_sent(box: PulseBox) -> None:
    box.beat(sent=3.0, answered=9.0)
    assert box.lease == 3.0 + SESSION


def test_being_told_to_rejoin_is_a_sign_of_life_too(box: PulseBox) -> None:
    box.beat(sent=3.0, answered=3.1, error=ErrorCode.rebalance_in_progress)
    assert box.lease == 3.0 + SESSION


def test_a_refused_heartbeat_is_none(box: PulseBox) -> None:
    box.beat(sent=3.0, answered=3.1, error=ErrorCode.not_coordinator)
    assert box.lease == SESSION


def test_beats_alone_do_not_keep_it_while_a_round_waits_for_us(box: PulseBox) -> None:
    box.beat(sent=5.0, answered=5.1)
    for second in range(6, 60, 2):
        box.beat(sent=second, answered=second + 0.1, error=ErrorCode.rebalance_in_progress)
    assert box.lease == 5.0 + REBALANCE


def test_nor_while_it_waits_for_our_sync(box: PulseBox) -> None:
    box.beat(sent=5.0, answered=5.1, error=ErrorCode.rebalance_in_progress)
    box.start(2, joining_since=6.0, now=7.0)
    for second in range(7, 60, 2):
        box.beat(sent=second, answered=second + 0.1)
    assert box.lease == 6.0 + REBALANCE


def test_a_round_that_others_held_up_began_when_we_were_last_told_to_wait(box: PulseBox) -> None:
    box.beat(sent=5.0, answered=5.1, error=ErrorCode.rebalance_in_progress)
    box.beat(sent=8.0, answered=8.1, error=ErrorCode.rebalance_in_progress)
    box.start(2, joining_since=6.0, now=9.0)
    for second in range(9, 60, 2):
        box.beat(sent=second, answered=second + 0.1)
    assert box.lease == 8.0 + REBALANCE


def test_once_over_it_takes_a_join_to_believe_a_heartbeat(box: PulseBox) -> None:
    box.beat(sent=15.0, answered=15.1)  # by a coordinator that knows nobody yet, perhaps
    assert box.lease == SESSION
    assert box.pulse.doubtful
    box.start(1, joining_since=16.0, now=16.1)
    box.sync(sent_at=16.1)
    assert box.lease == 15.0 + SESSION
    assert not box.pulse.doubtful


def test_a_join_that_was_sent_before_the_doubt_settles_nothing(box: PulseBox) -> None:
    box.beat(sent=15.0, answered=15.1)
    box.start(1, joining_since=14.0, now=15.2)
    assert box.lease == SESSION
    assert box.pulse.doubtful


def test_nor_does_such_a_sync(box: PulseBox) -> None:
    box.beat(sent=15.0, answered=15.1)
    assert box.pulse.proves_too_little(15.05)
    box.sync(sent_at=15.05)
    assert box.lease == SESSION
    assert box.pulse.doubtful


def test_a_sync_that_was_sent_later_settles_it(box: PulseBox) -> None:
    box.beat(sent=15.0, answered=15.1)
    assert not box.pulse.proves_too_little(15.1)
    box.sync(sent_at=15.1)
    assert box.lease == 15.0 + SESSION
    assert not box.pulse.doubtful


def test_beats_that_are_doubted_meanwhile_do_not_put_that_off(box: PulseBox) -> None:
    """Or a sync that takes longer than they are apart would be sent again, for ever."""
    box.beat(sent=15.0, answered=15.1)
    box.beat(sent=16.0, answered=16.1)
    assert not box.pulse.proves_too_little(15.5)
    box.sync(sent_at=15.5)
    assert box.lease == 15.0 + SESSION


def test_but_one_whose_session_is_over_is_worth_nothing(box: PulseBox) -> None:
    box.beat(sent=15.0, answered=15.1)
    late = 15.1 + SESSION
    box.beat(sent=late, answered=late + 0.1)
    assert box.pulse.proves_too_little(late)
    box.sync(sent_at=late + 0.1)
    assert box.lease == late + SESSION


class TestANewcomerThatWaitedForASession:
    """For a member that takes long over a record, under an eager strategy, say."""

    @pytest.fixture
    def member(self) -> MemberBox:
        member = MemberBox.fresh(session_timeout=timedelta(seconds=SESSION))
        member.subscribe()
        member.find()
        member.now += SESSION + 1
        member.answer_join()
        member.next_beat()
        member.now += 0.1
        return member

    def test_syncs_again_once_a_beat_was_answered_and_begins_no_round(
        self, member: MemberBox
    ) -> None:
        beat = member.now - 0.1
        member.answer_beat()
        member.answer_sync(partitions("t", 0))
        first, again = member.sent(SendSync)
        assert again.request == first.request
        assert member.stands(State.SYNCING)
        member.now += 0.1
        member.answer_sync(partitions("t", 0))
        member.do_steps()
        assert member.stands(State.STABLE)
        assert member.last(ExtendLease).until == beat + SESSION
        for _ in range(5):
            member.beat()
        assert len(member.sent(SendJoin)) == 1

    def test_a_refused_second_sync_is_as_any_other(self, member: MemberBox) -> None:
        member.answer_beat()
        member.answer_sync(partitions("t", 0))
        member.answer_sync(error=ErrorCode.rebalance_in_progress)
        assert not member.actions()
        assert len(member.sent(SendJoin)) == 2

    def test_a_beat_that_is_answered_later_still_begins_one(self, member: MemberBox) -> None:
        member.answer_sync(partitions("t", 0))
        member.do_steps()
        assert member.stands(State.STABLE)
        member.answer_beat()
        assert len(member.sent(SendJoin)) == 2


def test_a_late_answer_does_not_shorten_it(box: PulseBox) -> None:
    box.beat(sent=6.0, answered=6.1)
    box.sync(sent_at=5.0)
    assert box.lease == 6.0 + SESSION


def test_out_of_the_group_there_is_none(box: PulseBox) -> None:
    box._note(box.pulse.stop())
    assert box.lease == float("-inf")
    assert box.pulse.deadline() is None
