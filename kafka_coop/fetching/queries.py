"""What a consumer can be asked, whatever it fetches. From any thread."""

from __future__ import annotations

from typing import Any

import confluent_kafka


class Queries:
    """Passed on to librdkafka as they are."""

    _consumer: confluent_kafka.Consumer

    def get_watermark_offsets(
        self,
        partition: confluent_kafka.TopicPartition,
        timeout: float = -1,
        *,
        cached: bool = False,
    ) -> tuple[int, int]:
        """The offsets of a partition's first record and of the one after its last.

        Args:
            partition: Any partition, fetched or not.
            timeout: Seconds to wait for the broker; negative: without end.
            cached: Answer from what the last fetch said, without asking.

        Raises:
            KafkaException: The brokers gave no answer.
        """
        return self._consumer.get_watermark_offsets(partition, timeout, cached)

    def offsets_for_times(
        self, partitions: list[confluent_kafka.TopicPartition], timeout: float = -1
    ) -> list[confluent_kafka.TopicPartition]:
        """The first offset at or after a time, for each partition.

        Args:
            partitions: With milliseconds since the epoch in place of offsets.
            timeout: Seconds to wait for the brokers; negative: without end.

        Raises:
            KafkaException: The brokers gave no answer.
        """
        return self._consumer.offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """`confluent_kafka.admin.ClusterMetadata` of one topic, or of all.

        Raises:
            KafkaException: The brokers gave no answer within `timeout` seconds.
        """
        return self._consumer.list_topics(topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """The id of the cluster, from its metadata (KIP-78).

        Raises:
            KafkaException: It was not learned within `timeout` seconds.
        """
        return self._consumer.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Sets what later SASL PLAIN and SCRAM authentications use.

        Raises:
            KafkaException: librdkafka refused them.
        """
        self._consumer.set_sasl_credentials(username, password)
