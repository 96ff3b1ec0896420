"""What happened between two looks at a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_coop.cli.group import GroupLook
from kafka_coop.cli.words import plural, ranges
from kafka_coop.types import Partitions, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One entry of the timeline.

    Attributes:
        kind: ``state``, ``joined``, ``left``, ``leader``, ``rebalance``, ``unowned`` or
            ``trouble``.
        text: For people.
        facts: For programs.
    """

    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Timeline:
    """Compares each look with those before it.

    A broker shows assignments while a group is stable alone: ownership is compared between
    stable looks, however many others lie between them.
    """

    def __init__(self) -> None:
        self._last: GroupLook | None = None
        self._stable: GroupLook | None = None
        self._names: dict[str, str] = {}

    def see(self, look: GroupLook) -> list[Happened]:
        """Returns what happened since the last look; nothing at the first one."""
        before, self._last = self._last, look
        told = (self._stable, before, look)  # others are not told of any more
        self._names = {m.id: m.name for seen in told if seen for m in seen.members}
        happened: list[Happened] = []
        if before is not None:
            happened += self._of_members(before, look)
            happened += _of_state(before, look)
        if self._stable is None and look.owners:
            self._stable = look  # a watch that begins amid a rebalance sees how it was before
        if look.state == "Stable" or not look.members:
            if self._stable is not None:
                happened += self._of_ownership(self._stable, look)
            self._stable = look
        return happened

    def _of_members(self, before: GroupLook, now: GroupLook) -> Iterator[Happened]:
        was, are = {m.id for m in before.members}, {m.id for m in now.members}
        for kind, ids in (("joined", are - was), ("left", was - are)):
            for member in sorted(ids, key=self._names.__getitem__):
                name = self._names[member]
                yield Happened(
                    kind=kind, text=f"{name} {kind}", facts={"member": name, "member_id": member}
                )

    def _of_ownership(self, before: GroupLook, now: GroupLook) -> Iterator[Happened]:
        old = {p: m.id for p, m in before.owners.items()}
        new = {p: m.id for p, m in now.owners.items()}
        moved = {
            p: (old.get(p), new.get(p))
            for p in sorted(old.keys() | new.keys())
            if old.get(p) != new.get(p)
        }
        known = now.generation is not None and not before.untold
        renewed = known and before.generation != now.generation
        if moved or renewed:
            yield self._rebalance(moved, before, now)
        if now.unowned and now.members and now.unowned != before.unowned:
            text = f"nobody owns {ranges(Partitions.of(now.unowned))}"
            yield Happened(kind="unowned", text=text, facts={"partitions": len(now.unowned)})
        if before.leader is not None and now.leader is not None:
            old_id, new_id = before.leader.id, now.leader.id
            if old_id != new_id:
                name = now.leader.name
                facts = {"member": name, "member_id": new_id}
                yield Happened(kind="leader", text=f"{name} leads", facts=facts)

    def _rebalance(
        self,
        moved: Mapping[TopicPartition, tuple[str | None, str | None]],
        before: GroupLook,
        now: GroupLook,
    ) -> Happened:
        routes = Counter(moved.values())
        parts = [
            f"{self._name(a)} → {self._name(b)}: {n}"
            for (a, b), n in sorted(routes.items(), key=lambda r: (-r[1], str(r[0])))
        ]
        what = f"{plural(len(moved), 'partition')} moved" if moved else "nothing moved"
        detail = f" ({', '.join(parts)})" if parts else ""
        at = ""
        if now.generation is not None:
            at = f" to generation {now.generation}"
        return Happened(
            kind="rebalance",
            text=f"rebalance{at}: {what}{detail}",
            facts={
                "generation_before": _int(before.generation),
                "generation": _int(now.generation),
                "moved": [
                    {
                        "topic": p.topic,
                        "partition": p.partition,
                        "from": None if a is None else self._name(a),
                        "to": None if b is None else self._name(b),
                    }
                    for p, (a, b) in moved.items()
                ],
            },
        )

    def _name(self, member: str | None) -> str:
        return "nobody" if member is None else self._names.get(member, member)


def _of_state(before: GroupLook, now: GroupLook) -> Iterator[Happened]:
    if before.state != now.state:
        yield Happened(
            kind="state",
            text=f"{before.state} → {now.state}",
            facts={"before": before.state, "state": now.state},
        )


def _int(generation: int | None) -> int | None:
    return None if generation is None else int(generation)
