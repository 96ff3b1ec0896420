"""Our marks are on the wire, and other clients go on as if they were not.

`test_mixed_groups` shows that such groups work. Here the coordinator's own copy of the bytes is
read (DescribeGroups), so that it is certain that the marks were there to be ignored.
"""

from __future__ import annotations

import io
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.types import GroupId
from kio.serial import entity_reader, entity_writer
from mixed_support import Trial, trial, without_kafka_python

from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, split_marks
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.testing.cluster import KafkaCluster, wait_until
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


def described(group: Trial) -> dict[str, DescribedGroupMember]:
    """What the coordinator holds of each member, by its client id.

    It shows nothing of them while a round is under way, as a follow-up round may be.
    """
    found: list[DescribedGroup] = []

    def stable() -> bool:
        found[:] = [described_now(group)]
        return found[0].group_state == "Stable"

    wait_until(stable, f"{group.group} is not stable", timedelta(seconds=60))
    return {member.client_id: member for member in found[0].members}


def described_now(group: Trial) -> DescribedGroup:
    request = DescribeGroupsRequest(
        groups=(GroupId.parse(group.group),), include_authorized_operations=False
    )
    buffer = io.BytesIO()
    entity_writer(DescribeGroupsRequest)(buffer, request)
    payload = b"\0\x0f\0\x05\0\0\0\1\xff\xff\0" + buffer.getvalue()  # key, version, id, no client
    host, _, port = group.kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(len(payload).to_bytes(4, "big") + payload)
        with connection.makefile("rb") as stream:
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
    (found,) = entity_reader(DescribeGroupsResponse)(answer, 5)[0].groups  # after the header
    return found


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
        sent = decode_subscription(described(group)["ours"].member_metadata)
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
        got = decode_assignment(described(group)["theirs"].member_assignment)
        assert isinstance(split_marks(got.user_data)[1], AssignmentMarks)
        assert {i for _, i in got.partitions} == group.owned("theirs")
