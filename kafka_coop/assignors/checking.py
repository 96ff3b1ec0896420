"""What a user gives: an assignor that can be one, and what it returned, made safe."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Flags, Ints
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Claims, Snapshot
from kafka_coop.types import (
    MAX_STRING_BYTES,
    Assignment,
    Assignor,
    GroupAssignment,
    Partitions,
    RebalanceProtocol,
)

EAGER_EVERYWHERE = ("range", "roundrobin", "sticky")
"""Names under which members of other clients give everything up before they join, and a leader of
theirs gives a partition to its new owner while the old one may have it still."""

_MEMBERS = ("name", "supported_protocols", "subscription_user_data", "assign", "on_assignment")


def what_is_wrong(assignor: object) -> str | None:
    """Says why this can't be an assignor; None where nothing keeps it from being one.

    With most of this no group could be joined, and nobody would be told.
    """
    kind = type(assignor).__name__
    if isinstance(assignor, type):  # it has its instances' methods, and so looks like one of them
        return f"{assignor.__name__} is a class; an instance is needed, {assignor.__name__}()"
    if not isinstance(assignor, Assignor):
        return f"{kind} lacks {', '.join(n for n in _MEMBERS if not hasattr(assignor, n))}"
    name: object = assignor.name
    if not isinstance(name, str) or not name:
        return f"{kind}.name is {name!r}, not a text"
    if not _is_sendable(name):
        return f"{kind}.name is {name[:40]!r}…, which no request can hold"
    protocols: object = assignor.supported_protocols
    if not (
        isinstance(protocols, Collection)
        and protocols
        and all(isinstance(p, RebalanceProtocol) for p in protocols)
    ):
        return f"{kind}.supported_protocols is {protocols!r}; name RebalanceProtocols"
    return _what_a_name_promises(name, protocols, kind)


def _what_a_name_promises(
    name: str, protocols: Collection[RebalanceProtocol], kind: str
) -> str | None:
    if name not in EAGER_EVERYWHERE or RebalanceProtocol.COOPERATIVE not in protocols:
        return None
    return (
        f"{kind}.name is {name!r}, an eager strategy's with every other client, and it supports "
        "COOPERATIVE: a leader of theirs would give out what this member still has. Give it a name "
        "of its own"
    )


def wrong_user_data(data: object) -> str | None:
    """Says why what `subscription_user_data` returned can't be sent; None where it can."""
    if data is None or isinstance(data, bytes | bytearray):
        return None
    return f"subscription_user_data returned {data!r}, which is neither bytes nor None"


def _is_sendable(name: str) -> bool:
    try:
        return len(name.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:
        return False


def checked(snapshot: Snapshot, plan: GroupAssignment) -> Plan:
    """Turns any mapping of assignments into a plan of this snapshot.

    What it had no right to assign is left out, with a note: members that are not there,
    partitions that do not exist, topics their member does not subscribe to (it would ask for
    another round, and get them again). A partition given to several goes to its owner if that
    is one of them, else to the first by member id.

    Raises:
        TypeError: It is no mapping of member ids to `Assignment`.
        ValueError: It is a `Plan` whose column is none of this snapshot.
    """
    if isinstance(plan, Plan) and plan.snapshot is snapshot:
        return _checked_column(plan)
    if not isinstance(plan, Mapping):
        raise TypeError(f"assign() returned {type(plan).__name__}, not a mapping of assignments")
    named = set(plan)
    given = [
        assignment_of(member, plan) if member in named else Assignment()
        for member in snapshot.members
    ]
    wanted = sum(len(a.partitions) for a in given)
    columns = snapshot.claims_of([a.partitions for a in given])
    notes = []
    if strangers := named - set(snapshot.members):
        notes.append(f"{len(strangers)} members of the plan are not in the group")
    if columns.member.size < wanted:
        notes.append(f"{wanted - columns.member.size} partitions of the plan do not exist")
    may = snapshot.subscribed(columns.member, columns.position)
    if not may.all():
        notes.append(_unsubscribed(may))
    kept = Claims(member=columns.member[may], position=columns.position[may])
    owner, repeats = _once(snapshot, kept)
    if repeats:
        notes.append(f"{repeats} partitions of the plan went to more than one member")
    return Plan(
        snapshot,
        owner,
        user_data={m: a.user_data for m, a in zip(snapshot.members, given, strict=True)},
        notes=tuple(notes),
    )


def _checked_column(plan: Plan) -> Plan:
    """A strategy derived from ours may have filled the column itself."""
    snapshot, owner = plan.snapshot, plan.owner
    members = len(snapshot.members)
    if owner.shape != (snapshot.size,) or owner.dtype != np.int32:
        raise ValueError(f"{snapshot.size} int32 are needed, not {owner.dtype} of {owner.shape}")
    if owner.size and not (owner.min() >= NOBODY and owner.max() < members):
        raise ValueError(f"owners are {owner.min()} to {owner.max()}; there are {members} members")
    for member in snapshot.members if not isinstance(plan.user_data, bytes) else ():
        data: object = plan.data_for(member)
        if not isinstance(data, bytes):
            raise TypeError(f"the user data of member {member!r} is {data!r}")
    notes: object = plan.notes
    if not isinstance(notes, tuple) or not all(isinstance(note, str) for note in notes):
        raise TypeError(f"the notes of the plan are {notes!r}, not a tuple of texts")
    at = np.flatnonzero(owner != NOBODY)
    may = snapshot.subscribed(owner[at], at)
    if may.all():
        return plan
    kept = owner.copy()
    kept[at[~may]] = NOBODY
    said = (*plan.notes, _unsubscribed(may))
    return Plan(snapshot, kept, user_data=plan.user_data, notes=said)


def _unsubscribed(may: Flags) -> str:
    return f"{int((~may).sum())} partitions went to members not subscribed to them"


def assignment_of(member: str, plan: GroupAssignment) -> Assignment:
    """Takes a member's assignment out of a plan.

    Raises:
        TypeError: It is none, or holds what is none of a member's.
    """
    assignment: object = plan[member]
    if not isinstance(assignment, Assignment):
        kind = type(assignment).__name__
        raise TypeError(f"what member {member!r} is given is of type {kind}, not Assignment")
    partitions: object = assignment.partitions
    if not isinstance(partitions, Partitions):
        kind = type(partitions).__name__
        raise TypeError(
            f"the partitions of member {member!r} are of type {kind}, not Partitions: make them "
            "with Partitions.of(pairs)"
        )
    data: object = assignment.user_data
    if not isinstance(data, bytes):
        raise TypeError(f"the user data of member {member!r} is {data!r}, not bytes")
    return assignment


def _once(snapshot: Snapshot, given: Claims) -> tuple[Ints, int]:
    """Picks one member per position; also counts the positions that had several."""
    planned = np.full(snapshot.size, NOBODY, np.int32)
    planned[given.position[::-1]] = given.member[::-1]  # the last write wins: the first member
    rightful = given.member == snapshot.owned.owner[given.position]
    planned[given.position[rightful]] = given.member[rightful]
    times = np.bincount(given.position, minlength=snapshot.size)
    return planned, int((times > 1).sum())
