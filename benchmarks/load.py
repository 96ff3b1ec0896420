"""Records at a steady rate, by a producer that costs little where there are many partitions.

It is Java's, ``SteadyLoad.java``. librdkafka's asks a broker for one partition a request: 2,000
records a second, each of another partition than the last, are 2,000 requests a second. On a slow
machine the broker is seconds behind then, and what is measured is the queue before it. Java's asks
for all partitions at once, 250 times a second.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafka_coop.testing.ending import wait_or_kill
from kafka_coop.testing.java import client_program

_PATIENCE: Final = 150.0
"""Seconds to the end: what is sent is taken, or has failed, within two minutes by default."""


@contextlib.contextmanager
def load(
    bootstrap: str, topic: str, partitions: int, rate: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Produces for as long as the ``with`` block runs, to all partitions in turns.

    Args:
        bootstrap, topic: Where to.
        partitions: How many the topic has.
        rate: Records a second in all.

    Yields:
        The producer's process.

    Raises:
        LocalKafkaUnavailableError: Java, its client or the compiler is not to be had.
        RuntimeError: At the end of the block: the broker did not take all, or the load had ended
            before. What was measured then had fewer records than is said of it.
    """
    program = client_program(Path(__file__).with_name("SteadyLoad.java"))
    command = [*program, bootstrap, topic, str(partitions), str(rate)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        yield process
        early = process.poll() is not None
    finally:
        process.stdin.close()
        status = wait_or_kill(process, _PATIENCE)
    if early or status:
        when = "before it was told to" if early else "when it was told to"
        raise RuntimeError(f"the load ended {when}, with status {status}: see above")
