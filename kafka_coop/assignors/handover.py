"""What of a plan is given out in this round, and what in the next (KIP-429).

A partition never goes from hand to hand within one round: its old owner hears in this one that it
has to revoke, and its new one is given it in the follow-up round. So between the two it lies idle
for as long as the last member takes to hear of that round.

Ours hear of it at once, for the leader tells them to beat often. Members of other clients hear of
it with their next heartbeat, 3 s later by default; but whoever had to revoke something joins again
unasked. So the leader *recalls* a partition of each of them that would otherwise sit still: it
gives up one, and gets it back in the follow-up round, for which it counts as the owner still
(`Snapshot`). That costs the partition the length of a round, where all that waits would have
waited for the heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot

_NONE: Counts = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handover:
    """One round of a plan's.

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


def at_once(plan: Plan) -> Handover:
    """An eager strategy's: its members revoked all before they joined."""
    waits = np.zeros(plan.snapshot.size, np.bool_)
    return Handover(owner=plan.owner, waits=waits, recalled=_NONE, follow_up=False)


def hand_over(plan: Plan, sluggish: Flags) -> Handover:
    """Withholds what somebody else may still be consuming.

    Args:
        plan: As it is meant to be in the end.
        sluggish: Per member whether it hears of a follow-up round by its own heartbeats alone.
    """
    waits = _transfers(plan)
    granted = np.where(waits, NOBODY, plan.owner) if waits.any() else plan.owner
    recalled = _recalls(plan.snapshot, granted, sluggish, most=int(waits.sum()))
    if recalled.size:
        waits[recalled] = True
        granted[recalled] = NOBODY
    follow_up = bool(waits.any() or _revocations(plan.snapshot, granted))
    return Handover(owner=granted, waits=waits, recalled=recalled, follow_up=follow_up)


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


def _recalls(snapshot: Snapshot, granted: Ints, sluggish: Flags, *, most: int) -> Counts:
    """Finds one partition each of the sluggish members that have nothing to revoke.

    None where that would not help, because one of them has nothing to give and all wait for its
    heartbeat anyway; nor where it would disturb more partitions than it serves.

    Args:
        snapshot: Of the group.
        granted: Per position who keeps or gets it, before anything is recalled.
        sluggish: Per member.
        most: How many may be recalled.
    """
    if not most or not sluggish.any():
        return _NONE
    claims = snapshot.owned.claims
    kept = granted[claims.position] == claims.member
    still = sluggish.copy()
    still[claims.member[~kept]] = False
    last = np.full(len(snapshot.members), -1, np.int64)
    np.maximum.at(last, claims.member[kept], claims.position[kept])
    recalled: Counts = np.sort(last[still])
    helps = recalled.size <= most and bool((recalled >= 0).all())
    return recalled if helps else _NONE


def _revocations(snapshot: Snapshot, granted: Ints) -> bool:
    """Whether somebody claims what it is not granted, and so has to revoke it."""
    owned = snapshot.owned
    if not owned.claims.member.size:
        return False
    kept = (owned.claimants == 1) & (owned.owner != NOBODY) & (granted == owned.owner)
    return bool(((owned.claimants > 0) & ~kept).any())
