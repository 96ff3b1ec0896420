"""Two versions of kafka_coop in one group: today's, and the one before its marks last changed."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from integration_support import PATIENCE, Member, members, publish, shared, unique, until
from test_integration_processes import Child, child, last_told, places, service

from kafka_coop.testing.cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.verdict(late=True)]

ROOT = Path(__file__).parents[2]
MARKS = "kafka_coop/protocol/marks.py"
"""What kafka_coop's members alone tell each other. The rest is Kafka's and its other clients'."""

LAYOUT = r"^(VERSION|_[A-Z_]+(, _[A-Z_]+)*) = "
"""The lines that say it: fields' tags, their structs, the version. What else changes in the file
may leave every byte as it was."""

FORMATS = tuple(
    f"kafka_coop/protocol/{name}.py"
    for name in ("marks", "subscription", "assignment", "user_data")
)

_DEFINES = re.compile(LAYOUT).match

PARTITIONS = 4
SESSION = 10_000


@pytest.fixture(scope="module")
def other_marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was before the last commit that changed `LAYOUT`."""
    tree = _before(tmp_path_factory.mktemp("marks"), f"-G{LAYOUT}", "--", MARKS)
    assert _layout(ROOT) != _layout(tree), "these two say the same: not two versions, but one"
    return tree


@pytest.fixture(scope="module")
def other_codec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was before the last commit that touched `FORMATS`.

    What the two write is the same, for all that is known: the code that does so is not.
    """
    return _before(tmp_path_factory.mktemp("codec"), "--", *FORMATS)


def _before(folder: Path, *changed: str) -> Path:
    """A tree from the history; outside a clone a skip, and a failure where CI is set."""
    try:
        last = _git("log", "-1", "--format=%H", *changed).decode().strip()
        archive = _git("archive", "--format=zip", f"{last}^", "kafka_coop")
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"not in a clone with its history: {error}")
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)
    return folder


def _layout(tree: Path) -> set[str]:
    return {m.string for m in map(_DEFINES, (tree / MARKS).read_text().splitlines()) if m}


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)
    return done.stdout


@pytest.mark.parametrize(
    ("leader", "version"),
    [(leader, version) for leader in ("old", "new") for version in ("other_marks", "other_codec")],
)
def test_they_share_a_group_and_relieve_each_other(
    kafka: KafkaCluster, request: pytest.FixtureRequest, leader: str, version: str
) -> None:
    """Who leads takes the other's wish to leave for what it is: a mark that it must know."""
    before: Path = request.getfixturevalue(version)
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
        old.process.kill()  # a service ends with a signal, not with its parent


def all_read(old: Child, new: Member, each: int) -> bool:
    wanted = {(p, o) for p in range(PARTITIONS) for o in range(each)}
    return wanted == places(old) | {(p, o) for _, p, o in new.records}
