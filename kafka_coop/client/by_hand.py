"""Partitions assigned by hand: fetched without a group's help, under made-up generations.

Real generations are positive. Those made up here count down from -2, so that a start looked up
for one manual assignment is never taken for another's, nor for the group's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID

from kafka_coop.backend.interface import Backend
from kafka_coop.client.commits import Commits
from kafka_coop.client.ownership import Ownership
from kafka_coop.fetching.native import require_start
from kafka_coop.kafka_errors import coop_exception
from kafka_coop.membership.failures import LOCAL_CONFLICT, LOCAL_INVALID_ARG
from kafka_coop.partitions import offsets_of, plain
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Generation, Partitions, TopicPartition

_UNSET = (OFFSET_INVALID, confluent_kafka.OFFSET_STORED)


class ByHand:
    """The manual assignment of one consumer."""

    def __init__(self, ownership: Ownership, backend: Backend, commits: Commits) -> None:
        self._commits = commits
        self._ownership = ownership
        self._backend = backend
        self._serial = -1

    @property
    def active(self) -> bool:
        """Whether something is assigned by hand."""
        return bool(self._ownership.taken_by_hand)

    def assign(self, partitions: list[Any]) -> None:
        """Fetches exactly these."""
        ownership = self._ownership
        wanted = Partitions.of(plain(partitions))
        chosen = chosen_starts(partitions)  # before anything is let go of: one may be no offset
        self._release(ownership.owned - wanted)
        self._release(ownership.owned & wanted)  # anew, from where they are told to start
        self._add(wanted, chosen)

    def add(self, partitions: list[Any]) -> None:
        """Fetches these too."""
        wanted = Partitions.of(plain(partitions))
        if twice := wanted & self._ownership.owned:
            raise coop_exception(LOCAL_CONFLICT, f"already assigned: {list(twice)}")
        self._add(wanted, chosen_starts(partitions))

    def _add(self, wanted: Partitions, chosen: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._serial -= 1
        generation = Generation(self._serial)
        self._ownership.own(wanted, generation, by_hand=True)
        self._ownership.override_starts(chosen)
        if rest := wanted - Partitions.of(chosen):
            awaited = partial(self._ownership.awaited, generation)
            self._backend.find_starts(rest, generation, awaited)

    def remove(self, partitions: list[Any]) -> None:
        """Stops fetching these."""
        gone = Partitions.of(plain(partitions))
        if unknown := gone - self._ownership.owned:
            raise coop_exception(LOCAL_INVALID_ARG, f"not assigned: {list(unknown)}")
        self._release(gone)

    def clear(self) -> None:
        """Fetches nothing."""
        self._release(self._ownership.owned)

    def let_go(self) -> None:
        """Ends what was assigned by hand. What a group has still to take is its to take."""
        self._release(self._ownership.taken_by_hand)

    def _release(self, partitions: Partitions) -> None:
        self._commits.commit_let_go(partitions & self._ownership.taken_by_hand)
        self._ownership.release(partitions)


def chosen_starts(partitions: Iterable[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Those for which the user said where to start.

    Raises:
        KafkaException: ``_INVALID_ARG``: that is no offset.
    """
    chosen = offsets_of([p for p in partitions if p.offset not in _UNSET])
    for partition, start in chosen.items():
        require_start(partition, start.offset)
    return chosen
