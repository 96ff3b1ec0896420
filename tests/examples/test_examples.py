"""Each example, run as its first lines say; and what they promise."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from ast import literal_eval
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_coop.testing import EmbeddedKafka, check_assignor
from kafka_coop.testing.cluster import KafkaCluster, wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 300

pytestmark = pytest.mark.timeout(PATIENCE + 30)


def example(name: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(**more: str) -> dict[str, str]:
    bare = {k: v for k, v in os.environ.items() if k != "KAFKA"}
    return {**bare, "PYTHONPATH": str(ROOT), **more}


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return __import__(name)


def test_the_custom_assignor_shares_a_topic_and_takes_over() -> None:
    printed = example("custom_assignor")
    owned = [
        [int(n) for n in numbers.split(",")]
        for numbers in re.findall(r"^\S+ \[([\d, ]+)\]$", printed, re.MULTILINE)
    ]
    first, second, alone = owned
    assert sorted(first + second) == alone == list(range(12))


def test_a_topic_of_another_size_is_named(embedded: EmbeddedKafka) -> None:
    """Else the example waits in vain for partitions that there are not."""
    embedded.create_topic("orders", partitions=3)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "custom_assignor.py"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(KAFKA=embedded.bootstrap_servers),
        check=False,
    )
    assert done.returncode == 1
    assert "has a topic 'orders' of 3 partitions, and this example needs one of 12" in done.stderr
    assert "Traceback" not in done.stderr


def test_examples_agree_on_the_size_of_a_topic() -> None:
    """So that one can be run after the other, on the same broker."""
    asked = {
        number
        for file in EXAMPLES.glob("*.py")
        for number in re.findall(r"playground\(orders=(\d+)\)", file.read_text())
    }
    assert asked == {"12"}  # as orders.py creates it


def test_the_custom_assignor_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    check_assignor(imported("custom_assignor", monkeypatch).Rendezvous, examples=50)


def test_the_load_aware_group_relieves_the_member_with_the_heavy_partition() -> None:
    last = example("load_aware").splitlines()[-1]
    heavy, rest = re.findall(r"^by load, (\d+) being heavy: (.*)$", last)[0]
    owned = sorted(literal_eval(rest).values(), key=len)
    assert int(heavy) in owned[0]
    assert len(owned[0]) < len(owned[1])
    assert sorted(owned[0] + owned[1]) == list(range(8))


def test_exactly_once_runs_on_the_embedded_broker() -> None:
    assert example("exactly_once") == "1000 numbers doubled, their sum 249000\n"


@pytest.mark.verdict
def test_a_crash_between_results_and_offsets_repeats_nothing(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run dies with a transaction open; the second begins with rolling it back."""
    exactly_once = imported("exactly_once", monkeypatch)
    source, sink = (f"{kind}-{uuid4().hex}" for kind in ("numbers", "doubles"))
    kafka.create_topic(source, partitions=2)
    kafka.create_topic(sink, partitions=2)
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": source,
        "client.id": "doubler",
    }
    exactly_once.fill(config, source, range(2), records=200)
    seen: list[int] = []

    def crash(message: Message) -> bytes:
        seen.append(int(message.value() or b""))
        if len(seen) == 300:
            raise ZeroDivisionError
        return str(seen[-1]).encode()

    def work(message: Message) -> bytes:
        return bytes(message.value() or b"").strip()

    with pytest.raises(ZeroDivisionError):
        exactly_once.run(config, source, sink, crash, lambda: False)

    def finished() -> bool:
        committed = reader.committed([TopicPartition(source, p) for p in range(2)], timeout=30)
        return sum(p.offset for p in committed) == 400

    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": source,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        exactly_once.run(config, source, sink, work, finished)
        reader.assign([TopicPartition(sink, p, 0) for p in range(2)])
        got: list[int] = []
        while len(got) < 400:
            messages = reader.consume(500, 5)
            assert messages, f"{len(got)} results"
            got += [int(m.value() or b"") for m in messages]
    finally:
        reader.close()
    assert sorted(got) == sorted([*range(200)] * 2)


@pytest.mark.verdict
def test_what_the_service_failed_at_is_read_again(
    embedded: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is what came with it: it was never processed."""
    service = imported("service", monkeypatch)
    topic = f"orders-{uuid4().hex}"
    embedded.create_topic(topic)
    config = {
        "bootstrap.servers": embedded.bootstrap_servers,
        "group.id": topic,
        "session.timeout.ms": 6000,
    }
    service.fill(config, topic, [0], records=100)
    processed: list[int | None] = []

    def fail(message: Message) -> None:
        if len(processed) == 5:
            raise ZeroDivisionError
        processed.append(message.offset())

    with pytest.raises(ZeroDivisionError):
        service.serve(config, [topic], fail, threading.Event())
    reader = Consumer(config)
    (committed,) = reader.committed([TopicPartition(topic, 0)], timeout=30)
    reader.close()
    assert processed == list(range(committed.offset))


def test_the_service_ends_in_good_order_at_sigterm(embedded: EmbeddedKafka) -> None:
    embedded.create_topic("orders", partitions=12)
    service = subprocess.Popen(
        [sys.executable, EXAMPLES / "service.py"],
        env=environment(KAFKA=embedded.bootstrap_servers),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stderr is not None
        line = next(line for line in service.stderr if "metrics: " in line)
        url = line.split("metrics: ")[1].strip()

        def processed() -> bool:
            with urllib.request.urlopen(url, timeout=30) as page:
                return 'service_records_total{topic="orders"} 1200.0' in page.read().decode()

        wait_until(processed, "1,200 records were not processed", timedelta(seconds=PATIENCE / 2))
        with urllib.request.urlopen(url, timeout=30) as page:
            assert "kafka_coop_assigned_partitions" in page.read().decode()
        service.send_signal(signal.SIGTERM)
        rest = service.communicate(timeout=PATIENCE / 2)[1]
    finally:
        service.kill()
        service.wait()
    assert service.returncode == 0, rest
    assert "stopped in good order" in rest
    reader = Consumer(
        {"bootstrap.servers": embedded.bootstrap_servers, "group.id": "orders-service"}
    )
    done = reader.committed([TopicPartition("orders", p) for p in range(12)], timeout=30)
    reader.close()
    assert [p.offset for p in done] == [100] * 12


@pytest.mark.real_kafka  # the embedded one takes no orders to create topics
def test_orders_have_a_topic_of_their_own_making(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many partitions as asked for, not those that a broker gives to who publishes."""
    orders = imported("orders", monkeypatch)
    topic = f"orders-{uuid4().hex}"
    for _ in range(2):  # it is no error that the topic is there
        orders.create(kafka.bootstrap_servers, topic, 12)
    found = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(topic, 30)
    assert len(found.topics[topic].partitions) == 12
    with pytest.raises(KafkaException):
        orders.create(kafka.bootstrap_servers, "no topic's name", 12)
