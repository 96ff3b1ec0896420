"""A real coordinator behind the same face as `coordinator_box.Box`.

Every request has a connection of its own, so that a parked one holds nothing up.
"""

from __future__ import annotations

import io
import select
import socket
import time
from contextlib import suppress
from typing import TypeVar

from coordinator_box import Description
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.types import GroupId
from kio.serial import entity_reader, entity_writer

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    FindCoordinator,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetsFetched,
    Request,
    Response,
)
from kafka_coop.protocol.requests import OUR_VERSIONS, decode_response, encode_request
from kafka_coop.simulation.coordinator import GroupRequest
from kafka_coop.simulation.group import RequestToken
from kafka_coop.simulation.settings import Client
from kafka_coop.testing.local import LocalKafka
from kafka_coop.types import NO_PARTITIONS

ResponseT = TypeVar("ResponseT")

AT_ONCE = 0.4
"""Seconds within which an answer that is not parked has come."""
PATIENCE = 30.0


class KafkaBox:
    """One group of a real Kafka. Waiting takes real time."""

    def __init__(self, kafka: LocalKafka, group_id: str) -> None:
        self.kafka = kafka
        self.group_id = group_id
        self._open: dict[RequestToken, _Exchange] = {}
        self._answers: dict[RequestToken, Response] = {}
        self._tokens = 0

    def send(self, request: GroupRequest, client: Client | None = None) -> RequestToken:
        self._tokens += 1
        token = RequestToken(self._tokens)
        self._open[token] = _Exchange(self._connect(), request, client or Client())
        return token

    def answer(self, token: RequestToken, kind: type[ResponseT]) -> ResponseT:
        self.until_answered(token)
        response = self._answers[token]
        assert isinstance(response, kind)
        return response

    def is_parked(self, token: RequestToken) -> bool:
        self._read(token, AT_ONCE)
        return token not in self._answers

    def until_answered(self, *tokens: RequestToken) -> None:
        for token in tokens:
            self._read(token, PATIENCE)
            assert token in self._answers, "parked for ever"

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # the script's own time: sessions and timeouts run out in it

    def describe(self) -> Description:
        request = DescribeGroupsRequest(
            groups=(GroupId.parse(self.group_id),), include_authorized_operations=False
        )
        buffer = io.BytesIO()
        entity_writer(DescribeGroupsRequest)(buffer, request)
        header = b"\0\x0f\0\x05\0\0\0\1\xff\xff\0"  # key, version, id, no client
        with self._connect() as connection:
            _send(connection, header + buffer.getvalue())
            payload = _receive(connection)
        answer, _ = entity_reader(DescribeGroupsResponse)(payload, 5)
        (group,) = answer.groups
        return Description(
            state=group.group_state,
            assignments={m.member_id: m.member_assignment for m in group.members},
        )

    def fail_over(self) -> None:
        """Restarts the only broker: it is the coordinator again, with nothing but its log."""
        self.kafka.stop_broker(1)
        self.kafka.start_broker(1)
        self.until_serving()

    def until_serving(self) -> None:
        """Waits until the broker is the group's coordinator and has read its log."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            # The first such request makes __consumer_offsets.
            _Exchange(self._connect(), FindCoordinator(group_id=self.group_id), Client()).read()
            probe = self.send(OffsetFetch(group_id=self.group_id, partitions=NO_PARTITIONS))
            if self.answer(probe, OffsetsFetched).error is ErrorCode.none:
                return
            time.sleep(0.05)
        raise TimeoutError("the coordinator does not serve")

    def close(self) -> None:
        for exchange in self._open.values():
            exchange.connection.close()

    def _connect(self) -> socket.socket:
        host, port = self.kafka.bootstrap_servers.split(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE)

    def _read(self, token: RequestToken, timeout: float) -> None:
        if token in self._answers:
            return
        exchange = self._open[token]
        if select.select([exchange.connection], [], [], timeout)[0]:
            # A restarted broker has cut the connection: the request stays unanswered.
            with suppress(ConnectionError):
                self._answers[token] = exchange.read()
                del self._open[token]


class _Exchange:
    """One request, and its answer, on a connection of its own."""

    def __init__(self, connection: socket.socket, request: Request, client: Client) -> None:
        self.connection = connection
        self._request = request
        self._version = _version(request, client)
        payload = encode_request(
            request, version=self._version, correlation_id=1, client_id=client.client_id
        )
        _send(connection, payload)

    def read(self) -> Response:
        with self.connection:
            payload = _receive(self.connection)
        return decode_response(self._request, version=self._version, payload=payload)[1]


def _version(request: Request, client: Client) -> int:
    if isinstance(request, JoinGroup):
        return client.join_group_version
    newest = OUR_VERSIONS[type(request)][1]
    if isinstance(request, OffsetCommit):
        assert client.offset_commit_version <= newest
        return client.offset_commit_version
    return newest


def _send(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(len(payload).to_bytes(4, "big") + payload)


def _receive(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        size = stream.read(4)
        if not size:
            raise ConnectionResetError("cut")
        return stream.read(int.from_bytes(size, "big"))
