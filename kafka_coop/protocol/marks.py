"""What kafka_coop's members tell each other: a trailer behind the user data.

    user data as the strategy's peers expect it
    fields          each: uint8 tag, uint32 length, that many bytes
    footer          uint8 user data was  (0 as it stands, 1 absent, 2 empty)
                    uint8 kind           (1 subscription, 2 assignment)
                    uint8 version
                    uint32 length of the fields
                    uint32 CRC-32 of everything before it, the user data included
                    8 bytes magic

All integers are big-endian. The trailer is found from the end, so it does not depend on what
stands before it. The footer's layout never changes; a version only adds fields, or bytes at a
field's end. A reader skips what it does not know and fills in what is missing, so members of
different versions share a group both ways.

**Why peers don't mind.** In an assignment no peer's built-in strategy looks at the user data:
Java's, librdkafka's and franz-go's `onAssignment` use partitions and generation alone,
kafka-python's likewise. In a subscription they read from the front and stop where their layout
ends:

- Java, cooperative-sticky: an int32 generation, only if the Subscription carries none; sticky:
  the v1 struct. `Struct` readers leave trailing bytes alone.
- librdkafka (2.16): keeps the user data and never reads it; its sticky strategies go by the
  Subscription's owned partitions and generation.
- franz-go: sticky v1, only if the Subscription carries no generation or the strategy is eager;
  its reader objects to missing bytes, never to further ones.
- kafka-python (3.0): cooperative-sticky ignores user data; sticky reads v1 from a stream.
- Sarama is the exception: its eager "sticky" refuses bytes after v1, and its leader then fails
  the round. Eager strategies need no marks (nothing is handed over in a second round), so leave
  them off there: without `append_marks` the bytes are exactly Java's.

Absent or empty user data can't stay so with a trailer behind it: it becomes sticky v1's "no
partitions, no generation", eight bytes that Java's cooperative-sticky reads as generation 0 of
nothing. The footer remembers what it was.

**Why nobody's bytes are taken for a trailer.** By chance 64 bits of magic and 32 of checksum
must fit. By layout they can't: sticky v1 ends with a generation, sticky v0 with a partition or
a length, both at least -1, and the magic's last four bytes are an int32 below that; Java's
cooperative-sticky is shorter than a footer. A peer that echoes our bytes behind other ones
breaks the checksum. None of this is a signature: a member that lies may write any marks, and
gains no more than by lying in its subscription.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

import numpy as np

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.primitives import encode_string, read_nullable_string
from kafka_coop.protocol.topic_partitions import decode_topic_partitions, encode_topic_partitions
from kafka_coop.protocol.user_data import decode_generation, encode_generation
from kafka_coop.types import Generation, Partitions, TopicPartition

VERSION = 1

_MAGIC = b"\xabkco\xbcop\xab"
_FIELD = struct.Struct(">BI")
_FOOTER = struct.Struct(">BBBII8s")
_UNCHECKED_BYTES = 4 + len(_MAGIC)
"""The footer's end that the checksum can't cover: itself and the magic."""

_AS_IT_STANDS, _ABSENT, _EMPTY = 0, 1, 2
_NOTHING = b"\0\0\0\0\xff\xff\xff\xff"
"""Sticky v1: no topics, generation -1."""

_SUBSCRIPTION, _ASSIGNMENT = 1, 2
_REJOIN, _DRAINING, _LOAD, _BUSY = 1, 2, 3, 4
_FOLLOW_UP, _HEARTBEAT_INTERVAL, _LEADS, _RECALLED, _AHEAD = 16, 17, 18, 19, 20

_COUNT = struct.Struct(">Q")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionMarks:
    """What a member tells the leader.

    Attributes:
        rejoin: Counts the rejoins that this member forced. The coordinator starts no round for
            a follower that joins with unchanged bytes (KAFKA-10455).
        draining: Give this member nothing new and move away what it has: it is about to leave.
        load: What partitions cost, in a unit that the group agrees on. Kept to seven digits.
        busy: This member's user does not poll, and will most likely take long to give anything up.
    """

    rejoin: int = 0
    draining: bool = False
    load: Mapping[TopicPartition, float] = field(default_factory=dict)
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentMarks:
    """What the leader tells a member.

    Attributes:
        follow_up: Another round must come, because partitions have to be revoked first. Who has
            none to revoke beats often until told that it has begun, or, if so marked, goes ahead.
        ahead: Who has none to revoke joins the follow-up round before anybody has begun it.
        heartbeat_interval: How often to beat otherwise; None: no suggestion. To the microsecond.
        leads: In the leader's own assignment alone: the generation that it leads. Brokers tell
            nobody but the members who leads; so whoever describes the group can see it.
        recalled: To members of ours alone: member id -> what it was to give up only so that it
            joins again at once. Whoever leads the next round gives it back
            (`kafka_coop.assignors.withholding`).
    """

    follow_up: bool = False
    ahead: bool = False
    heartbeat_interval: timedelta | None = None
    leads: Generation | None = None
    recalled: Mapping[str, Partitions] = field(default_factory=dict)


Marks = SubscriptionMarks | AssignmentMarks


def append_marks(user_data: bytes | None, marks: Marks) -> bytes:
    """Returns the user data with the marks behind it."""
    match marks:
        case SubscriptionMarks():
            kind, fields = _SUBSCRIPTION, _subscription_fields(marks)
        case AssignmentMarks():
            kind, fields = _ASSIGNMENT, _assignment_fields(marks)
        case _:
            assert_never(marks)
    was = _AS_IT_STANDS if user_data else _ABSENT if user_data is None else _EMPTY
    body = b"".join(_FIELD.pack(tag, len(value)) + value for tag, value in fields.items())
    before = (user_data or _NOTHING) + body
    footer = _FOOTER.pack(was, kind, VERSION, len(body), 0, _MAGIC)
    checksum = zlib.crc32(before + footer[:-_UNCHECKED_BYTES])
    return before + _FOOTER.pack(was, kind, VERSION, len(body), checksum, _MAGIC)


def split_marks(data: bytes | None) -> tuple[bytes | None, Marks | None]:
    """Takes the marks off.

    Returns:
        The user data as it was before `append_marks`, and the marks. Bytes without a trailer
        come back as they are, with None; so does the user data before a trailer of a kind that
        this version does not know.
    """
    if data is None or not data.endswith(_MAGIC) or len(data) < _FOOTER.size:
        return data, None
    footer = len(data) - _FOOTER.size
    was, kind, _, length, checksum, _ = _FOOTER.unpack_from(data, footer)
    if length > footer or zlib.crc32(data[:-_UNCHECKED_BYTES]) != checksum:
        return data, None
    user_data: bytes | None = data[: footer - length]
    if was != _AS_IT_STANDS:
        if user_data != _NOTHING:
            return data, None
        user_data = None if was == _ABSENT else b""
    fields = dict(_fields(data[footer - length : footer]))
    if kind == _SUBSCRIPTION:
        return user_data, _subscription_marks(fields)
    return user_data, _assignment_marks(fields) if kind == _ASSIGNMENT else None


def _fields(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and value of each field, up to where the bytes make no sense."""
    at = 0
    while at + _FIELD.size <= len(body):
        tag, length = _FIELD.unpack_from(body, at)
        at += _FIELD.size
        if length > len(body) - at:
            return
        yield tag, body[at : at + length]
        at += length


def _subscription_fields(marks: SubscriptionMarks) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    if marks.rejoin:
        fields[_REJOIN] = _COUNT.pack(marks.rejoin)
    if marks.draining:
        fields[_DRAINING] = b""
    if marks.load:
        fields[_LOAD] = _encode_load(marks.load)
    if marks.busy:
        fields[_BUSY] = b""
    return fields


def _subscription_marks(fields: Mapping[int, bytes]) -> SubscriptionMarks:
    return SubscriptionMarks(
        rejoin=_count(fields.get(_REJOIN)),
        draining=_DRAINING in fields,
        load=_decode_load(fields.get(_LOAD, b"")),
        busy=_BUSY in fields,
    )


def _assignment_fields(marks: AssignmentMarks) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    if marks.follow_up:
        fields[_FOLLOW_UP] = b""
    if marks.ahead:
        fields[_AHEAD] = b""
    if marks.heartbeat_interval is not None:
        fields[_HEARTBEAT_INTERVAL] = _COUNT.pack(marks.heartbeat_interval // _MICROSECOND)
    if marks.leads is not None:
        fields[_LEADS] = encode_generation(marks.leads)
    if marks.recalled:
        fields[_RECALLED] = _encode_recalled(marks.recalled)
    return fields


def _assignment_marks(fields: Mapping[int, bytes]) -> AssignmentMarks:
    # Zero or missing is no suggestion. 64 bits of microseconds always fit a timedelta.
    interval = timedelta(microseconds=_count(fields.get(_HEARTBEAT_INTERVAL)))
    return AssignmentMarks(
        follow_up=_FOLLOW_UP in fields,
        ahead=_AHEAD in fields,
        heartbeat_interval=interval or None,
        leads=decode_generation(fields[_LEADS]) if _LEADS in fields else None,
        recalled=_decode_recalled(fields.get(_RECALLED, b"")),
    )


def _count(value: bytes | None) -> int:
    if value is None or len(value) < _COUNT.size:
        return 0
    (count,) = _COUNT.unpack_from(value)
    return int(count)


def _encode_load(load: Mapping[TopicPartition, float]) -> bytes:
    """The partitions, then a float32 for each, in their order."""
    partitions = Partitions.of(load)
    weights = np.array([load[p] for p in partitions], ">f4")
    return encode_topic_partitions(partitions) + weights.tobytes()


def _decode_load(value: bytes) -> dict[TopicPartition, float]:
    """The load, less what is no load: infinite, negative, not a number."""
    try:
        partitions, at = decode_topic_partitions(value)
    except MalformedDataError:
        return {}
    size = len(partitions)
    if len(value) - at < 4 * size:
        return {}
    weights = np.frombuffer(value, ">f4", size, at).tolist()
    return {p: w for p, w in zip(partitions, weights, strict=True) if w >= 0 and math.isfinite(w)}


def _encode_recalled(recalled: Mapping[str, Partitions]) -> bytes:
    """Members one after the other: the id, then its partitions."""
    return b"".join(encode_string(m) + encode_topic_partitions(p) for m, p in recalled.items())


def _decode_recalled(value: bytes) -> dict[str, Partitions]:
    """Nothing, where the bytes make no sense: it is a favour, and costs a move."""
    recalled: dict[str, Partitions] = {}
    at = 0
    try:
        while at < len(value):
            member, at = read_nullable_string(value, at)
            partitions, at = decode_topic_partitions(value, at)
            recalled[member or ""] = partitions
    except MalformedDataError:
        return {}
    return recalled
