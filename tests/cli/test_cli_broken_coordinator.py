"""A look at a group while its coordinator dies: an error, not the end of the process."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from kafka_coop.cli.connection import Connection
from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.cli.reading import _classic_members, look
from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.local import LocalKafka

_LOOKS = """
import sys
from confluent_kafka import KafkaException
from kafka_coop.cli.connection import Connection
from kafka_coop.cli.exits import CommandError
while True:
    try:
        Connection({"bootstrap.servers": sys.argv[1]}, timeout=5.0).committed("a-group")
    except (CommandError, KafkaException):
        print("failed", flush=True)
    else:
        print("looked", flush=True)
"""


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_coordinator_that_dies_does_not_end_the_process_that_looks() -> None:
    with LocalKafka() as kafka:
        kafka.create_topic("t", partitions=4)
        looks = subprocess.Popen(
            [sys.executable, "-c", _LOOKS, kafka.bootstrap_servers], stdout=subprocess.PIPE
        )
        try:
            lines = looks.stdout
            assert lines is not None
            wait_until(lambda: lines.readline() == b"looked\n", "it does not look")
            kafka.kill_broker(1)
            wait_until(lambda: lines.readline() == b"failed\n", "nothing fails")
            kafka.start_broker(1)
            wait_until(lambda: lines.readline() == b"looked\n", "it does not look again")
            assert looks.poll() is None
        finally:
            looks.kill()
            looks.communicate()


def test_members_that_their_coordinator_does_not_tell_are_not_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has begun to load the group anew, or broke off and another broker answered after it."""
    connection = Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout=1)
    loading = SimpleNamespace(
        error=KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        protocol_type="",
        state="",
        members=[],
    )
    for answer in ([loading], []):
        admin = SimpleNamespace(list_groups=lambda *_, a=answer, **__: a, poll=lambda _: 0)
        monkeypatch.setattr(connection, "admin", admin)
        with pytest.raises(CommandError) as failed:
            _classic_members(connection, "g", ())
        assert failed.value.status == Exit.UNREACHABLE


def test_a_description_is_asked_for_of_a_coordinator_alone_that_has_just_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A watch ended with librdkafka's assertion when its group's coordinator was killed."""
    connection = Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout=1)

    def away(_group: str) -> None:
        raise CommandError("the coordinator does not answer", Exit.UNREACHABLE)

    monkeypatch.setattr(connection, "committed", away)
    monkeypatch.setattr(connection, "admin", None)  # it is not asked for anything
    with pytest.raises(CommandError, match="the coordinator does not answer"):
        look(connection, "g")
