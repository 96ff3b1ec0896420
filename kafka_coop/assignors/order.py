"""The order of members where one has to be first."""

from __future__ import annotations

import numpy as np

from kafka_coop.assignors.columns import Ints
from kafka_coop.assignors.snapshot import Snapshot


def seating(snapshot: Snapshot) -> tuple[Ints, Ints]:
    """Seats static members first, by ``group.instance.id``, then the others by member id.

    A static member gets a new member id at each restart; seated by its instance id it gets back
    what it had (KIP-345). This is the order of Java's ``MemberInfo``, which compares strings
    by UTF-16 unit.

    Returns:
        Per seat the member's index, and per member its seat.
    """

    def key(index: int) -> tuple[bool, bytes]:
        member = snapshot.members[index]
        instance = snapshot.group.instance_ids[index]
        name = member if instance is None else instance
        return instance is None, name.encode("utf-16-be", "surrogatepass")

    seats = np.array(sorted(range(len(snapshot.members)), key=key), np.int32)
    seat_of = np.empty_like(seats)
    seat_of[seats] = np.arange(seats.size, dtype=np.int32)
    return seats, seat_of
