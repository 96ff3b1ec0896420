"""What delivers records, whoever decides of which partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Message

from kafka_coop.protocol.messages import OffsetAndMetadata
from kafka_coop.types import Partitions, TopicPartition


class Fetching(Protocol):
    """`Fetcher`, or `GroupFetcher`: one librdkafka consumer. One thread at a time."""

    @property
    def over(self) -> bool:
        """Whether librdkafka has told of a fatal error; for any thread."""

    def expect(self, topics: Iterable[str], timeout: float) -> None:
        """Partitions of these topics may be added soon; may wait for the brokers once."""

    def add(self, starts: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Starts fetching these partitions, unpaused."""

    def remove(self, partitions: Partitions) -> None:
        """Stops fetching these partitions; no record of theirs is delivered after."""

    def assignment(self) -> Partitions:
        """The partitions being fetched, paused ones included."""

    def next(self, timeout: float) -> Message | None:
        """Delivers one message."""

    def take(self, n: int, timeout: float) -> list[Message]:
        """Delivers up to ``n`` messages."""

    def positions(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """Up to where records were delivered; those are left out for which it is not known."""

    def seek(self, of: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Goes on from another offset."""

    def pause(self, partitions: Partitions) -> None:
        """Delivers nothing of these partitions until `resume`."""

    def resume(self, partitions: Partitions) -> None:
        """Undoes `pause`."""

    def hold(self, held: bool) -> None:  # noqa: FBT001  # a switch with two positions
        """Stops or restarts the delivery of all partitions."""

    def close(self) -> None:
        """Frees librdkafka's threads. A second call does nothing."""

    def get_watermark_offsets(
        self,
        partition: confluent_kafka.TopicPartition,
        timeout: float = -1,
        *,
        cached: bool = False,
    ) -> tuple[int, int]:
        """The offsets of a partition's first record and of the one after its last."""

    def offsets_for_times(
        self, partitions: list[confluent_kafka.TopicPartition], timeout: float = -1
    ) -> list[confluent_kafka.TopicPartition]:
        """The first offset at or after a time, for each partition."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """`confluent_kafka.admin.ClusterMetadata`."""

    def cluster_id(self, timeout: float = -1) -> str:
        """The id of the cluster."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Sets what later authentications use."""
