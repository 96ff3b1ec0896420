"""Why a partition goes where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafka_coop.assignors.columns import NOBODY, Counts, Flags, Ints, loads
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
    code = _of_the_free(snapshot, known)
    at = np.flatnonzero((before != NOBODY) & (after != NOBODY))
    code[at] = _of_moves(snapshot, after, known, at)
    code[before == after] = _CODE[Reason.KEPT]
    code[after == NOBODY] = _CODE[Reason.LEFT_OUT]
    return code


def _of_moves(snapshot: Snapshot, after: Ints, known: Circumstances, at: Counts) -> Codes:
    """Why the partitions at these positions go from their owner to another."""
    before, members = snapshot.owned.owner, len(snapshot.members)
    giver, taker = before[at], after[at]
    had, gets = loads(before, members), loads(after, members)
    carried = np.zeros(members) if known.loads is None else known.loads
    return _first_that_holds(
        {
            Reason.DRAINING: known.draining[giver],
            Reason.NEW_MEMBER: known.new[taker],
            Reason.LOAD: carried[giver] > carried[taker],
            # From who had more to who had less: else a plan that spoils the balance had it, too.
            Reason.BALANCE: (had[giver] > had[taker])
            & (gets[giver] < had[giver])
            & (gets[taker] > had[taker]),
            Reason.RACK: known.nearer[at],
        },
        Reason.EXCHANGE,
    )


def _of_the_free(snapshot: Snapshot, known: Circumstances) -> Codes:
    """Why each position has no owner, if it has none."""
    claimed = snapshot.owned.claimants > 0
    claims = snapshot.owned.claims
    rightful = snapshot.subscribed(claims.member, claims.position)
    wanted = np.bincount(claims.position[rightful], minlength=snapshot.size) > 0
    return _first_that_holds(
        {
            Reason.GONE_MEMBER: known.gone,
            Reason.NEW_PARTITION: known.fresh,
            Reason.UNSUBSCRIBED: claimed & ~wanted,
            Reason.DISPUTED: claimed,
        },
        Reason.UNOWNED,
    )


def _first_that_holds(holds: Mapping[Reason, Flags], otherwise: Reason) -> Codes:
    codes: Codes = np.select([*holds.values()], [_CODE[r] for r in holds], _CODE[otherwise])
    return codes
