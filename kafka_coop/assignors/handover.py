"""What of a plan is given out in this round, and what in the next (KIP-429).

A partition never goes from hand to hand within one round: its old owner hears in this one that it
has to revoke, and its new one is given it in the follow-up round. So between the two it lies idle
for as long as the last member takes to hear of that round.

Ours hear of it at once: the leader marks that it comes, and they beat every few milliseconds.
Members of other clients hear of it with their next heartbeat, 3 s later by default; but whoever had
to revoke something joins again unasked. So the leader *recalls* a partition from each of them that
would otherwise sit still: it gives up one, and gets it back in the follow-up round, for which it
counts as the owner still (`Snapshot`). The partition is idle for that round, until the slowest of
those that have to revoke has done so, where all that waits would have waited for a heartbeat.
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


def at_once(plan: Plan) -> Handover:
    """An eager strategy's: its members revoked all before they joined."""
    waits = np.zeros(plan.snapshot.size, np.bool_)
    return Handover(owner=plan.owner, waits=waits, recalled=_NONE, follow_up=False)


def hand_over(plan: Plan, sluggish: Flags, revoking: Flags, *, most: int) -> Handover:
    """Withholds what somebody else may still be consuming.

    Args:
        plan: As it is meant to be in the end.
        sluggish: Per member whether it hears of a follow-up round by its own heartbeats alone,
            unless it has to revoke something.
        revoking: Per member whether its user is still about to let go what an earlier round took.
            Nothing is recalled for what waits for him: a follow-up round at once would find him no
            further, and so would the one after that.
        most: From how many something may be recalled.
    """
    waits = _transfers(plan)
    granted = np.where(waits, NOBODY, plan.owner) if waits.any() else plan.owner
    served = int((waits & ~_claimed_by(plan.snapshot, revoking)).sum())
    recalled = _recalls(plan.snapshot, granted, sluggish, most=min(most, served))
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


def _claimed_by(snapshot: Snapshot, members: Flags) -> Flags:
    claims = snapshot.owned.claims
    claimed = np.zeros(snapshot.size, np.bool_)
    claimed[claims.position[members[claims.member]]] = True
    return claimed


def _recalls(snapshot: Snapshot, granted: Ints, sluggish: Flags, *, most: int) -> Counts:
    """Finds one partition each of the sluggish members that have nothing to revoke.

    None where that would not help, because one of them has nothing to give and all wait for its
    heartbeat anyway; nor where it would take more than `most`. What others claim, too, is left
    alone: who is beaten now would be the only one in the next round, if it misses this one's end.
    """
    if not most or not sluggish.any():
        return _NONE
    claims = snapshot.owned.claims
    kept = granted[claims.position] == claims.member
    still = sluggish.copy()
    still[claims.member[~kept]] = False
    sole = kept & (snapshot.owned.claimants[claims.position] == 1)
    last = np.full(len(snapshot.members), -1, np.int64)
    np.maximum.at(last, claims.member[sole], claims.position[sole])
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
