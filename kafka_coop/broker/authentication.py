"""SASL over Kafka's requests (KIP-43, KIP-152): handshake, then the mechanism's own messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

from kafka_coop.broker.blocking import run_blocking
from kafka_coop.broker.sasl import Conversation, advance
from kafka_coop.errors import AuthenticationFailedError, ConnectionFailedError, RequestFailedError
from kafka_coop.printable import shown
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    Request,
    Response,
    SaslAuthenticate,
    SaslAuthenticateAnswer,
    SaslHandshake,
    SaslHandshakeAnswer,
)

Exchange: TypeAlias = Callable[[Request], Awaitable[Response]]
"""Sends one request and returns its answer."""

_MOST_SAID = 500
"""Characters of what a broker says, which need not be one: the login is not done."""


async def authenticate(exchange: Exchange, mechanism: str, conversation: Conversation) -> timedelta:
    """Logs in, or logs in again (KIP-368): the same messages serve for both.

    Returns:
        How long the session lasts; zero: it does not end.

    Raises:
        AuthenticationFailedError: The broker refused us, or we refused the broker.
        RequestFailedError: The connection failed meanwhile.
    """
    await _shake_hands(exchange, mechanism)
    lifetime = timedelta(0)
    message = await _step(conversation, None)
    while message is not None:
        answer = await exchange(SaslAuthenticate(auth_bytes=message))
        assert isinstance(answer, SaslAuthenticateAnswer)
        if answer.error is not ErrorCode.none:
            raise _refusal(mechanism, answer)
        lifetime = answer.session_lifetime
        message = await _step(conversation, answer.auth_bytes)
    return lifetime


async def _step(conversation: Conversation, challenge: bytes | None) -> bytes | None:
    return await run_blocking(lambda: advance(conversation, challenge), name="kafka_coop-sasl")


async def _shake_hands(exchange: Exchange, mechanism: str) -> None:
    answer = await exchange(SaslHandshake(mechanism=mechanism))
    assert isinstance(answer, SaslHandshakeAnswer)
    match answer.error:
        case ErrorCode.none:
            return
        case ErrorCode.unsupported_sasl_mechanism:
            offered = shown(", ".join(sorted(answer.mechanisms))[:_MOST_SAID]) or "none"
            raise AuthenticationFailedError(
                f"the listener does not offer sasl.mechanisms={mechanism}; it offers {offered}"
            )
        case ErrorCode.illegal_sasl_state:
            raise AuthenticationFailedError(
                "the listener does not use SASL: set security.protocol to PLAINTEXT or SSL, or "
                "choose the SASL listener's port"
            )
        case error:
            raise AuthenticationFailedError(f"the SASL handshake failed: {error.name}")


def _refusal(mechanism: str, answer: SaslAuthenticateAnswer) -> RequestFailedError:
    said = shown(" ".join((answer.message or "no reason given").split())[:_MOST_SAID])
    text = f"{mechanism} failed: {answer.error.name}: {said}"
    if answer.error.retriable:
        return ConnectionFailedError(text)
    return AuthenticationFailedError(f"{text}; check the credentials and the broker's log")
