"""A few of the inputs of `protocol_fuzz.py`, whose long run is a command: `make fuzz`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from pathlib import Path

import protocol_decoders
import pytest
from protocol_decoders import Decoder, decoders
from protocol_fuzz import BATCH, fuzz, shares
from protocol_logins import read_scram, scram_challenges
from protocol_samples import SAMPLES

import kafka_coop
from kafka_coop.errors import AuthenticationFailedError
from kafka_coop.protocol import (
    assignment,
    group_decoding,
    marks,
    requests,
    subscription,
    topic_partitions,
    user_data,
)
from kafka_coop.protocol.user_data import Claim, decode_sticky, encode_sticky
from kafka_coop.types import Generation, Partitions


@pytest.mark.parametrize("decoder", decoders(), ids=lambda d: d.name.replace(" ", "_"))
def test_no_bytes_are_a_fault(decoder: Decoder) -> None:
    found = fuzz(decoder, round(800 * decoder.share), seed=1)
    assert not found.fault
    assert found.inputs >= 800 * decoder.share


def test_scram_challenges_are_read_to_their_ends() -> None:
    """Were a sound one refused at its beginning, nothing behind that would be tried."""
    for challenge, end in zip(
        scram_challenges(),
        ("signature doesn't match", "invalid-proof", "unknown-user"),
        strict=True,
    ):
        with pytest.raises(AuthenticationFailedError, match=end):
            read_scram(challenge)


def test_a_fault_is_found_and_can_be_repeated() -> None:
    """A length that is believed, a sum that overflows: rare in random bytes, not here."""
    sample = encode_sticky(Claim(owned=Partitions({"orders": [1, 2]}), generation=Generation(1)))

    def decode(inputs: Sequence[bytes]) -> list[bool]:
        for data in inputs:
            claim = decode_sticky(data)
            if claim is not None and claim.generation == 0x7FFFFFFF:
                raise OverflowError("one more is too many")
        return [False] * len(inputs)

    found = fuzz(Decoder(name="faulty", samples=[sample], decode=decode), 200_000, seed=1)
    assert "OverflowError" in found.fault
    told = json.loads(found.fault.splitlines()[-1])
    assert len(told["inputs"]) == BATCH
    with pytest.raises(OverflowError):
        decode([bytes.fromhex(text) for text in told["inputs"]])


def test_every_decoder_of_the_protocol_is_there() -> None:
    """By its name: one that is new has to be added."""
    used = inspect.getsource(protocol_decoders)
    readers = (assignment, group_decoding, marks, requests, subscription, topic_partitions)
    names = [n for module in (*readers, user_data) for n in vars(module)]
    public = {n for n in names if n.startswith(("decode_", "split_"))}
    # An answer's own decoder gets what decode_response has read; text is read by its readers.
    public -= {f"decode_{api}" for api in SAMPLES} | {"decode_text"}
    assert len(public) >= 10
    assert not {name for name in public if name not in used}


OTHERS_WROTE = {
    "broker/oauth.py": "read_token",
    "broker/sasl.py": "read_refusal",
    "spark/offsets.py": "claim_of",
}
"""Files that read JSON of others, and the decoder's part that has them do so."""

OUR_SIDE_WROTE = {
    *("demo/reports.py", "json_objects.py", "metrics/librdkafka.py"),
    *("spark/option_values.py", "spark/progress.py", "spark/tickets.py"),
    *("testing/shared.py", "testing/trial/copies.py", "testing/trial/judge_again.py"),
    *("testing/trial/member.py", "testing/trial/report.py"),
}


def test_every_reader_of_others_json_is_there() -> None:
    """By its file: one that is new has to be added, or named among those of our own side."""
    root = Path(kafka_coop.__file__).parent
    files = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(reads in path.read_text() for reads in ("json.loads(", "json_object("))
    }
    assert files == {*OTHERS_WROTE} | OUR_SIDE_WROTE
    used = inspect.getsource(protocol_decoders)
    assert not {name for name in OTHERS_WROTE.values() if name not in used}


def test_the_inputs_are_shared_out() -> None:
    given = list(shares(decoders(), 1_000_000))
    assert sum(count for _, count in given) == pytest.approx(1_000_000, abs=100)
    assert {name for name, _ in given} == {d.name for d in decoders()}
