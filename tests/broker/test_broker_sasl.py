from __future__ import annotations

import hashlib
import hmac
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism  # type: ignore[import-untyped]  # annotated nowhere

from kafka_coop.broker.sasl import Conversation, advance, oauthbearer, plain, scram
from kafka_coop.errors import AuthenticationFailedError

SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
ascii_text = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


def server(mechanism: str, username: str, password: str) -> Any:
    mech = ScramMechanism(mechanism)
    stored = {username: mech.make_auth_info(password)}
    return mech.make_server(stored.get)


def spoken(conversation: Conversation, challenge: bytes | None) -> bytes:
    message = advance(conversation, challenge)
    assert message is not None
    return message


def test_plain_says_all_at_once_and_is_content() -> None:
    conversation = plain("bär", "s3cret")
    assert advance(conversation, None) == "\0bär\0s3cret".encode()
    assert advance(conversation, b"") is None


@pytest.mark.parametrize(("username", "password"), [("a\0b", "p"), ("a", "p\0q")])
def test_plain_cannot_carry_nul(username: str, password: str) -> None:
    with pytest.raises(AuthenticationFailedError, match="NUL") as caught:
        advance(plain(username, password), None)
    assert "p\0q" not in str(caught.value)


@given(st.sampled_from(SCRAM), ascii_text, ascii_text)
def test_scram_convinces_a_server_and_is_convinced(
    mechanism: str, username: str, password: str
) -> None:
    broker = server(mechanism, username, password)
    conversation = scram(mechanism, username, password)
    broker.set_client_first(spoken(conversation, None).decode())
    broker.set_client_final(spoken(conversation, broker.get_server_first().encode()).decode())
    assert advance(conversation, broker.get_server_final().encode()) is None


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_refuses_a_server_that_does_not_know_the_password(mechanism: str) -> None:
    conversation = scram(mechanism, "u", "s3cret")
    real = server(mechanism, "u", "s3cret")
    real.set_client_first(spoken(conversation, None).decode())
    spoken(conversation, real.get_server_first().encode())
    with pytest.raises(AuthenticationFailedError, match="signature") as caught:
        advance(conversation, b"v=AAAA")
    assert "s3cret" not in str(caught.value)


SECRET = "s3cret"


def begun(conversation: Conversation) -> Conversation:
    spoken(conversation, None)
    return conversation


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (lambda: plain("u", f"{SECRET}\0"), None),
        (lambda: begun(scram(SCRAM[0], "u", SECRET)), b"nonsense"),
        (lambda: begun(scram(SCRAM[0], "u", SECRET)), b"\xff"),
        (lambda: oauthbearer(f"{SECRET} ", {}), None),
        (lambda: begun(oauthbearer(SECRET, {})), b"{}"),
    ],
)
def test_whoever_logs_a_refusal_with_locals_logs_no_secret(
    begin: Callable[[], Conversation], answer: bytes | None
) -> None:
    conversation = begin()
    try:
        while True:
            advance(conversation, answer)
    except AuthenticationFailedError as refused:
        told = traceback.TracebackException.from_exception(refused, capture_locals=True)
    assert "challenge" in (text := "".join(told.format())), "locals are there"
    assert SECRET not in text


@given(st.binary(max_size=60), st.sampled_from(SCRAM))
def test_scram_survives_any_first_answer(answer: bytes, mechanism: str) -> None:
    conversation = scram(mechanism, "u", "p")
    advance(conversation, None)
    with pytest.raises(AuthenticationFailedError, match=mechanism):
        advance(conversation, answer)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_has_no_empty_user(mechanism: str) -> None:
    with pytest.raises(AuthenticationFailedError, match="empty"):
        advance(scram(mechanism, "", "p"), None)


def attributes(names: str) -> st.SearchStrategy[str]:
    values = st.text(max_size=8) | st.integers().map(str) | st.just("QUFBQUFBQUFBQUFBQUFBQQ==")
    return st.lists(st.tuples(st.sampled_from(names), values), max_size=5).map(
        lambda pairs: ",".join(f"{name}={value}" for name, value in pairs)
    )


@given(attributes("rsiemnpv"), attributes("veim"), st.booleans())
def test_scram_survives_answers_that_look_right(first: str, last: str, honest: bool) -> None:
    conversation = scram("SCRAM-SHA-256", "u", "p")
    broker = server("SCRAM-SHA-256", "u", "p")
    broker.set_client_first(spoken(conversation, None).decode())
    if honest:
        spoken(conversation, broker.get_server_first().encode())
    with pytest.raises(AuthenticationFailedError):
        advance(conversation, (last if honest else first).encode())


def test_scram_refuses_a_nonce_that_is_not_ours() -> None:
    conversation = scram("SCRAM-SHA-256", "u", "p")
    advance(conversation, None)
    with pytest.raises(AuthenticationFailedError, match="nonce"):
        advance(conversation, b"r=someoneelses,s=QUFBQUFBQUFBQUFBQUFBQQ==,i=4096")


def stored_by_a_broker(password: str) -> tuple[bytes, bytes, bytes, int]:
    """What Kafka's ScramFormatter makes of a password: its UTF-8, not prepared."""
    salt, iterations = b"a salt of sixteen", 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    return salt, hashlib.sha256(client_key).digest(), server_key, iterations


@pytest.mark.parametrize(
    "password",
    [
        "bär",
        "m²",
        "\N{NO-BREAK SPACE}",
        "ﬁsh",
        "\N{HEBREW LETTER SHIN}1",
        "🔑",
        "soft\N{SOFT HYPHEN}",
        "bell\x07",
    ],
)
def test_scram_takes_a_password_as_it_is_written_as_brokers_do(password: str) -> None:
    """RFC 5802 has it prepared; neither Kafka nor librdkafka, which fetches, does it."""
    broker = ScramMechanism("SCRAM-SHA-256").make_server(lambda _: stored_by_a_broker(password))
    conversation = scram("SCRAM-SHA-256", "u", password)
    broker.set_client_first(spoken(conversation, None).decode())
    broker.set_client_final(spoken(conversation, broker.get_server_first().encode()).decode())
    assert advance(conversation, broker.get_server_final().encode()) is None


@pytest.mark.parametrize("username", ["m²", "\N{HEBREW LETTER SHIN}1", "a,b=c²", "a,b=c"])
def test_scram_sends_a_user_as_it_is_written(username: str) -> None:
    first = spoken(scram("SCRAM-SHA-512", username, "p"), None).decode()
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    assert first.startswith(f"n,,n={escaped},r=")


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ({}, b"n,,\x01auth=Bearer t0k.en\x01\x01"),
        ({"b": "2", "a": "x y"}, b"n,,\x01auth=Bearer t0k.en\x01a=x y\x01b=2\x01\x01"),
    ],
)
def test_oauthbearer_carries_token_and_extensions(
    extensions: Mapping[str, str], expected: bytes
) -> None:
    conversation = oauthbearer("t0k.en", extensions)
    assert advance(conversation, None) == expected
    assert advance(conversation, b"") is None


def test_oauthbearer_reads_the_refusal_then_lets_the_broker_fail() -> None:
    conversation = oauthbearer("t0ken", {})
    advance(conversation, None)
    assert advance(conversation, b'{"status":"invalid_token","scope":"kafka"}') == b"\x01"
    with pytest.raises(AuthenticationFailedError, match="status='invalid_token'") as caught:
        advance(conversation, b"")
    assert "t0ken" not in str(caught.value)


@given(st.binary(min_size=1, max_size=40) | st.sampled_from([b"[]", b"{}", b"[" * 100_000]))
def test_oauthbearer_survives_any_refusal(challenge: bytes) -> None:
    conversation = oauthbearer("t", {})
    advance(conversation, None)
    assert advance(conversation, challenge) == b"\x01"
    with pytest.raises(AuthenticationFailedError, match="refused"):
        advance(conversation, b"")


@pytest.mark.parametrize(
    ("token", "extensions"),
    [
        ("", {}),
        ("a\x01b", {}),
        ("a b", {}),
        ("tökén", {}),
        ("t", {"auth": "x"}),
        ("t", {"a1": "x"}),
        ("t", {"a": "x\x01auth=y"}),
        ("t", {"a": ""}),
    ],
)
def test_oauthbearer_cannot_be_made_to_say_something_else(
    token: str, extensions: Mapping[str, str]
) -> None:
    with pytest.raises(AuthenticationFailedError):
        advance(oauthbearer(token, extensions), None)
