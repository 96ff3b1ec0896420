"""`watch`, where brokers go away and come back."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from cli_groups import settled
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # its stubs hide it
from rich.console import Console

from kafka_coop.cli import watching
from kafka_coop.cli.connection import Connection
from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.cli.group import GroupLook


def watched(monkeypatch: pytest.MonkeyPatch, looks: str, *, json_lines: bool) -> list[str]:
    """The lines of a watch whose looks succeed (+) or fail (-)."""
    answers = iter(looks)

    def look(_connection: Connection, _group: str) -> GroupLook:
        if next(answers) == "-":
            raise CommandError("can't reach broker:9092", Exit.UNREACHABLE)
        return settled("cooperative-sticky", {"t": 4}, {"a": ("t",)})

    monkeypatch.setattr(watching, "look", look)
    written = io.StringIO()
    status = watching.watch(
        Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout=1),
        "g",
        Console(file=written),
        interval=0.0,
        count=len(looks),
        json_lines=json_lines,
    )
    assert status == Exit.OK
    return written.getvalue().splitlines()


def test_a_look_that_failed_is_not_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = watched(monkeypatch, "+--+", json_lines=True)
    assert [json.loads(line)["event"] for line in lines] == ["look", "trouble", "look"]


def test_what_went_wrong_hours_ago_is_not_why_a_look_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked librdkafka for it: the looks since then succeeded."""
    connection = Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout=1)
    queued = [KafkaError(KafkaError._AUTHENTICATION), KafkaError(KafkaError._ALL_BROKERS_DOWN)]

    def poll(_timeout: float) -> int:
        connection._heard.extend(queued)
        queued.clear()
        return 0

    found = ClusterMetadata()
    answers = iter([KafkaException(KafkaError(KafkaError._TIMED_OUT)), found])

    def list_topics(*, timeout: float) -> object:
        answer = next(answers)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    monkeypatch.setattr(connection, "admin", SimpleNamespace(poll=poll, list_topics=list_topics))
    assert connection.metadata() is found


def test_the_group_is_told_again_when_brokers_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    state, trouble, again = (
        line.split(maxsplit=1)[1] for line in watched(monkeypatch, "++--++", json_lines=False)
    )
    assert trouble == "can't reach broker:9092"
    assert state == again == "Stable · 1 member · 4 partitions, 4 each · generation 3"
