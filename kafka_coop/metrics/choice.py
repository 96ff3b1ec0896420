"""What a group runs on instead of what this member asked for: silent otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.types import Assignor, RebalanceProtocol


class StrategyChoice:
    """Says once for each change that the group does not run as this member is configured.

    None of these is an error: each is what an upgrade looks like half-way (KIP-429's two rolling
    bounces), and each costs the group dearly when it is forgotten there.

    Args:
        assignors: This member's, most preferred first; none where the broker is to assign, by
            the member's own choice (KIP-848): it prefers none of them then, and nothing is said.
    """

    def __init__(self, assignors: Sequence[Assignor]) -> None:
        self._preferred = assignors[0].name if assignors else ""
        self._cooperative: Mapping[str, bool] = {
            a.name: RebalanceProtocol.COOPERATIVE in a.supported_protocols for a in assignors
        }
        self._told: str | None = None

    def news(self, record: RebalanceRecord) -> str | None:
        """What to tell the operator of a round, if it is not what was told before."""
        if record.error is not None or record.protocol_name is None or not self._preferred:
            return None
        text = self._explain(record)
        if text == self._told:
            return None
        self._told = text
        return text

    def _explain(self, record: RebalanceRecord) -> str | None:
        group, chosen = record.group_id, record.protocol_name or ""
        if record.broker_assigns:
            return (
                f"group {group!r}: the broker assigns partitions, not {chosen!r}: a member with"
                " group.protocol=consumer (KIP-848) has made it a group of the new protocol."
                " Give this group.id to members of one protocol"
            )
        cooperative = self._cooperative.get(chosen, False)
        said = []
        # What is gained over an eager strategy is nothing to be put right.
        if chosen != self._preferred and (self._cooperative[self._preferred] or not cooperative):
            said.append(
                f"group {group!r} runs on {chosen!r}, not on {self._preferred!r}, which this member"
                " prefers: some member does not list it, or more of them prefer the other. It"
                " changes when the last of them is restarted with the new setting"
            )
        if cooperative and not record.cooperative:
            eager = ", ".join(self._names(cooperative=False))
            said.append(
                f"group {group!r} runs on {chosen!r}, yet this member gives everything up in each"
                f" rebalance, for it also lists {eager}: once all members list {chosen!r}, restart"
                f" them without {eager}"
            )
        better = self._names(cooperative=True)
        if chosen == self._preferred and not cooperative and better:
            # Java's own default is such a list: what it waits for is the second rolling bounce.
            said.append(
                f"group {group!r} runs on {chosen!r}, which stops all partitions in each"
                f" rebalance, for this member lists it before {', '.join(better)}: list"
                f" {better[0]!r} first, and once all members list it, restart them with it alone"
            )
        return ". ".join(said) or None

    def _names(self, *, cooperative: bool) -> list[str]:
        """Of this member's strategies, most preferred first."""
        return [name for name, own in self._cooperative.items() if own is cooperative]
