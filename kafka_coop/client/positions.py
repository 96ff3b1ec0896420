"""Where the user reads: position, seek, pause, resume, and how far behind the log's end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaException

from kafka_coop.backend.interface import Backend
from kafka_coop.client.ownership import Ownership
from kafka_coop.fetching.interface import Fetching
from kafka_coop.metrics.scrape import MemberSnapshot, PartitionProgress
from kafka_coop.partitions import offsets_of, plain, plain_one, with_offsets
from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import NO_GENERATION, Generation, Partitions, TopicPartition


class Positions:
    """Reads and moves the positions of the partitions owned. For any thread."""

    def __init__(self, ownership: Ownership, fetcher: Fetching) -> None:
        self._ownership = ownership
        self._fetcher = fetcher

    def position(self, partitions: list[Any]) -> list[confluent_kafka.TopicPartition]:
        """Each partition's next offset; ``OFFSET_INVALID`` where none is known yet."""
        wanted = plain(partitions)
        known = self._ownership.positions(Partitions.of(wanted))
        unknown = OffsetAndMetadata(offset=OFFSET_INVALID)
        return with_offsets({of: known.get(of, unknown) for of in wanted})

    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition owned, where it is known."""
        with self._ownership.lock:
            found = self._ownership.positions(self._ownership.owned)
        return {of: at.offset for of, at in found.items()}

    def seek(self, partition: Any) -> TopicPartition:
        """Goes on from ``partition.offset``; returns which partition it is."""
        of = plain_one(partition)
        self._ownership.seek(of, offsets_of([partition])[of])
        return of

    def pause(self, partitions: list[Any]) -> None:
        """Delivers nothing of these until `resume`, if they are owned."""
        wanted = Partitions.of(plain(partitions))
        with self._ownership.lock:
            self._ownership.pause(wanted & self._ownership.owned)

    def resume(self, partitions: list[Any]) -> None:
        """Undoes `pause`. What is not owned any more is not paused either."""
        wanted = Partitions.of(plain(partitions))
        with self._ownership.lock:
            self._ownership.resume(wanted & self._ownership.owned)

    def snapshot(self, backend: Backend) -> MemberSnapshot:
        """For a scrape of the metrics: must not wait for a poll of the user.

        Where another thread is inside librdkafka for long, for a partition's ends that a broker
        does not tell, say, no positions are known; the member is in its group all the same.
        """
        if not self._ownership.lock.try_within(0.1):
            return _standing(backend, backend.last_known().generation, {})
        progress = {}
        generation = NO_GENERATION
        try:
            generation = backend.metadata().generation  # it may take the lock, too: not after
            for of, at in self._ownership.positions(self._ownership.owned).items():
                native = confluent_kafka.TopicPartition(of.topic, of.partition)
                end = -1
                with contextlib.suppress(KafkaException):  # not known yet
                    end = self._fetcher.get_watermark_offsets(native, cached=True)[1]
                known = end if end >= 0 else None
                progress[of] = PartitionProgress(position=at.offset, end=known)
        except (KafkaException, RuntimeError):
            progress.clear()  # closed meanwhile
        finally:
            self._ownership.lock.release()
        return _standing(backend, generation, progress)


def _standing(
    backend: Backend,
    generation: Generation,
    progress: Mapping[TopicPartition, PartitionProgress],
) -> MemberSnapshot:
    unsettled = backend.mailbox.expecting or backend.mailbox.wants_to_join
    stable = generation >= 0 and not unsettled
    return MemberSnapshot(generation=generation, stable=stable, progress=progress)
