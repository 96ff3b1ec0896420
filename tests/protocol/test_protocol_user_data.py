from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_strategies import broken, generations, partition_sets

from kafka_coop.protocol.topic_partitions import encode_topic_partitions
from kafka_coop.protocol.user_data import (
    Claim,
    decode_claim,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from kafka_coop.types import NO_GENERATION, Generation, Partitions

EXAMPLE = Claim(owned=Partitions({"a": [0, 7], "bc": [1]}), generation=Generation(5))
STICKY_V0 = bytes.fromhex(
    "00000002"
    "0001" "61" "00000002" "00000000" "00000007"
    "0002" "6263" "00000001" "00000001"
)  # fmt: skip
STICKY_V1 = STICKY_V0 + bytes.fromhex("00000005")


def test_golden_sticky_v1() -> None:
    assert encode_sticky(EXAMPLE) == STICKY_V1
    assert decode_sticky(STICKY_V1) == EXAMPLE
    assert decode_claim(STICKY_V1) == EXAMPLE


def test_sticky_v0_has_no_generation() -> None:
    assert decode_claim(STICKY_V0) == Claim(owned=EXAMPLE.owned, generation=NO_GENERATION)


def test_golden_generation() -> None:
    assert encode_generation(Generation(258)) == b"\0\0\1\2"
    assert encode_generation(NO_GENERATION) == b"\xff\xff\xff\xff"
    assert decode_claim(b"\0\0\1\2") == Claim(generation=Generation(258))


@pytest.mark.parametrize("nothing", [None, b"", b"\0", b"\0\0\0", b"\0\0\0\1\0", b"rubbish"])
def test_nothing_is_claimed_by_what_is_no_claim(nothing: bytes | None) -> None:
    assert decode_claim(nothing) is None


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xfe", b"\x80\0\0\0"])
def test_a_negative_generation_is_none(data: bytes) -> None:
    assert decode_generation(data) == NO_GENERATION
    assert decode_claim(data) == Claim()
    assert decode_claim(STICKY_V0 + data) == Claim(owned=EXAMPLE.owned)


def test_a_generation_is_read_as_java_does() -> None:
    assert decode_generation(None) == NO_GENERATION
    assert decode_generation(b"\0\0\1") == NO_GENERATION
    assert decode_generation(b"\0\0\0\7 and more") == 7


@given(partition_sets, generations, st.binary(max_size=9))
def test_sticky_survives(owned: Partitions, generation: Generation, behind: bytes) -> None:
    claim = Claim(owned=owned, generation=generation)
    assert decode_sticky(encode_sticky(claim) + behind) == claim
    assert decode_claim(encode_sticky(claim) + behind) == claim


@given(generations)
def test_generations_survive(generation: Generation) -> None:
    assert decode_generation(encode_generation(generation)) == generation
    assert decode_claim(encode_generation(generation)) == Claim(generation=generation)


@given(st.binary(max_size=80))
def test_no_bytes_raise(data: bytes) -> None:
    decode_claim(data)
    decode_sticky(data)
    decode_generation(data)


def test_no_broken_bytes_raise() -> None:
    for data in broken(STICKY_V1, seed=0):
        claim = decode_claim(data)
        if claim is not None:
            assert claim.generation >= NO_GENERATION
            assert all(partition >= 0 for _, partition in claim.owned)


@given(partition_sets)
def test_sticky_is_the_subscriptions_own_layout(owned: Partitions) -> None:
    assert encode_sticky(Claim(owned=owned))[:-4] == encode_topic_partitions(owned)
