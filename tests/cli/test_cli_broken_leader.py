"""A look at a group while the leader of a log breaks off."""

from __future__ import annotations

from kafka_coop.cli.connection import Connection
from kafka_coop.cli.reading import _ends
from kafka_coop.testing.embedded import DISCONNECT, EmbeddedKafka
from kafka_coop.types import Cluster, TopicPartition


def test_a_log_whose_leader_breaks_off_has_no_end_and_so_no_lag(embedded: EmbeddedKafka) -> None:
    """Librdkafka has no error then, and an end that is below what is committed."""
    embedded.create_topic("t", partitions=1)
    connection = Connection({"bootstrap.servers": embedded.bootstrap_servers}, timeout=30.0)
    connection.metadata()
    embedded.fail("ListOffsets", DISCONNECT)
    ends, unread = _ends(connection, Cluster(partitions={"t": 1}), [TopicPartition("t", 0)])
    assert not ends
    assert unread == "some logs' ends can't be read: Local: Broker transport failure"
