"""What of a plan is given out in this round, and what in the next (KIP-429).

A partition never goes from hand to hand within one round: its old owner hears in this one that it
has to revoke, and its new one is given it in the follow-up round. Between the two it lies idle, for
as long as the last member takes to hear of that round.

Ours are in it at once: the leader marks that it comes, and they go ahead, or beat every few
milliseconds until it has begun (`may_go_ahead`). Members of other clients hear of it with their
next heartbeat, 3 s later by default; but whoever had to revoke something joins again unasked. So
the leader *recalls* a partition from each of them that would otherwise sit still. Such a member
gives up one partition, joins, and gets it back in the follow-up round, for which it counts as the
owner still (`Snapshot`). One partition more is idle for the length of that round; without it, all
that waits would be idle until the last heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot

_MOST_ENTRIES = 512
"""Each member of ours is told of every recall (`AssignmentMarks.recalled`): so many are told of in
all assignments of a round together. The coordinator writes a group in one record, of a megabyte at
most by default; an entry has a member id, a topic and some bytes."""

_LONGEST_ID = 255

_NONE: Counts = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Granted:
    """What one round carries out of a plan.

    Attributes:
        owner: Per position who is granted it in this round, or `NOBODY`.
        waits: Per position whether it is withheld: planned for a member and not yet granted.
        recalled: Of these, the positions that go to nobody else: their owners are to join again.
        follow_up: Another round must come: something is withheld, or somebody has to revoke.
    """

    owner: Ints
    waits: Flags
    recalled: Counts
    follow_up: bool


def everything(plan: Plan) -> Granted:
    """Under an eager strategy: its members revoked all before they joined."""
    waits = np.zeros(plan.snapshot.size, np.bool_)
    return Granted(owner=plan.owner, waits=waits, recalled=_NONE, follow_up=False)


def withhold(plan: Plan, peers: Flags, *, recall: bool) -> Granted:
    """Grants what nobody else may still be consuming.

    Args:
        plan: As it is meant to be in the end.
        peers: Per member whether it is of another client.
        recall: Whether a follow-up round may be hurried by it. Never in the round after one that
            was: what waits again then waits for somebody who could not follow. His user is slow in
            on_revoke, or his SyncGroup came when the others, who had heard sooner, were in the
            next round already; and they would be each time.
    """
    waits = _transfers(plan)
    owner = np.where(waits, NOBODY, plan.owner)
    recalled = _NONE
    if recall and peers.any() and waits.any():
        most = min(int(waits.sum()), _MOST_ENTRIES // len(plan.snapshot.members))
        recalled = _recalls(plan.snapshot, owner, _sluggish(plan.snapshot, peers), most=most)
        waits[recalled] = True
        owner[recalled] = NOBODY
    follow_up = bool(waits.any() or _has_to_revoke(plan.snapshot, owner))
    return Granted(owner=owner, waits=waits, recalled=recalled, follow_up=follow_up)


def may_go_ahead(snapshot: Snapshot, granted: Granted, *, peers: Flags, busy: Flags) -> bool:
    """Whether who has nothing to revoke may join the follow-up round before anybody has begun it.

    Whoever revokes would begin it, and a heartbeat tell the others: half of the time between two of
    them, a heartbeat's way and then JoinGroup's would be part of the gap of all that moves. Parked,
    a JoinGroup costs nothing, as long as commits are taken; the caller knows whether they are.

    Not where the round would be over before those have revoked that it is for, and another one had
    to follow: where the user of one of them is busy, or a round that waits for him was announced
    before, as the caller knows. Nor beside members of other clients, which are waited for until
    their users poll. Nor where somebody gains what was nobody's: were its SyncGroup late, it would
    find the next round begun, and that would lie idle until the end of it. Who revokes, and is
    late, costs the group a round.

    Args:
        snapshot: Who claims what.
        granted: What this round gives out.
        peers: Per member whether it is of another client.
        busy: Per member whether its user is about to take long over what it has to give up.
    """
    claims = snapshot.owned.claims
    free = (granted.owner != NOBODY) & (snapshot.owned.claimants == 0)
    revokes = granted.owner[claims.position] != claims.member
    waits_long = peers.any() or busy[claims.member[revokes]].any()
    return granted.follow_up and not (waits_long or free.any())


def _transfers(plan: Plan) -> Flags:
    """Finds what must wait: partitions that somebody claims and that are to be another's.

    Every claim counts, beaten ones too: a zombie that missed a round may still be consuming what
    it says it owns, and only its own next assignment tells it to stop. The rightful owner alone
    keeps its partition whoever else claims it: taking it away would make nobody safer.
    """
    owned = plan.snapshot.owned
    if not owned.claims.member.size:
        return np.zeros(plan.snapshot.size, np.bool_)
    waits: Flags = (plan.owner != NOBODY) & (plan.owner != owned.owner) & (owned.claimants > 0)
    return waits


def _sluggish(snapshot: Snapshot, peers: Flags) -> Flags:
    """Whom no mark hurries to a follow-up round: members of other clients.

    Nobody where none is ours. A leader of ours is one itself: so the bytes are a test's or a plan's
    there, and are answered as Java would. Nor where a name is too long to be told to others.
    """
    names = (m for m, peer in zip(snapshot.members, peers.tolist(), strict=True) if peer)
    if peers.all() or any(len(name.encode()) > _LONGEST_ID for name in names):
        return np.zeros_like(peers)
    return peers


def _recalls(snapshot: Snapshot, owner: Ints, sluggish: Flags, *, most: int) -> Counts:
    """Finds one partition each of the sluggish members that have nothing to revoke.

    None where that would not help, because one of them has nothing to give and all wait for its
    heartbeat anyway; nor where it would take more than `most`. What others claim, too, is left
    alone: who is beaten now would be the only one in the next round, if it misses this one's end.
    """
    claims = snapshot.owned.claims
    kept = owner[claims.position] == claims.member
    unmoved = sluggish.copy()
    unmoved[claims.member[~kept]] = False
    sole = kept & unmoved[claims.member] & (snapshot.owned.claimants[claims.position] == 1)
    candidate = np.full(len(snapshot.members), -1, np.int64)
    np.maximum.at(candidate, claims.member[sole], claims.position[sole])
    recalled: Counts = np.sort(candidate[unmoved])
    helps = recalled.size <= most and bool((recalled >= 0).all())
    return recalled if helps else _NONE


def _has_to_revoke(snapshot: Snapshot, granted: Ints) -> bool:
    """Whether somebody claims what it is not granted."""
    owned = snapshot.owned
    if not owned.claims.member.size:
        return False
    kept = (owned.claimants == 1) & (owned.owner != NOBODY) & (granted == owned.owner)
    return bool(((owned.claimants > 0) & ~kept).any())
