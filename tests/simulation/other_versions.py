"""Members of ours of other versions: their marks, written and read by a codec of this file.

Nothing here comes from `kafka_coop.protocol.marks`: a change there that other versions could not
follow is to fail a test. BEFORE is the version in which nobody went ahead to a follow-up round,
NEWER one that says more than we know.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafka_coop.protocol.assignment import decode_assignment, encode_assignment
from kafka_coop.protocol.messages import GroupSynced, JoinGroup, SyncGroup
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.simulation.dialects import Dialect
from kafka_coop.types import Generation, Partitions

Fields = Mapping[int, bytes]

SUBSCRIPTION, ASSIGNMENT = 1, 2
REJOIN, DRAINING, LOAD, BUSY = 1, 2, 3, 4
FOLLOW_UP, INTERVAL, LEADS, RECALLED, AHEAD = 16, 17, 18, 19, 20

_BEFORE = frozenset({REJOIN, DRAINING, LOAD, FOLLOW_UP, INTERVAL, LEADS, RECALLED})

_MAGIC = b"\xabkco\xbcop\xab"
_NOTHING = b"\0\0\0\0\xff\xff\xff\xff"
_FOOTER = struct.Struct(">BBBI")


def write(user_data: bytes | None, kind: int, fields: Fields, *, version: int = 1) -> bytes:
    """Puts a trailer behind the user data."""
    body = b"".join(struct.pack(">BI", tag, len(v)) + v for tag, v in fields.items())
    was = 0 if user_data else 1 if user_data is None else 2
    data = (user_data or _NOTHING) + body + _FOOTER.pack(was, kind, version, len(body))
    return data + struct.pack(">I", zlib.crc32(data)) + _MAGIC


def read(data: bytes | None) -> tuple[bytes | None, int, Fields]:
    """Takes a trailer off: the user data, the kind and the fields; kind 0 where there is none."""
    if data is None or not data.endswith(_MAGIC):
        return data, 0, {}
    signed = data[: -len(_MAGIC) - 4]
    assert zlib.crc32(signed).to_bytes(4, "big") == data[len(signed) : len(signed) + 4]
    was, kind, _, size = _FOOTER.unpack(signed[-_FOOTER.size :])
    end = len(signed) - _FOOTER.size
    fields, at = {}, end - size
    while at < end:
        tag, length = struct.unpack_from(">BI", signed, at)
        fields[tag] = signed[at + 5 : at + 5 + length]
        at += 5 + length
    return (signed[: end - size], None, b"")[was], kind, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Dialect):
    """A version of ours: what it says and hears, it says and hears in its own marks.

    Attributes:
        marks: Of the trailers it writes.
        knows: The fields that it writes, and that it makes something of.
        adds: Fields that only it knows.
        grows: Behind each field that has a value.
        sent, heard: The fields of all plans it sent as the leader, and of all it got.
    """

    marks: int = 1
    knows: frozenset[int]
    adds: Fields = field(default_factory=dict)
    grows: bytes = b""
    sent: list[Fields] = field(default_factory=list)
    heard: list[Fields] = field(default_factory=list)

    def join(self, request: JoinGroup, generation: Generation, had: Partitions) -> JoinGroup:
        said = [(name, decode_subscription(data)) for name, data in request.protocols]
        protocols = tuple(
            (name, encode_subscription(replace(s, user_data=self.say(s.user_data, SUBSCRIPTION))))
            for name, s in said
        )
        return replace(request, protocols=protocols)

    def sync(self, request: SyncGroup) -> SyncGroup:
        return replace(
            request,
            assignments={m: self._plan(p, said=True) for m, p in request.assignments.items()},
        )

    def synced(self, answer: GroupSynced) -> GroupSynced:
        return replace(answer, assignment=self._plan(answer.assignment, said=False))

    def say(self, data: bytes | None, kind: int) -> bytes | None:
        """What we say, as this version says it."""
        user_data, found, fields = read(data)
        if found != kind:
            return data  # no marks: an eager strategy
        own = {t: v + self.grows if v else v for t, v in fields.items() if t in self.knows}
        return write(user_data, kind, {**self.adds, **own}, version=self.marks)

    def hear(self, data: bytes, kind: int) -> bytes:
        """What is left of the marks where this version has read them, for our machine to read."""
        user_data, found, fields = read(data)
        if found != kind:
            return data
        self.heard.append(fields)
        return write(user_data, kind, {t: v for t, v in fields.items() if t in self.knows})

    def _plan(self, plan: bytes, *, said: bool) -> bytes:
        if not plan:
            return plan
        got = decode_assignment(plan)
        if said:
            user_data = self.say(got.user_data, ASSIGNMENT) or b""
            self.sent.append(read(user_data)[2])
        else:
            user_data = self.hear(got.user_data, ASSIGNMENT)
        return encode_assignment(replace(got, user_data=user_data))


def before() -> Version:
    """The version before this one."""
    return Version(name="before", leased=True, knows=_BEFORE)


def newer() -> Version:
    """A version to come: more fields, before and after the known ones, and longer ones."""
    return Version(
        name="newer",
        leased=True,
        marks=9,
        knows=(_BEFORE | {BUSY, AHEAD}) - {RECALLED},
        adds={0: b"", 15: b"what we can't know", 255: bytes(300)},
        grows=b", and a second value",
    )
