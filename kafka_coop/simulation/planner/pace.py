"""How a member of ours hurries towards an announced follow-up round: asked of `Pulse` itself."""

from __future__ import annotations

from datetime import timedelta

from kafka_coop.assignors import resolve
from kafka_coop.leader import suggested_heartbeat_interval
from kafka_coop.membership.effects import SendHeartbeat
from kafka_coop.membership.events import HeartbeatAnswered
from kafka_coop.membership.pulse import Pulse
from kafka_coop.membership.settings import MemberSettings
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import HeartbeatAcked, Node
from kafka_coop.types import Generation, GroupMetadata, MemberId

_NODE = Node(node_id=1, host="broker", port=9092)


def suggested_interval(members: int, session_timeout: float) -> float:
    """Seconds between two beats of a member of ours, while nothing happens.

    For a minute after the last round; then it is `kafka_coop.membership.pulse.calm`.
    """
    return min(suggested_heartbeat_interval(members).total_seconds(), session_timeout / 3)


def hurried_beats(interval: float, session_timeout: float, until: float) -> list[float]:
    """When a member beats to which a follow-up round is announced at 0, up to ``until``.

    Args:
        interval: Its ordinary pace, seconds.
        session_timeout: Seconds.
        until: Seconds; the last beat comes no earlier.
    """
    settings = MemberSettings(
        group_id="plan",
        assignors=(resolve("cooperative-sticky"),),
        session_timeout=timedelta(seconds=session_timeout),
        heartbeat_interval=timedelta(seconds=interval),
    )
    tokens = iter(range(10**9))
    pulse = Pulse(settings, lambda: next(tokens))
    me = GroupMetadata(group_id="plan", generation=Generation(1), member_id=MemberId("m"))
    pulse.start(me, -interval, joining_since=-interval, join_sent_at=-interval)
    pulse.synced(0.0, 0.0)
    pulse.announce(0.0)
    beats: list[float] = []
    while not beats or beats[-1] < until:
        due = pulse.deadline()
        assert due is not None
        beats.append(max(due, 0.0))
        (sent,) = pulse.beat(_NODE, beats[-1])
        assert isinstance(sent, SendHeartbeat)
        answer = HeartbeatAnswered(token=sent.token, answer=HeartbeatAcked(error=ErrorCode.none))
        pulse.answered(answer, beats[-1])
    return beats
