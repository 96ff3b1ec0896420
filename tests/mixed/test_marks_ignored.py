"""Our marks are on the wire, and other clients go on as if they were not.

`test_mixed_clients` shows that such groups work. Here the coordinator's own copy of the bytes is
read (DescribeGroups), so that it is certain that the marks were there to be ignored.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.describe_groups.v5.response import DescribedGroupMember
from mixed_support import Trial, described, trial, without_kafka_python

from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, split_marks
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.trial.crew import CLIENTS
from kafka_coop.testing.trial.member import Client

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.verdict(late=True),
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("trial"),
]

OTHERS = [
    pytest.param(client, marks=[without_kafka_python] if client == "kafka-python" else [])
    for client in CLIENTS
    if client != "ours"
]


def members_of(group: Trial) -> dict[str, DescribedGroupMember]:
    """What the coordinator holds of each member, by its client id."""
    return {member.client_id: member for member in described(group).members}


@pytest.mark.parametrize("other", OTHERS)
def test_as_leaders_they_take_a_subscription_with_marks(
    kafka: KafkaCluster, tmp_path: Path, other: Client
) -> None:
    with trial(kafka, tmp_path) as group:
        group.start("theirs", other)
        group.until_shared("theirs")
        group.start("ours", "ours")
        group.until_shared("theirs", "ours")
        assert group.leader() == "theirs"
        sent = decode_subscription(members_of(group)["ours"].member_metadata)
        assert isinstance(split_marks(sent.user_data)[1], SubscriptionMarks)


@pytest.mark.parametrize("other", OTHERS)
def test_as_members_they_take_an_assignment_with_marks(
    kafka: KafkaCluster, tmp_path: Path, other: Client
) -> None:
    with trial(kafka, tmp_path) as group:
        group.start("ours", "ours")
        group.until_shared("ours")
        group.start("theirs", other)
        group.until_shared("ours", "theirs")
        assert group.leader() == "ours"
        got = decode_assignment(members_of(group)["theirs"].member_assignment)
        assert isinstance(split_marks(got.user_data)[1], AssignmentMarks)
        assert {i for _, i in got.partitions} == group.owned("theirs")
