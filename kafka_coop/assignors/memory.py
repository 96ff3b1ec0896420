"""What a member's assignor remembers between rounds, and what it need not."""

from __future__ import annotations

from kafka_coop.protocol.user_data import encode_generation
from kafka_coop.types import NO_GENERATION, Assignment, Generation, GroupMetadata


class Forgetful:
    """For strategies whose plan depends on nothing before it: they send no user data."""

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:  # noqa: ARG002  # the protocol's signature
        """Returns None: there is nothing to tell the leader."""
        return None

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Does nothing: the next plan will not depend on this one."""


class RemembersGeneration:
    """Sends the generation of the last assignment, as Java's cooperative-sticky does.

    Leaders need it where a member's Subscription is too old to carry one (before KIP-792).
    """

    def __init__(self) -> None:
        self._generation: Generation = NO_GENERATION

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:  # noqa: ARG002  # the protocol's signature
        """Returns the generation last assigned under as a big-endian int32; -1 before that."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:  # noqa: ARG002  # the protocol's signature
        """Remembers the generation, for the next subscription."""
        self._generation = metadata.generation
