"""A look at a group where a broker that is not its coordinator does not answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.cli.app import run
from kafka_coop.cli.exits import Exit
from kafka_coop.testing.local import LocalKafka
from kafka_coop.testing.proxy import Weather

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def kafka() -> Iterator[LocalKafka]:
    one_coordinator = {"offsets.topic.num.partitions": "1"}
    with LocalKafka(brokers=2, proxied=True, properties=one_coordinator) as cluster:
        cluster.create_topic("t", partitions=4)
        yield cluster


def test_the_coordinator_tells_members_and_what_they_own(
    kafka: LocalKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["g", "-b", kafka.bootstrap_servers, "--timeout", "10"]
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "client.id": "one"}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        consumer.subscribe(["t"])
        while len(consumer.assignment()) < 4:
            consumer.poll(0.1)
        assert run(["describe", *asked, "--json"]) == Exit.OK
        before = json.loads(capsys.readouterr().out)
        (coordinator,) = re.findall(r"\(broker (\d)\)", before["coordinator"])
        silent = 3 - int(coordinator)
        kafka.proxy(silent).set(Weather(silent=True))
        assert run(["describe", *asked, "--json"]) == Exit.OK
        after = json.loads(capsys.readouterr().out)
        assert run(["describe", "nope", *asked[1:]]) == Exit.NO_SUCH_GROUP
        assert "no group 'nope'" in capsys.readouterr().err
        kafka.proxy(silent).heal()
    told = ("group", "state", "type", "assignor", "coordinator", "unowned")
    assert {k: after[k] for k in told} == {k: before[k] for k in told}
    for known, now in zip(before["members"], after["members"], strict=True):
        assert {k: now[k] for k in ("member_id", "host", "assigned")} == {
            k: known[k] for k in ("member_id", "host", "assigned")
        }
        assert now["topics"] is None
    assert before["subscriptions_unknown_because"] is None
    assert "some do not answer" in after["subscriptions_unknown_because"]
    assert "some do not answer" in after["next_rebalance_unknown_because"]
