"""What the membership thread leaves for the user's thread.

The user's thread looks here between slices of a poll. It reads two plain attributes on its
fast path (`lease_until`, `items`), which the interpreter makes atomic, and takes the lock only
when there is something to take.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_coop.backend.bell import Bell
from kafka_coop.membership.effects import Step
from kafka_coop.offsets.starts import Starts
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Generation, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsFound:
    """Where to start fetching partitions that were owned in ``generation``."""

    generation: Generation
    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    """The group's committed offsets."""
    reset: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    """There is none; where ``auto.offset.reset`` says to start instead."""
    without: tuple[TopicPartition, ...] = ()
    """No committed offset, and ``auto.offset.reset=error``."""
    failed: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


def newly_found(search: Starts, generation: Generation) -> StartsFound | None:
    """What the search has found since the last call, if anything."""
    if not (search.committed or search.listed_at or search.without or search.failed):
        return None
    found = StartsFound(
        generation=generation,
        committed=search.committed,
        reset=search.listed_at,
        without=tuple(search.without),
        failed=search.failed,
    )
    search.committed, search.listed_at, search.without, search.failed = {}, {}, [], {}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicErrors:
    """Subscribed topics that can't be had."""

    errors: Mapping[str, int]


Item: TypeAlias = Step | StartsFound | TopicErrors


class Mailbox:
    """Written by the membership thread, read by the user's.

    Attributes:
        items: What waits for the user's thread, in order. Its truth may be read without the lock.
        lease_until: On `kafka_coop.backend.clock`: no record of a group partition may be handed
            out later (invariant 1).
        expecting: Work may come at any moment: poll in short slices.
        wants_to_join: A round is to begin for the member, which may wait long for a coordinator.
        news_every: Seconds between two moments at which a round may begin.
        last_poll: Written by the user's thread: when it was last seen polling.
        last_delivery: The same: when it was last given a record, to the second.
        topics: What the member joins for, or is to; its partitions may be owned soon.
        left: The member has left for good.
    """

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.lease_until = float("-inf")
        self.expecting = False
        self.wants_to_join = False
        self.news_every = float("inf")
        self.last_poll = float("-inf")
        self.last_delivery = float("-inf")
        self.topics: tuple[str, ...] = ()
        self.left = False
        self._begun: Item | None = None
        self._lock = threading.Lock()
        self._bell = Bell()

    def put(self, item: Item) -> None:
        """Membership thread: leaves an item."""
        with self._lock:
            self.items.append(item)
        self._bell.ring()

    def withdraw(self, step_id: int) -> bool:
        """Membership thread: takes a step back. False: it was begun already."""
        with self._lock:
            for item in self.items:
                its = isinstance(item, Step) and item.step_id == step_id
                if its and item is not self._begun:
                    self.items.remove(item)
                    return True
            return False

    def begin(self) -> Item | None:
        """User's thread: the next item. A step that was begun can't be withdrawn any more.

        It stays until `done`: were it taken out here, a Ctrl-C that strikes on the way back would
        lose it, and the group would wait for a step that nobody carries out. So the same item
        comes again where the last one was not done.
        """
        with self._lock:
            self._begun = self.items[0] if self.items else None
            return self._begun

    def done(self) -> None:
        """User's thread: what was begun is carried out. Twice is once."""
        with self._lock:
            if self.items and self.items[0] is self._begun:
                self.items.popleft()
            self._begun = None

    def wait(self, timeout: float) -> None:
        """User's thread: waits for an item, or for the member to have left."""
        self._bell.hush()  # rung for what was taken since
        if not (self.items or self.left):
            self._bell.wait(timeout)

    def set_left(self) -> None:
        """Membership thread: the member has left for good."""
        self.left = True
        self._bell.ring()
