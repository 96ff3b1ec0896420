"""Two requests that confluent's AdminClient does not know.

Who leads the controllers, and which of its replicas a partition prefers as leader. Written by hand,
in their first version; every broker with a quorum answers them, whichever is asked.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

_DESCRIBE_QUORUM: Final = 55
_ALTER_PARTITION_REASSIGNMENTS: Final = 45
_HEADER: Final = struct.Struct(">hhih")
_NO_CLIENT_ID: Final = -1
_NO_TAGS: Final = b"\0"
_ANSWERS_HEADER: Final = 5  # the correlation id, and no tags
_PATIENCE: Final = 5.0
_METADATA: Final = "__cluster_metadata"


def active_controller(servers: str) -> int:
    """The id of the controller that leads the quorum.

    Args:
        servers: Brokers, without security.

    Raises:
        ConnectionError: No broker answers.
    """
    partition = struct.pack(">i", 0) + _NO_TAGS
    topic = _text(_METADATA) + _array(partition) + _NO_TAGS
    answer = _ask(servers, _DESCRIBE_QUORUM, _array(topic) + _NO_TAGS)
    # Behind the answer's error, the one topic's name, its one partition's number and error.
    (leader,) = struct.unpack_from(">i", answer, 2 + 1 + len(_text(_METADATA)) + 1 + 4 + 2)
    return int(leader)


def prefer(servers: str, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Orders a partition's replicas anew: the first is whom the next election prefers.

    Whether the controller did it shows in the metadata, not here.

    Raises:
        ConnectionError: No broker answers.
    """
    order = _array(*(struct.pack(">i", replica) for replica in replicas))
    one = struct.pack(">i", partition) + order + _NO_TAGS
    body = struct.pack(">i", int(_PATIENCE * 1000))
    body += _array(_text(topic) + _array(one) + _NO_TAGS) + _NO_TAGS
    _ask(servers, _ALTER_PARTITION_REASSIGNMENTS, body)


def _ask(servers: str, api: int, body: bytes) -> bytes:
    request = _HEADER.pack(api, 0, 1, _NO_CLIENT_ID) + _NO_TAGS + body
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            with (
                socket.create_connection((host, int(port)), _PATIENCE) as connection,
                connection.makefile("rwb") as stream,
            ):
                stream.write(struct.pack(">i", len(request)) + request)
                stream.flush()
                (size,) = struct.unpack(">i", stream.read(4))
                return stream.read(size)[_ANSWERS_HEADER:]
        except (OSError, struct.error):
            continue  # down, or on its way
    raise ConnectionError(f"no broker answers at {servers}")


def _text(text: str) -> bytes:
    """A compact string, shorter than 127 bytes."""
    return bytes([len(text) + 1]) + text.encode()


def _array(*items: bytes) -> bytes:
    """A compact array of fewer than 127."""
    return bytes([len(items) + 1]) + b"".join(items)
