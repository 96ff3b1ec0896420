"""Two versions of kafka_coop in one group: today's, and the one before the wire last changed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from integration_support import PATIENCE, Member, members, publish, shared, unique, until
from test_integration_processes import Child, child, last_told, places, service

from kafka_coop.testing.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
ON_THE_WIRE = ("kafka_coop/protocol", "kafka_coop/membership", "kafka_coop/leader.py")
"""What a member says, and when; what it makes of the others' words."""

PARTITIONS = 4
SESSION = 10_000


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it was before the last commit that changed `ON_THE_WIRE`.

    Outside a clone of the repository there is none: a skip, and a failure where CI is set.
    """
    try:
        last = _git("log", "-1", "--format=%H", "--", *ON_THE_WIRE).decode().strip()
        archive = _git("archive", "--format=tar", f"{last}^", "kafka_coop")
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"not in a clone with its history: {error}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)
    return done.stdout


@pytest.mark.parametrize("leader", ["old", "new"])
def test_they_share_a_group_and_relieve_each_other(
    kafka: KafkaCluster, before: Path, leader: str
) -> None:
    """Who leads takes the other's wish to leave for what it is: a mark that it must know."""
    topic, group = unique("t"), unique("g")
    kafka.create_topic(topic, partitions=PARTITIONS)
    publish(kafka, topic, 20, *range(PARTITIONS))
    new = Member(kafka, group, session_timeout_ms=SESSION)
    if leader == "new":
        new.subscribe(topic)
        shared(topic, PARTITIONS, new)
    with (
        members(new),
        child(
            kafka, group, topic, program=service(), tree=before, session_timeout_ms=SESSION
        ) as old,
    ):
        if leader == "old":
            until(lambda: len(old.owned) == PARTITIONS)
            new.subscribe(topic)
        until(lambda: len(old.owned) == len(new.owned) == PARTITIONS // 2, new)
        assert old.heard("started") == [["started", str(before / "kafka_coop" / "__init__.py")]]
        publish(kafka, topic, 20, *range(PARTITIONS))
        until(lambda: all_read(old, new, 40), new)
        if leader == "old":
            new.consumer.drain(timedelta(seconds=PATIENCE))
            until(lambda: new.consumer.drained, new)
            assert not new.owned, "relieved"
            new.consumer.close()
            until(lambda: len(old.owned) == PARTITIONS)
        else:
            mine = old.owned
            old.send(signal.SIGTERM)
            until(lambda: old.process.poll() is not None, new)
            assert last_told(old)[0] == ["revoked", [[t, p] for t, p in mine]], "relieved"
            shared(topic, PARTITIONS, new)
        publish(kafka, topic, 1, *range(PARTITIONS))
        until(lambda: all_read(old, new, 41), *([new] if leader == "new" else []))
        assert len(old.heard("record")) + len(new.records) == 41 * PARTITIONS, "each of them once"
        assert not new.raised
        assert not new.calls("lost") + old.heard("lost")


def all_read(old: Child, new: Member, each: int) -> bool:
    wanted = {(p, o) for p in range(PARTITIONS) for o in range(each)}
    return wanted == places(old) | {(p, o) for _, p, o in new.records}
