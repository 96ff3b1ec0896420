"""Every decoder of bytes that others send: with sound bytes, and what it may raise.

Each takes a list of inputs and goes through them, since a group's subscriptions are decoded
together. What it raises beyond `MalformedDataError` (or what its contract names instead) is a
fault, and so is an answer that breaks the decoder's promise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from protocol_logins import REFUSALS, TOKENS, read_refusal, read_scram, read_token, scram_challenges
from protocol_samples import EVERY_VERSION, SAMPLES, answer_frame, kio_class, one_of_everything

from kafka_coop.assignors import known_names
from kafka_coop.broker.frames import FrameSplitter, frame
from kafka_coop.errors import AuthenticationFailedError, MalformedDataError
from kafka_coop.fetching.group_metadata import decode_group_metadata, encode_group_metadata
from kafka_coop.leader import run_assignor
from kafka_coop.protocol.assignment import decode_assignment, encode_assignment
from kafka_coop.protocol.group_decoding import decode_group, decode_in_step
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.requests import decode_response
from kafka_coop.protocol.subscription import decode_subscription, decode_topics, encode_subscription
from kafka_coop.protocol.topic_partitions import (
    decode_strings,
    decode_topic_partitions,
    encode_topic_partitions,
)
from kafka_coop.protocol.user_data import (
    Claim,
    decode_claim,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from kafka_coop.spark.offsets import Claim as QueryClaim
from kafka_coop.spark.offsets import claim_of
from kafka_coop.types import (
    NO_GENERATION,
    Assignment,
    Generation,
    GroupMetadata,
    MemberId,
    Partitions,
    Subscription,
    TopicPartition,
)

_MOST = 1_000_000
"""Of a frame, in bytes."""

_TOPICS = {"orders": 12, "payments": 3}
_OWNED = Partitions({"orders": [0, 3, 11], "payments": [1]})
_STICKY = encode_sticky(Claim(owned=_OWNED, generation=Generation(5)))
_OURS = append_marks(
    _STICKY,
    SubscriptionMarks(rejoin=3, draining=True, load={TopicPartition("orders", 3): 1.5}, busy=True),
)
_LEADERS = AssignmentMarks(
    follow_up=True,
    ahead=True,
    heartbeat_interval=timedelta(milliseconds=100),
    leads=Generation(8),
    recalled={"another": Partitions({"orders": [2]})},
)
_SUBSCRIPTIONS = tuple(
    encode_subscription(
        Subscription(
            topics=("orders", "payments"),
            owned=_OWNED,
            generation=Generation(7),
            user_data=data,
            rack="a",
        ),
        version=version,
    )
    for version in range(4)
    for data in (None, _STICKY, _OURS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A way in for bytes.

    Attributes:
        samples: Sound bytes; inputs are made of them.
        decode: Goes through the inputs. Returns how many were sound: those are worth further
            mutations.
        share: How many of its inputs come for one of each other decoder's.
    """

    name: str
    samples: Sequence[bytes]
    decode: Callable[[Sequence[bytes]], Sequence[bool]]
    share: float = 1.0


def _each(
    decode: Callable[[bytes], object], *, refuses: type[Exception] = MalformedDataError
) -> Callable[[Sequence[bytes]], list[bool]]:
    def all_of(inputs: Sequence[bytes]) -> list[bool]:
        return [sound(data) for data in inputs]

    def sound(data: bytes) -> bool:
        try:
            decode(data)
        except refuses:
            return False
        return True

    return all_of


def _subscription(data: bytes) -> None:
    found = decode_subscription(data)
    assert found.generation >= NO_GENERATION
    assert decode_topics(data) == found.topics
    again = encode_subscription(found)
    assert decode_subscription(again) == found


def _assignment(data: bytes) -> None:
    found = decode_assignment(data)
    assert decode_assignment(encode_assignment(found)) == found


def _claim(data: bytes) -> None:
    """User data is never refused: what makes no sense claims nothing."""
    for claim in (decode_claim(data), decode_sticky(data)):
        assert claim is None or claim.generation >= NO_GENERATION
    assert decode_generation(data) >= NO_GENERATION


def _query_claim(data: bytes) -> None:
    """A commit's metadata is never refused: what makes no sense is no claim."""
    claim = claim_of(data.decode(errors="replace"))
    assert claim is None or claim_of(claim.to_metadata()) == claim


def _marks(data: bytes) -> None:
    user_data, marks = split_marks(data)
    if marks is not None:
        assert split_marks(append_marks(user_data, marks)) == (user_data, marks)


def _partitions(data: bytes) -> None:
    found, end = decode_topic_partitions(data)
    assert 0 <= end <= len(data)
    assert decode_topic_partitions(encode_topic_partitions(found))[0] == found


def _strings(data: bytes) -> None:
    _, end = decode_strings(data, 0)
    assert 0 <= end <= len(data)


def _group(inputs: Sequence[bytes]) -> list[bool]:
    """A group reads as its members do alone, whatever its size."""
    members = {f"m{i}": data for i, data in enumerate(inputs)}
    for decode in (decode_group, decode_in_step):
        group, errors = decode(members)
        for member, data in members.items():
            try:
                assert group[member] == decode_subscription(data)
                assert member not in errors
            except MalformedDataError:
                assert member in errors
    return [f"m{i}" not in errors for i in range(len(inputs))]


def _lead(strategy: str, inputs: Sequence[bytes]) -> list[bool]:
    """A leader answers every member, and gives no partition twice."""
    members = {f"m{i}": data for i, data in enumerate(inputs)}
    answers = run_assignor(strategy, _TOPICS, members)
    assert answers.keys() == members.keys()
    given = [pair for answer in answers.values() for pair in decode_assignment(answer).partitions]
    assert len(given) == len(set(given))
    assert all(0 <= partition < _TOPICS[topic] for topic, partition in given)
    return [False] * len(inputs)


def _frames(data: bytes) -> None:
    splitter = FrameSplitter(max_bytes=_MOST)
    splitter.feed(data)
    found = sum(len(frame(payload)) for payload in splitter.frames())
    assert found + splitter.unfinished == len(data)


def _answers() -> list[Decoder]:
    return [
        Decoder(
            name=f"{api} v{version} answer",
            samples=[answer_frame(one_of_everything(kio_class(api, version, "Response")))],
            decode=_each(partial(_decode_answer, api, version)),
            share=0.3,  # there are half a hundred of them, read by one reader
        )
        for api, version in EVERY_VERSION
    ]


def _decode_answer(api: str, version: int, payload: bytes) -> None:
    decode_response(SAMPLES[api], version=version, payload=payload)


def _identities() -> list[bytes]:
    one = GroupMetadata(
        group_id="g", generation=Generation(4), member_id=MemberId("m-1"), instance_id=None
    )
    other = GroupMetadata(
        group_id="g", generation=Generation(4), member_id=MemberId("m-1"), instance_id="i"
    )
    return [encode_group_metadata(one), encode_group_metadata(other)]


def _query_claims() -> list[bytes]:
    claims = [QueryClaim("run"), QueryClaim("run", "before"), QueryClaim("run", unread=True)]
    # No damage makes a list so deep that the recursion is too: it is tried as it stands.
    return [*(claim.to_metadata().encode() for claim in claims), b"[" * 4096]


def decoders() -> list[Decoder]:
    """All of them."""
    assignments = [
        encode_assignment(Assignment(partitions=_OWNED, user_data=data), version=version)
        for version in range(4)
        for data in (b"", append_marks(b"", _LEADERS))
    ]
    user_data = [_STICKY, _STICKY[:-4], encode_generation(Generation(7)), _OURS]
    marked = [_OURS, append_marks(None, SubscriptionMarks()), append_marks(b"", _LEADERS)]
    names = b"\0\0\0\2\0\6orders\0\1b"
    return [
        Decoder(name="subscription", samples=_SUBSCRIPTIONS, decode=_each(_subscription)),
        Decoder(name="group of subscriptions", samples=_SUBSCRIPTIONS, decode=_group),
        Decoder(name="assignment", samples=assignments, decode=_each(_assignment)),
        Decoder(name="user data", samples=user_data, decode=_each(_claim), share=2),
        Decoder(name="marks", samples=marked, decode=_each(_marks), share=2),
        Decoder(
            name="topics and partitions",
            samples=[encode_topic_partitions(_OWNED)],
            decode=_each(_partitions),
        ),
        Decoder(name="names", samples=[names], decode=_each(_strings)),
        Decoder(
            name="frames",
            samples=[frame(b"1234") * 3, frame(names)],
            decode=_each(_frames),
        ),
        Decoder(
            name="librdkafka's group metadata",
            samples=_identities(),
            decode=_each(decode_group_metadata, refuses=ValueError),
        ),
        Decoder(name="a query's claim", samples=_query_claims(), decode=_each(_query_claim)),
        *(
            Decoder(
                name=f"a leader's group, {strategy}",
                samples=_SUBSCRIPTIONS,
                decode=partial(_lead, strategy),
                share=0.2,
            )
            for strategy in known_names()
        ),
        *(
            Decoder(
                name=name,
                samples=samples,
                decode=_each(decode, refuses=AuthenticationFailedError),
                share=share,
            )
            for name, samples, decode, share in (
                ("SCRAM challenges", scram_challenges(), read_scram, 0.1),
                ("a refused token's reason", REFUSALS, read_refusal, 1.0),
                ("a token endpoint's answer", TOKENS, read_token, 1.0),
            )
        ),
        *_answers(),
    ]


def as_json(decoder: Decoder, inputs: Sequence[bytes]) -> str:
    """What repeats a fault."""
    return json.dumps({"decoder": decoder.name, "inputs": [data.hex() for data in inputs]})
