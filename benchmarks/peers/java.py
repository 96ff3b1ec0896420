"""The Java client's own classes, in a JVM: ``Peer.java``."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.peers.wire import Peer, PeerUnavailableError, Took, blob, string
from kafka_coop.protocol.user_data import Claim
from kafka_coop.testing.java import CLIENT_VERSION, client_libraries, compile_java, find_java
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError
from kafka_coop.types import NO_GENERATION, Generation, Partitions

VERSION: Final = CLIENT_VERSION
"""Of kafka-clients."""

_SOURCE: Final = Path(__file__).with_name("Peer.java")
_MAIN: Final = "org.apache.kafka.clients.consumer.internals.Peer"


class JavaPeer(Peer):
    """Java's leader, and its codecs as an oracle for ours.

    Args:
        options: For the JVM.

    Raises:
        PeerUnavailableError: There is no Java, or its classes are not to be had.
    """

    def __init__(self, *options: str) -> None:
        try:
            java, libraries = find_java(), client_libraries(VERSION)
            path = f"{compile_java(_SOURCE, libraries)}{os.pathsep}{libraries}"
        except LocalKafkaUnavailableError as error:
            raise PeerUnavailableError(str(error)) from error
        super().__init__(
            [java, *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, _MAIN]
        )

    def run(self, *, limit: float | None = None) -> Took:
        """As any peer's, but that its CPU time is read from here where the system allows it.

        The JVM itself counts it in ticks of 10 ms, and most runs are shorter.
        """
        before = self.cpu_time()
        took = super().run(limit=limit)
        after = self.cpu_time()
        return took if before is None or after is None else replace(took, cpu=after - before)

    def rewrite_subscription(self, data: bytes, version: int) -> bytes:
        """Has Java read a subscription, and write what it understood."""
        with self._asking():
            self._write(b"S", struct.pack(">b", version), blob(data))
        return self._read_bytes() or b""

    def rewrite_assignment(self, data: bytes) -> bytes:
        """Has Java read an assignment, and write what it understood, as version 0."""
        with self._asking():
            self._write(b"D", blob(data))
        return self._read_bytes() or b""

    def claim(self, assignor: str, subscription: bytes) -> Claim:
        """What a sticky assignor of Java's believes a member owned."""
        with self._asking():
            self._write(b"C", string(assignor), blob(subscription))
        known, generation = struct.unpack(">bi", self._read(5))
        owned = [(self._read_text(), self._read_int()) for _ in range(self._read_int())]
        return Claim(
            owned=Partitions.of(owned),
            generation=Generation(generation) if known else NO_GENERATION,
        )

    def user_data(self, assignor: str, assignment: bytes, generation: int) -> bytes | None:
        """What a member of Java's sends after this assignment."""
        with self._asking():
            self._write(b"U", string(assignor), blob(assignment), struct.pack(">i", generation))
        return self._read_bytes()
