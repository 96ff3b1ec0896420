"""A member in a process of its own: ``python integration_child.py '{"bootstrap": …}'``.

Says what happens on stdout, one JSON list a line; ends when its stdin is closed. Uses public names
alone, but for a case or two: an older kafka_coop can be the member, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaException, Message
from prometheus_client import CollectorRegistry

import kafka_coop
from kafka_coop import CoopConsumer

_consumed: list[Message | None] = []


class Speaking(CoopConsumer):
    """Says when it begins to close: what came before was told while the program polled."""

    def close(self, *, drain: timedelta | None = None) -> None:
        say("closing")
        super().close(drain=drain)


def say(*what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    job = json.loads(sys.argv[1])
    consumer = Speaking(job["config"], registry=CollectorRegistry())
    stop = threading.Event()

    def wait_for_the_parent() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def tell(kind: str) -> Any:
        return lambda _, partitions: say(kind, [[p.topic, p.partition] for p in partitions])

    consumer.subscribe(
        job["topics"], on_assign=tell("assigned"), on_revoke=tell("revoked"), on_lost=tell("lost")
    )
    say("started", kafka_coop.__file__)
    if "program" in job:
        run(job["program"], consumer)
        return
    peculiar(job["how"], consumer)
    try:
        while not stop.is_set():
            with contextlib.suppress(KafkaException):
                step(consumer, job["how"])
    except KeyboardInterrupt:
        say_records(_consumed)
        say("interrupted")
    finally:
        consumer.close()
        say("closed")


def run(program: str, consumer: CoopConsumer) -> None:
    """Runs a document's program as it stands there: its names are `consumer` and `process`."""
    exec(program, {"consumer": consumer, "process": lambda message: say_records([message])})
    say("closed")


def peculiar(how: str, consumer: CoopConsumer) -> None:
    """What programs do that their watchdog must not take for their end."""
    if how in ("poll", "blocked", "consume"):
        return
    while not consumer.assignment():
        say_records([consumer.poll(0.02)])
    match how:
        case "fork" if os.fork() == 0:
            os.read(0, 1)  # not sys.stdin, whose lock another thread held at the fork
            os._exit(0)
        case "pipe":  # as daemons close every descriptor that they did not open
            consumer._backend._guard._process.stdin.close()  # type: ignore[attr-defined]
        case "exec":
            say("done")
            os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])
    say("done")


def step(consumer: CoopConsumer, how: str) -> None:
    """poll: in short steps. blocked, consume: until something comes, or a signal."""
    match how:
        case "poll" | "fork" | "pipe" | "exec":
            messages: list[Message | None] = [consumer.poll(0.02)]
        case "blocked":
            messages = [consumer.poll()]
        case _:
            messages = _consumed
            # No call in between: a Ctrl-C that strikes now finds them in this program's hands.
            messages += consumer.consume(1000)
    say_records(messages)
    messages.clear()


def say_records(messages: list[Message | None]) -> None:
    for message in messages:
        if message is not None and message.error() is None:
            say("record", message.topic(), message.partition(), message.offset())


if __name__ == "__main__":
    main()
