"""Every metric of Java's coordinator has its row in docs/METRICS.md: asked of a living client."""

from __future__ import annotations

import re
from pathlib import Path

from java_member import JavaMember

from kafka_coop.testing.cluster import KafkaCluster

DOCS = Path(__file__).parents[2] / "docs" / "METRICS.md"


def test_every_metric_of_javas_coordinator_has_its_row(kafka: KafkaCluster) -> None:
    kafka.create_topic("java-metrics", partitions=1)
    with JavaMember(kafka.bootstrap_servers, "java-metrics", "java", "java-metrics") as member:
        member.poll_until_assigned()
        theirs = member.metric_names("consumer-coordinator-metrics")
    rows = set(re.findall(r"^\| `([a-z-]+)` \| `kafka_coop_", DOCS.read_text(), re.MULTILINE))
    assert len(theirs) > 30
    assert theirs - rows == set()
