"""A plain connection to a broker: requests built and answers read by kio, one at a time."""

from __future__ import annotations

import importlib
import io
import socket
import struct
from datetime import timedelta
from typing import Any

from kio.serial import entity_reader, entity_writer

from kafka_coop.testing.embedded import API_KEYS, Api

TIMEOUT = timedelta(seconds=10)
ASSIGNMENT = b"\x00\x01the leader's bytes"


class Wire:
    """One connection; one request at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)

    def close(self) -> None:
        self.socket.close()

    def ask(self, schema: str, version: int, **fields: Any) -> Any:
        """Sends a request and returns the answer, which must parse to its last byte."""
        self.send(schema, version, **fields)
        return self.receive(schema, version)

    def send(self, schema: str, version: int, **fields: Any) -> None:
        request_type = _payload(schema, version, "Request")
        header = request_type.__header_schema__(
            request_api_key=request_type.__api_key__,
            request_api_version=request_type.__version__,
            correlation_id=7,
            client_id="wire",
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(request_type)(buffer, request_type(**fields))
        self.socket.sendall(struct.pack(">i", buffer.tell()) + buffer.getvalue())

    def receive(self, schema: str, version: int) -> Any:
        (size,) = struct.unpack(">i", self._receive(4))
        return _parse(_payload(schema, version, "Response"), self._receive(size))

    def receive_error(self) -> int:
        """The error code that an answer which starts with a throttle time has next.

        The mock cluster refuses a JoinGroup with nulls where the protocol has strings: kio
        reads no further than that.
        """
        (size,) = struct.unpack(">i", self._receive(4))
        correlation_id, _, code = struct.unpack_from(">iih", self._receive(size))
        assert correlation_id == 7
        return int(code)

    def send_join(self, group: str, version: int = 5) -> None:
        protocol = nested(
            "join_group", version, "JoinGroupRequestProtocol", name="ours", metadata=b"user data"
        )
        rebalance = {"rebalance_timeout": TIMEOUT} if version >= 1 else {}
        self.send(
            "join_group",
            version,
            group_id=group,
            session_timeout=TIMEOUT,
            member_id="",
            **rebalance,
            protocol_type="consumer",
            protocols=(protocol,),
        )

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the broker hung up instead of answering"
            data += part
        return data


def _payload(schema: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{schema}.v{version}")
    camel = "".join(word.title() for word in schema.split("_"))
    return getattr(module, f"{camel}{kind}")


def _parse(response_type: Any, data: bytes) -> Any:
    header, at = entity_reader(response_type.__header_schema__)(data, 0)
    assert header.correlation_id == 7
    response, size = entity_reader(response_type)(data, at)
    assert at + size == len(data), "bytes are left over"
    return response


def nested(schema: str, version: int, entity: str, /, **fields: Any) -> Any:
    module = importlib.import_module(f"kio.schema.{schema}.v{version}.request")
    return getattr(module, entity)(**fields)


def announced(wire: Wire, api: Api) -> range:
    keys = wire.ask("api_versions", 0).api_keys
    ranges = {key.api_key: range(key.min_version, key.max_version + 1) for key in keys}
    return ranges.get(API_KEYS[api], range(0))


def join(wire: Wire, group: str, version: int = 5) -> Any:
    wire.send_join(group, version)
    return wire.receive("join_group", version)


def refused_join(wire: Wire, group: str) -> int:
    wire.send_join(group)
    return wire.receive_error()


def sync(wire: Wire, group: str, joined: Any, version: int = 3) -> Any:
    assignment = nested(
        "sync_group",
        version,
        "SyncGroupRequestAssignment",
        member_id=joined.member_id,
        assignment=ASSIGNMENT,
    )
    return wire.ask(
        "sync_group",
        version,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(assignment,),
    )


def heartbeat(wire: Wire, group: str, joined: Any, version: int = 3) -> int:
    answer = wire.ask(
        "heartbeat",
        version,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
    )
    return int(answer.error_code)


def member(wire: Wire, group: str) -> Any:
    joined = join(wire, group)
    assert sync(wire, group, joined).error_code == 0
    return joined


def commit(wire: Wire, group: str, joined: Any, offset: int, version: int = 7) -> int:
    partition = nested(
        "offset_commit",
        version,
        "OffsetCommitRequestPartition",
        partition_index=1,
        committed_offset=offset,
        committed_metadata="",
    )
    topic = nested(
        "offset_commit", version, "OffsetCommitRequestTopic", name="orders", partitions=(partition,)
    )
    answer = wire.ask(
        "offset_commit",
        version,
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=(topic,),
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed(wire: Wire, group: str, version: int = 5) -> int:
    topic = nested(
        "offset_fetch", version, "OffsetFetchRequestTopic", name="orders", partition_indexes=(1,)
    )
    answer = wire.ask("offset_fetch", version, group_id=group, topics=(topic,))
    return int(answer.topics[0].partitions[0].committed_offset)
