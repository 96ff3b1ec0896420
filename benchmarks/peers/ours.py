"""Our leader behind the same protocol, in a process of its own: all are measured alike."""

from __future__ import annotations

import struct
import sys
import time
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from benchmarks.peers.wire import Peer, blob, string
from kafka_coop.assignors import resolve
from kafka_coop.leader import run_assignor
from kafka_coop.membership.interest import Interest, subscription_bytes
from kafka_coop.protocol.subscription import decode_subscription
from kafka_coop.types import Assignment, Assignor, Cluster, GroupMetadata

_INT32: Final = struct.Struct(">i")
_TOOK: Final = struct.Struct(">qq")


class OurPeer(Peer):
    def __init__(self) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.peers.ours"])


@dataclass
class _Group:
    """The process's side: what was loaded, and the last run's assignments."""

    source: BinaryIO
    assignor: Assignor = field(default_factory=lambda: resolve("range"))
    cluster: Cluster = field(default_factory=Cluster)
    members: dict[str, bytes] = field(default_factory=dict)
    instance_ids: dict[str, str | None] = field(default_factory=dict)
    assignments: dict[str, bytes] = field(default_factory=dict)

    def load(self) -> bytes:
        name = self._text() or ""
        self.assignor = resolve(name)
        own_user_data = self.source.read(1) != b"\0"
        self._load_cluster()
        self.members, self.instance_ids = {}, {}
        for _ in range(self._int()):
            member = self._text() or ""
            self.instance_ids[member] = self._text()
            data = self._bytes() or b""
            self.members[member] = _as_own(name, data) if own_user_data else data
        return b""

    def run(self) -> bytes:
        self.assignments = {}
        began, cpu_began = time.perf_counter_ns(), time.process_time_ns()
        self.assignments = run_assignor(
            self.assignor, self.cluster, self.members, instance_ids=self.instance_ids
        )
        return _TOOK.pack(time.perf_counter_ns() - began, time.process_time_ns() - cpu_began)

    def answers(self) -> bytes:
        given = (string(m) + blob(data) for m, data in self.assignments.items())
        return b"".join((_INT32.pack(len(self.assignments)), *given))

    def _load_cluster(self) -> None:
        partitions: dict[str, int] = {}
        racks: dict[str, tuple[tuple[str, ...], ...]] = {}
        for _ in range(self._int()):
            topic = self._text() or ""
            partitions[topic] = self._int()
            if self.source.read(1) != b"\0":
                racks[topic] = tuple(
                    tuple(self._text() or "" for _ in range(self._int()))
                    for _ in range(partitions[topic])
                )
        self.cluster = Cluster(partitions=partitions, replica_racks=racks or None)

    def _int(self) -> int:
        number: int = _INT32.unpack(self.source.read(_INT32.size))[0]
        return number

    def _bytes(self) -> bytes | None:
        size = self._int()
        return None if size < 0 else self.source.read(size)

    def _text(self) -> str | None:
        data = self._bytes()
        return None if data is None else data.decode()


def _as_own(name: str, data: bytes) -> bytes:
    """What a member of ours would have sent in the place of another client's."""
    other = decode_subscription(data)
    assignor = resolve(name)
    if other.owned:
        metadata = GroupMetadata(group_id="group", generation=other.generation)
        assignor.on_assignment(Assignment(partitions=other.owned), metadata)
    return subscription_bytes(
        assignor,
        interest=Interest(topics=other.topics),
        owned=other.owned,
        applied=other.generation,
        rack=other.rack,
        rejoins=0,
    )


def main() -> None:
    group = _Group(sys.stdin.buffer)
    requests = {b"L": group.load, b"R": group.run, b"A": group.answers}
    while letter := sys.stdin.buffer.read(1):
        sys.stdout.buffer.write(b"\0" + requests[letter]())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
