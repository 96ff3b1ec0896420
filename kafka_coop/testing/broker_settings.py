"""Where a local broker lives, and its settings: fit for tests, with a quorum or with ZooKeeper."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PORTS_OF_A_BROKER: Final = 4
_MAX_CONTROLLERS: Final = 3
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.\d+\S*")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_FIRST_WITH_A_QUORUM: Final = (3, 3)  # KIP-833: KRaft is for production from here on


_OF_SEVERAL: Final = {
    "broker.session.timeout.ms": "3000",
    # Twice Kafka's own: three JVMs on a busy machine would elect again and again.
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "4000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where one broker lives.

    Attributes:
        id: Its ``node.id``.
        client, internal, controller: The ports of its listeners.
        advertised: The port that clients are told: ``client``, or what stands before it.
        folder: Its settings, its data and its log.
    """

    id: int
    client: int
    internal: int
    controller: int
    advertised: int
    folder: Path

    @property
    def settings(self) -> Path:
        """Its properties file."""
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        """Where its records are."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "server.log"


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a release of Apache Kafka.

    Raises:
        ValueError: It is none.
    """
    if not (found := _RELEASE.fullmatch(str(version))):
        raise ValueError(f"{version!r} is no release of Apache Kafka, such as 4.1.0")
    return int(found[1]), int(found[2])


def needs_zookeeper(version: str) -> bool:
    """Whether a release of Apache Kafka is too old to run on a quorum of its own."""
    return release(version) < _FIRST_WITH_A_QUORUM


def place(
    folder: Path, brokers: int, ports: Sequence[int], *, fronted: bool = False
) -> tuple[Node, ...]:
    """Places for so many brokers, ids from 1.

    Args:
        folder: What all of them is in.
        brokers: How many.
        ports: `PORTS_OF_A_BROKER` for each.
        fronted: Something else is to stand before each.
    """
    free = iter(ports)
    return tuple(
        Node(
            id=broker,
            client=(client := next(free)),
            internal=next(free),
            controller=next(free),
            advertised=next(free) if fronted else client,
            folder=folder / f"broker-{broker}",
        )
        for broker in range(1, brokers + 1)
    )


def quorum_settings(node: Node, nodes: Sequence[Node], client_protocol: str) -> dict[str, str]:
    """A broker's settings where some of the brokers are the controllers (KRaft)."""
    controllers = nodes[: _MAX_CONTROLLERS if len(nodes) >= _MAX_CONTROLLERS else 1]
    common = _common_settings(node, client_protocol, replicas=min(len(nodes), 3))
    roles = "broker"
    if node in controllers:
        roles += ",controller"
        common["listeners"] += f",CONTROLLER://{HOST}:{node.controller}"
    common["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    return common | {
        "process.roles": roles,
        "node.id": str(node.id),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller}" for n in controllers),
        # A lone broker keeps Kafka's patience: nobody else could lead, and on a busy machine
        # it would only be fenced for being slow.
        **(_OF_SEVERAL if len(nodes) > 1 else {}),
        "broker.heartbeat.interval.ms": "500",
    }


def zookeeper_settings(node: Node, nodes: Sequence[Node], client_protocol: str) -> dict[str, str]:
    """A broker's settings with a ZooKeeper, which listens at the first node's controller port."""
    return _common_settings(node, client_protocol, replicas=min(len(nodes), 3)) | {
        "broker.id": str(node.id),
        "zookeeper.connect": f"{HOST}:{nodes[0].controller}",
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": "30000",
    }


def zookeepers_own_settings(port: int, data: Path) -> dict[str, str]:
    """ZooKeeper's settings."""
    return {"dataDir": str(data), "clientPort": str(port), "admin.enableServer": "false"}


def _common_settings(node: Node, client_protocol: str, *, replicas: int) -> dict[str, str]:
    internal = f"INTERNAL://{HOST}:{node.internal}"
    return common_settings(replicas=replicas) | {
        "listeners": f"CLIENT://{HOST}:{node.client},{internal}",
        "advertised.listeners": f"CLIENT://{HOST}:{node.advertised},{internal}",
        "listener.security.protocol.map": f"CLIENT:{client_protocol},INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": str(node.data),
    }


def common_settings(*, replicas: int) -> dict[str, str]:
    """What makes a cluster quick to start, small, and fit for short sessions."""
    internal_topics = {
        f"{prefix}.{key}": value
        for prefix in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for key, value in (("num.partitions", "3"), ("replication.factor", str(replicas)))
    }
    return internal_topics | {
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "log.cleaner.dedupe.buffer.size": str(2 << 20),  # 128 MB by default
        "log.segment.delete.delay.ms": "1000",
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Writes a Java properties file: backslashes and line ends are escaped there.

    So is what is not ASCII, by UTF-16's units: Java reads such a file as ISO-8859-1.
    """
    lines = [f"{_escaped(k)}={_escaped(v)}" for k, v in settings.items()]
    path.write_text("\n".join(lines) + "\n", "ascii")


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace("\n", "\\n")
    return _NOT_ASCII.sub(lambda found: _in_units(found[0]), plain)


def _in_units(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def random_id() -> str:
    """An id as Kafka writes them: a random UUID in base 64, which may not begin with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
