"""Members of other kinds: our own machine behind a translator of its bytes.

What other clients do with the group's requests is the protocol, which our machine speaks too;
what tells them apart is what they say in it, and that they hold no lease. A dialect takes away
what only ours say (the marks, a claim's true generation) and puts in what theirs do.

So a peer here joins, revokes and leaves as ours does, and leads with our strategies. What peers'
own leaders do with our members' bytes is shown with the real clients, not here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.assignment import decode_assignment, encode_assignment
from kafka_coop.protocol.marks import split_marks
from kafka_coop.protocol.messages import GroupSynced, JoinGroup, SyncGroup
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.protocol.user_data import Claim, encode_generation, encode_sticky
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Assignment,
    Generation,
    Partitions,
    Subscription,
)


class UserData(enum.Enum):
    """What stands under the name cooperative-sticky."""

    GENERATION = "four bytes, as Java"
    STICKY = "sticky v1, as librdkafka and franz-go"
    EMPTY = "no bytes, as kafka-python"


class Malice(enum.Enum):
    """What a hostile member sends instead of a subscription, or as the leader of a plan."""

    GARBAGE = "bytes that are none"
    CUT_OFF = "a subscription's first half"
    EVERYTHING = "a claim on every partition, of a generation to come"
    DOUBLE = "a plan that gives everything to everybody"
    NOTHING = "a plan that gives nothing to anybody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one kind of client differs on the wire.

    Attributes:
        version: Of the Subscription it sends; 1 says no generation.
        newest_generation: It claims what it owns with the generation it has joined, applied or
            not (Java: after a missed SyncGroup its old claims look fresh).
        stale_claims: It comes back from an eviction claiming what it had (kafka-python).
        leased: It hands out no records without a lease, as ours; no other client has one.
    """

    name: str
    version: int = 3
    user_data: UserData = UserData.GENERATION
    newest_generation: bool = False
    stale_claims: bool = False
    leased: bool = False
    malice: Malice | None = None

    def join(self, request: JoinGroup, generation: Generation, had: Partitions) -> JoinGroup:
        """The request as this kind of client sends it.

        Args:
            request: Ours.
            generation: The member's present one.
            had: What it has lost and not been told about, as far as it is concerned.
        """
        protocols = tuple(
            (name, self._subscription(name, data, generation, had))
            for name, data in request.protocols
        )
        return replace(request, protocols=protocols)

    def sync(self, request: SyncGroup) -> SyncGroup:
        """A leader's plan, without marks; of a hostile one, what it has instead."""
        plan = {member: _unmarked(part) for member, part in request.assignments.items()}
        if self.malice in (Malice.DOUBLE, Malice.NOTHING):
            every = NO_PARTITIONS
            if self.malice is Malice.DOUBLE:
                for part in plan.values():
                    every |= decode_assignment(part).partitions
            plan = dict.fromkeys(plan, encode_assignment(Assignment(partitions=every)))
        return replace(request, assignments=plan)

    def synced(self, answer: GroupSynced) -> GroupSynced:
        """What this kind of client reads in the answer: no marks."""
        return replace(answer, assignment=_unmarked(answer.assignment))

    def _subscription(
        self, name: str, data: bytes, generation: Generation, had: Partitions
    ) -> bytes:
        said = decode_subscription(data)
        owned, age = said.owned, said.generation
        if owned and self.newest_generation:
            age = generation
        if not owned and self.stale_claims and generation == NO_GENERATION:
            owned = had.only(said.topics)
        if self.malice is Malice.EVERYTHING:
            owned = Partitions({topic: range(_MANY) for topic in said.topics})
            age = Generation(2**31 - 1)
        theirs = encode_subscription(
            Subscription(
                topics=said.topics,
                owned=owned,
                generation=age,
                user_data=self._user_data(name, owned, age),
                rack=said.rack,
            ),
            version=self.version,
        )
        match self.malice:
            case Malice.GARBAGE:
                return b"\xff" * 7
            case Malice.CUT_OFF:
                return theirs[: len(theirs) // 2]
            case _:
                return theirs

    def _user_data(self, name: str, owned: Partitions, generation: Generation) -> bytes | None:
        if name != "cooperative-sticky":
            return None
        match self.user_data:
            case UserData.GENERATION:
                return encode_generation(generation)
            case UserData.STICKY:
                claim = Claim(owned=owned, generation=generation)
                return encode_sticky(claim) if owned else None
            case UserData.EMPTY:
                return b""


def _unmarked(plan: bytes) -> bytes:
    if not plan:
        return plan
    try:
        assignment = decode_assignment(plan)
    except MalformedDataError:
        return plan
    user_data, _ = split_marks(assignment.user_data)
    return encode_assignment(replace(assignment, user_data=user_data or b""))


_MANY = 8

DIALECTS: Mapping[str, Dialect] = {
    d.name: d
    for d in (
        Dialect(name="java", newest_generation=True),
        Dialect(name="librdkafka", user_data=UserData.STICKY),
        Dialect(name="kafka-python", version=1, user_data=UserData.EMPTY, stale_claims=True),
        Dialect(name="garbage", malice=Malice.GARBAGE),
        Dialect(name="cut-off", malice=Malice.CUT_OFF),
        Dialect(name="greedy", malice=Malice.EVERYTHING),
        Dialect(name="doubling", malice=Malice.DOUBLE),
        Dialect(name="withholding", malice=Malice.NOTHING),
    )
}
"""By name. The last five are nobody's: hostile members, and hostile leaders."""

PEERS = ("java", "librdkafka", "kafka-python")
HARMLESS = ("garbage", "cut-off")
"""Hostile members that keep no invariant from the others."""
