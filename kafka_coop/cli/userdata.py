"""Other members' bytes in words: user data, and our marks behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kafka_coop.assignors import known_names
from kafka_coop.cli.group import MemberLook
from kafka_coop.cli.words import ranges
from kafka_coop.printable import shown
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks
from kafka_coop.protocol.user_data import decode_claim

_SHOWN_BYTES: Final = 16


def explain(member: MemberLook, strategy: str) -> str:
    """What the member told its leader, and what the leader told it; empty: nothing."""
    return "; ".join((*_said(member, strategy), *_told(member)))


def as_json(member: MemberLook, strategy: str) -> dict[str, Any]:
    """The same as values. Bytes that nothing here reads are hexadecimal."""
    data = None if member.subscription is None else member.subscription.user_data
    claim = decode_claim(data) if data and strategy in known_names() else None
    return {
        "bytes": None if data is None else data.hex(),
        "generation": None if claim is None or claim.generation < 0 else int(claim.generation),
        "claims": {} if claim is None else {t: a.tolist() for t, a in claim.owned.items()},
        "marks": _marks(member.marks),
        "leader_marks": _leader_marks(member.assignment_marks),
    }


def _said(member: MemberLook, strategy: str) -> Iterator[str]:
    data = None if member.subscription is None else member.subscription.user_data
    if data:
        claim = decode_claim(data) if strategy in known_names() else None
        if claim is None:
            shown = data[:_SHOWN_BYTES].hex(" ", 4)
            more = " …" if len(data) > _SHOWN_BYTES else ""
            yield f"{len(data)} bytes of a strategy unknown here: {shown}{more}"
        else:
            if claim.generation >= 0:
                yield f"generation {claim.generation}"
            if claim.owned:
                yield f"claims {ranges(claim.owned)}"
    if member.marks is not None:
        yield from _member_marks(member.marks)


def _member_marks(marks: SubscriptionMarks) -> Iterator[str]:
    if marks.draining:
        yield "draining"
    if marks.busy:
        yield "its user is busy"
    if marks.rejoin:
        yield f"rejoins {marks.rejoin}"
    if marks.load:
        yield f"load {sum(marks.load.values()):g} on {len(marks.load)} partitions"


def _told(member: MemberLook) -> Iterator[str]:
    marks = member.assignment_marks
    if marks is None:
        return
    if marks.follow_up:
        begins = ", and to begin it" if marks.ahead else ""
        yield f"told that another round comes{begins}"
    for owner, partitions in marks.recalled.items():
        yield f"told that {shown(owner)} is to get back {ranges(partitions)}"


def heartbeats(members: Iterable[MemberLook]) -> str:
    """How often the leader asks members to beat; empty: it does not."""
    asked = {
        m.assignment_marks.heartbeat_interval
        for m in members
        if m.assignment_marks is not None and m.assignment_marks.heartbeat_interval is not None
    }
    return ", ".join(f"every {interval.total_seconds() * 1000:g} ms" for interval in sorted(asked))


def _marks(marks: SubscriptionMarks | None) -> dict[str, Any] | None:
    if marks is None:
        return None
    return {
        "rejoin": marks.rejoin,
        "draining": marks.draining,
        "busy": marks.busy,
        "load": [
            {"topic": p.topic, "partition": p.partition, "load": load}
            for p, load in sorted(marks.load.items())
        ],
    }


def _leader_marks(marks: AssignmentMarks | None) -> dict[str, Any] | None:
    if marks is None:
        return None
    interval = marks.heartbeat_interval
    return {
        "follow_up": marks.follow_up,
        "ahead": marks.ahead,
        "heartbeat_interval_seconds": None if interval is None else interval.total_seconds(),
        "leads": None if marks.leads is None else int(marks.leads),
        "recalled": {
            owner: {topic: numbers.tolist() for topic, numbers in partitions.items()}
            for owner, partitions in marks.recalled.items()
        },
    }
