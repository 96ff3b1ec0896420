"""``stream-join-sticky``: KIP-315."""

from __future__ import annotations

import numpy as np

from kafka_coop.assignors.columns import NOBODY
from kafka_coop.assignors.plan import Plan
from kafka_coop.assignors.snapshot import Snapshot, snapshot_of
from kafka_coop.assignors.uniform import balance_uniform
from kafka_coop.protocol.user_data import (
    Claim,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from kafka_coop.types import (
    Assignment,
    Cluster,
    Generation,
    GroupMetadata,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
    Subscription,
)

_NUMBERS = ""
"""Partition numbers are assigned as those of one topic, and claimed under this name."""
_LAST_EPOCH = 2**31 - 1


class StreamJoinSticky:
    """The same partition number of all topics to one member, and as few numbers moved as can be.

    For joins of streams: records to be joined have the same key, hence the same partition
    number, hence the same member. Only numbers that every topic has are assigned: until all
    topics have been enlarged, the new partitions of some hold nothing that can be joined. A
    member gets its numbers of those topics that it subscribes to. So a topic that one member
    adds to the join is not loaded onto it whole, and what other members would have of it stays
    unassigned until they subscribe to it too.

    Members remember their numbers, with the epoch of the assignment that gave them: each
    assignment carries the largest epoch seen plus one, and where two members claim a number,
    the later epoch has it, so that a zombie does not take back what it lost. At the last epoch
    that there is, claims of equal age stay what they are: disputed.

    A plan that leaves numbers out says so in its notes, unless the one before it said the same: a
    topic that was created with one partition would else stop a group without a word.
    """

    name = "stream-join-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._last: Claim | None = None
        self._told = ""

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:  # noqa: ARG002  # the protocol's signature
        """Returns the numbers last assigned and their epoch; None before the first assignment."""
        return None if self._last is None else encode_sticky(self._last)

    def assign(self, cluster: Cluster, group: GroupSubscription) -> Plan:
        """Spreads the partition numbers evenly, then looks up what they mean in each topic."""
        snapshot = snapshot_of(cluster, group)
        said = {
            member: decode_sticky(data) or Claim()
            for member, data in zip(snapshot.members, snapshot.group.user_data, strict=True)
        }
        joined = int(snapshot.counts.min()) if snapshot.topics else 0
        numbers = Snapshot(Cluster(partitions={_NUMBERS: joined}), _as_one_topic(snapshot, said))
        member_of = balance_uniform(numbers, numbers.owned.owner)
        owner = np.full(snapshot.size, NOBODY, np.int32)
        at = np.flatnonzero(snapshot.number_of < joined)
        to = member_of[snapshot.number_of[at]]
        may = snapshot.subscribed(to, at)
        owner[at[may]] = to[may]
        epoch = min(max((c.generation for c in said.values()), default=-1) + 1, _LAST_EPOCH)
        told, self._told = self._told, _left_out(snapshot, joined)
        return Plan(
            snapshot,
            owner,
            user_data=encode_generation(Generation(epoch)),
            notes=(self._told,) if self._told not in ("", told) else (),
        )

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:  # noqa: ARG002  # the protocol's signature
        """Remembers the numbers, and the epoch that the leader sent with them."""
        self._last = Claim(
            owned=Partitions.of((_NUMBERS, number) for _, number in assignment.partitions),
            generation=decode_generation(assignment.user_data),
        )


def _left_out(snapshot: Snapshot, joined: int) -> str:
    """Says which topic is the shortest and what that costs; nothing where all are as long."""
    left = int((snapshot.counts - joined).sum())
    if not left:
        return ""
    shortest = snapshot.topics[int(snapshot.counts.argmin())]
    return (
        f"stream-join-sticky: topic {shortest!r} has the fewest partitions, {joined}; {left} "
        "partitions beyond that of other topics are assigned to nobody: enlarge it, or take it out "
        "of the subscription"
    )


def _as_one_topic(snapshot: Snapshot, said: dict[str, Claim]) -> dict[str, Subscription]:
    """Whoever subscribes to anything that exists, as a subscriber to the numbers."""
    takes_part = (snapshot.kind_sizes > 0)[snapshot.kinds].tolist()
    return {
        member: Subscription(
            topics=(_NUMBERS,) if takes else (),
            owned=said[member].owned,
            generation=said[member].generation,
        )
        for member, takes in zip(snapshot.members, takes_part, strict=True)
    }
