"""Why a partition goes where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints
from kafka_coop.assignors.snapshot import Snapshot
from kafka_coop.planning.values import Reason

Codes: TypeAlias = npt.NDArray[np.uint8]
"""Per position the index of its reason in `ORDER`."""

ORDER = tuple(Reason)
_CODE = {reason: np.uint8(code) for code, reason in enumerate(ORDER)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Circumstances:
    """What is known besides who owns what and who is to own it.

    Attributes:
        draining, new: Per member.
        gone: Per position, whether its owner has left.
        fresh: Per position, whether the partition was not there before.
        loads: Per member what its partitions cost; None: the strategy does not look at it.
        nearer: Per position, whether its new owner is in a rack of its replicas and the old one
            is not.
    """

    draining: Flags
    new: Flags
    gone: Flags
    fresh: Flags
    loads: npt.NDArray[np.float64] | None
    nearer: Flags


def reasons(snapshot: Snapshot, after: Ints, known: Circumstances) -> Codes:
    """Finds the reason of every position; where several hold, the first in the order of writing."""
    before = snapshot.owned.owner
    code = np.full(snapshot.size, _CODE[Reason.EXCHANGE], np.uint8)
    moved = (before != NOBODY) & (after != NOBODY) & (before != after)
    at = np.flatnonzero(moved)
    giver, taker = before[at], after[at]
    had, gets = _counts(snapshot, before), _counts(snapshot, after)
    code[at] = np.select(
        [
            known.draining[giver],
            known.new[taker],
            np.zeros(at.size, np.bool_)
            if known.loads is None
            else known.loads[giver] > known.loads[taker],
            (gets[giver] < had[giver]) & (gets[taker] > had[taker]),
            known.nearer[at],
        ],
        [
            _CODE[r]
            for r in (
                Reason.DRAINING,
                Reason.NEW_MEMBER,
                Reason.LOAD,
                Reason.BALANCE,
                Reason.RACK,
            )
        ],
        _CODE[Reason.EXCHANGE],
    )
    claimed = snapshot.owned.claimants > 0
    claims = snapshot.owned.claims
    rightful = snapshot.subscribed(claims.member, claims.position)
    wanted = np.bincount(claims.position[rightful], minlength=snapshot.size) > 0
    free = np.select(
        [known.gone, known.fresh, claimed & ~wanted, claimed],
        [
            _CODE[r]
            for r in (
                Reason.GONE_MEMBER,
                Reason.NEW_PARTITION,
                Reason.UNSUBSCRIBED,
                Reason.DISPUTED,
            )
        ],
        _CODE[Reason.UNOWNED],
    )
    code[before == NOBODY] = free[before == NOBODY]
    code[before == after] = _CODE[Reason.KEPT]
    code[after == NOBODY] = _CODE[Reason.LEFT_OUT]
    return code


def _counts(snapshot: Snapshot, owner: Ints) -> Counts:
    counts: Counts = np.bincount(owner[owner >= 0], minlength=len(snapshot.members))
    return counts
