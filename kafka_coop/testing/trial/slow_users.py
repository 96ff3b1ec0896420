"""How often a user was slow in on_revoke, and how often the group went on meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_coop.testing.trial.journal import Event


def slow_revocations(journals: Mapping[str, Sequence[Event]]) -> tuple[int, int, int]:
    """How many returned; during how many the member came into a later round, and was evicted.

    The former is what `kafka_coop.membership.adopting` calls outliving a round: the member joined
    the others in the next one, as the owner of what its user had still to give up.
    """
    slow = outlived = evicted = 0
    for events in journals.values():
        called: Event | None = None
        for event in events:
            if event.kind == "W":
                called = event
            elif event.kind in "VL" and called is not None:
                slow += 1
                outlived += event.kind == "V" and event.generation > called.generation
                evicted += event.kind == "L"
                called = None
    return slow, outlived, evicted
