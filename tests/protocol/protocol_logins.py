"""What brokers and token endpoints say while a client logs in: sound bytes, and who reads them."""

from __future__ import annotations

import base64
import json

from scramp import ScramMechanism  # type: ignore[import-untyped]

from kafka_coop.broker.oauth import _read_token
from kafka_coop.broker.sasl import Conversation, advance, oauthbearer, scram
from kafka_coop.config import OidcSettings
from kafka_coop.errors import AuthenticationFailedError

_NONCE, _THEN = b"NONCE", b"\0"
_PASSWORD = "never told"

_ENDPOINT = OidcSettings(
    token_endpoint_url="http://localhost/token", client_id="me", client_secret=_PASSWORD
)


def scram_challenges() -> list[bytes]:
    """Both of a conversation's; the client's nonce, which is chance, is to be put in."""
    _, stored_key, server_key, _ = ScramMechanism("SCRAM-SHA-256").make_auth_info(
        _PASSWORD, iteration_count=4096
    )
    final = base64.b64encode(stored_key[:16] + server_key[:16])
    return [
        b"r=NONCE0123,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096\0v=" + final,
        b"r=NONCE0123,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096\0e=invalid-proof",
        b"e=unknown-user\0",
    ]


def read_scram(data: bytes) -> None:
    """Both challenges, one after the other. No chance finds the server's proof.

    Raises:
        AuthenticationFailedError: As ever.
    """
    conversation = scram("SCRAM-SHA-256", "me", _PASSWORD)
    said = advance(conversation, None)
    assert said is not None
    _, _, nonce = said.rpartition(b"r=")
    first, _, final = data.replace(_NONCE, nonce).partition(_THEN)
    _advance(conversation, first)
    _advance(conversation, final)
    raise AssertionError("it believed a broker that does not know the password")


REFUSALS = [
    b'{"status":"invalid_token","scope":"kafka"}',
    b'{"status":"insufficient_scope"}',
    b'["status"]',
]


def read_refusal(data: bytes) -> None:
    """Of a token: one more message, then it is told.

    Raises:
        AuthenticationFailedError: Where there was a challenge.
    """
    conversation = oauthbearer("a.b.c", {})
    _advance(conversation, None)
    said = _advance(conversation, data)
    assert (said is None) == (not data)
    if data:
        _advance(conversation, b"")


def _advance(conversation: Conversation, challenge: bytes | None) -> bytes | None:
    try:
        return advance(conversation, challenge)
    except AuthenticationFailedError as error:
        if _PASSWORD in str(error):
            raise ValueError("it tells the password") from error
        raise


def _jwt(claims: object) -> str:
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
    return f"e30.{text.rstrip('=')}.c2lnbmF0dXJl"


TOKENS = [
    json.dumps({"access_token": "abc", "token_type": "Bearer", "expires_in": 3600}).encode(),
    json.dumps({"access_token": "abc", "expires_in": "3600"}).encode(),
    json.dumps({"access_token": _jwt({"exp": 1900000000, "sub": "me"})}).encode(),
    json.dumps({"access_token": _jwt([1, 2])}).encode(),
]


def read_token(data: bytes) -> None:
    """The endpoint's answer.

    Raises:
        AuthenticationFailedError: There is no token in it, or it does not say for how long.
    """
    found = _read_token(data, _ENDPOINT, asked_at=1_800_000_000.0)
    assert abs(found.expires_at) < float("inf")
