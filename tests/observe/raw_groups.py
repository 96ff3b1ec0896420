"""Groups of kinds that hold no consumers, made by sending the requests themselves."""

from __future__ import annotations

import base64
import importlib
import io
import socket
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from kio.serial import entity_reader, entity_writer

from kafka_coop.testing.cluster import wait_until

_SHORT = timedelta(seconds=30)


@contextmanager
def connect_group(servers: str, group: str) -> Iterator[None]:
    """A group of Kafka Connect's protocol type, with one worker, which leaves it in the end."""
    protocol = importlib.import_module("kio.schema.join_group.v5.request").JoinGroupRequestProtocol
    member = ""
    with _connected(servers) as wire:

        def joined() -> bool:
            """First a broker makes its coordinator, then the member's id (KIP-394)."""
            nonlocal member
            _ask(wire, "find_coordinator", 1, key=group, key_type=0)
            answer = _ask(
                wire,
                "join_group",
                5,
                group_id=group,
                session_timeout=_SHORT,
                rebalance_timeout=_SHORT,
                member_id=member,
                group_instance_id=None,
                protocol_type="connect",
                protocols=(protocol(name="default", metadata=b"x"),),
            )
            member = answer.member_id
            return bool(answer.error_code == 0)

        wait_until(joined, "the broker takes no member of Kafka Connect")
        yield
        left = _ask(wire, "leave_group", 1, group_id=group, member_id=member)
        assert left.error_code == 0


@contextmanager
def share_group(servers: str, group: str, topic: str) -> Iterator[None]:
    """A share group (KIP-932), which Kafka 4.1 has to be allowed first."""
    update = importlib.import_module("kio.schema.update_features.v1.request").FeatureUpdateKey
    member = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().strip("=").replace("-", "A")
    with _connected(servers) as wire:
        _ask(
            wire,
            "update_features",
            1,
            timeout=_SHORT,
            validate_only=False,
            feature_updates=(update(feature="share.version", max_version_level=1, upgrade_type=1),),
        )

        def joined() -> bool:
            answer = _ask(
                wire,
                "share_group_heartbeat",
                1,
                group_id=group,
                member_id=member,
                member_epoch=0,
                subscribed_topic_names=(topic,),
            )
            return bool(answer.member_epoch > 0)

        wait_until(joined, "the share group takes nobody")
        yield


@contextmanager
def _connected(servers: str) -> Iterator[socket.socket]:
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        yield wire


def _ask(wire: socket.socket, schema: str, version: int, **fields: Any) -> Any:
    request = _payload(schema, version, "Request")
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=7,
        client_id="raw",
    )
    sent = io.BytesIO()
    entity_writer(type(header))(sent, header)
    entity_writer(request)(sent, request(**fields))
    wire.sendall(struct.pack(">i", sent.tell()) + sent.getvalue())
    (size,) = struct.unpack(">i", _receive(wire, 4))
    data = _receive(wire, size)
    response = _payload(schema, version, "Response")
    _, at = entity_reader(response.__header_schema__)(data, 0)
    return entity_reader(response)(data, at)[0]


def _payload(schema: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{schema}.v{version}.{kind.lower()}")
    return getattr(module, "".join(p.capitalize() for p in schema.split("_")) + kind)


def _receive(wire: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = wire.recv(size - len(got))
        assert more, "the broker hung up"
        got += more
    return got
