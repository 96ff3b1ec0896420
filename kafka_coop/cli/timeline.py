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
        kind: ``state``, ``joined``, ``returned``, ``left``, ``leader``, ``rebalance``, ``unowned``
            or ``trouble``.
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
        self._names = {m.place: m.name for seen in told if seen for m in seen.members}
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
        was, are = ({m.place: m.id for m in look.members} for look in (before, now))
        returned = {p for p in was.keys() & are.keys() if was[p] != are[p]}
        for kind, places, text in (
            ("joined", are.keys() - was.keys(), "joined"),
            ("returned", returned, "came back to its place"),
            ("left", was.keys() - are.keys(), "left"),
        ):
            for place in sorted(places, key=self._names.__getitem__):
                name = self._names[place]
                facts = {"member": name, "member_id": are.get(place) or was[place]}
                yield Happened(kind=kind, text=f"{name} {text}", facts=facts)

    def _of_ownership(self, before: GroupLook, now: GroupLook) -> Iterator[Happened]:
        old = {p: m.place for p, m in before.owners.items()}
        new = {p: m.place for p, m in now.owners.items()}
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
        led, leads = before.leader, now.leader
        if led is not None and leads is not None and led.place != leads.place:
            facts = {"member": leads.name, "member_id": leads.id}
            yield Happened(kind="leader", text=f"{leads.name} leads", facts=facts)

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

    def _name(self, place: str | None) -> str:
        return "nobody" if place is None else self._names.get(place, place)


def _of_state(before: GroupLook, now: GroupLook) -> Iterator[Happened]:
    if before.state != now.state:
        yield Happened(
            kind="state",
            text=f"{before.state} → {now.state}",
            facts={"before": before.state, "state": now.state},
        )


def _int(generation: int | None) -> int | None:
    return None if generation is None else int(generation)
