"""What a group has committed, in order: the brokers' own log of it."""

from __future__ import annotations

import struct

from confluent_kafka import Message
from spark_logs import read_log
from spark_rereads import Commit
from spark_stand_in import run_of

from kafka_coop.spark.offsets import claim_of

_VERSION_WITH_EPOCH, _FLEXIBLE_VERSION = 3, 4


def read_commits(servers: str, group: str) -> list[Commit]:
    """All of a group whose members are `spark_stand_in.Query`."""
    # A broker that died may have left a transaction open.
    config = {"bootstrap.servers": servers, "isolation.level": "read_uncommitted"}
    messages = read_log(config, "__consumer_offsets")
    return [commit for message in messages if (commit := _commit(message, group)) is not None]


def _commit(message: Message, group: str) -> Commit | None:
    """None: another group's, or no commit of an offset."""
    key, value = message.key() or b"", message.value()
    (kind,) = struct.unpack_from(">h", key)
    if kind > 1 or value is None:
        return None
    name, at = _text(key, 2)
    topic, at = _text(key, at)
    if name != group:
        return None
    (partition,) = struct.unpack_from(">i", key, at)
    version, offset = struct.unpack_from(">hq", value)
    at = 10 + 4 * (version >= _VERSION_WITH_EPOCH)
    metadata = _compact_text(value, at) if version >= _FLEXIBLE_VERSION else _text(value, at)[0]
    claim = claim_of(metadata)
    assert claim is not None, f"a query's commit without a claim: {metadata}"
    by, of = run_of(claim.run), (topic, partition)
    return Commit(by=by, of=of, offset=offset, at=message.timestamp()[1])


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end


def _compact_text(data: bytes, at: int) -> str:
    length = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return data[at : at + length - 1].decode()
