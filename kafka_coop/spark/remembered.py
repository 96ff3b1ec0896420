"""What a checkpoint knows besides positions. The end of each batch says it again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_coop.spark.holdings import Holdings
from kafka_coop.spark.identities import Identities
from kafka_coop.spark.offsets import Range, SourceOffset, TakenOver
from kafka_coop.types import TopicPartition


@dataclass(slots=True, kw_only=True)
class Remembered:
    """As it is now, for the batch that is planned next.

    Attributes:
        group: The group whose member reads.
        cluster: Where the group is; empty: it is not known.
        id: The checkpoint's name for itself, made once.
        topics: How many partitions each topic had when the checkpoint was begun.
        identities: Which topics these are.
        taken: How partitions came that others had read, by the last batch's end.
    """

    group: str
    cluster: str
    id: str
    topics: Mapping[str, int]
    identities: Identities
    taken: TakenOver

    def end(
        self,
        holdings: Holdings,
        chosen: Mapping[TopicPartition, Range],
        *,
        taken_over: Collection[TopicPartition],
        replays: bool,
    ) -> SourceOffset:
        """The end of a batch.

        Args:
            holdings: What is held when it is planned. The caller holds their lock.
            chosen: What it reads.
            taken_over: Partitions that came, and others had read before.
            replays: Whether such ones are read from a horizon on.
        """
        standing = {of: Range(hold.position, hold.position) for of, hold in holdings.held.items()}
        came = not standing.keys().isdisjoint(taken_over)
        return SourceOffset(
            group=self.group,
            id=self.id,
            run=holdings.run,
            cluster=self.cluster,
            topics=self.topics,
            ids=self.identities.known,
            ranges={**standing, **chosen},
            known=holdings.known_besides(),
            taken=TakenOver(
                bare=self.taken.bare or (came and not replays),
                replayed=self.taken.replayed or (came and replays),
            ),
        )

    def start_over(self, topics: Collection[str]) -> None:
        """These were made anew: all their partitions are new to the checkpoint."""
        self.topics = {topic: n for topic, n in self.topics.items() if topic not in topics}
