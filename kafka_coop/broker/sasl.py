"""SASL mechanisms as conversations: bytes out, bytes in, no I/O.

A `Conversation` is a generator: it yields what to send and is sent what the broker answered.
It ends when it is satisfied with the broker and raises `AuthenticationFailedError` when it is
not. Whether the broker is satisfied with us is told outside of it, by the error code of
SaslAuthenticate. No secret is in any error's text.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

from kafka_coop.errors import AuthenticationFailedError

# It is annotated nowhere.
from kafka_coop.json_objects import json_object

Conversation: TypeAlias = Generator[bytes, bytes, None]

_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_SEPARATOR = "\x01"


def advance(conversation: Conversation, challenge: bytes | None) -> bytes | None:
    """Takes a conversation one step further.

    SCRAM's second step derives a key with as many iterations as the broker says: seconds, if
    it is hostile. To be called off the event loop.

    Args:
        conversation: It.
        challenge: What the broker answered; None begins.

    Returns:
        What to send next; None: nothing, the conversation is over.

    Raises:
        AuthenticationFailedError: The broker's answer is refused.
    """
    try:
        return next(conversation) if challenge is None else conversation.send(challenge)
    except StopIteration:
        return None


def plain(username: str, password: str) -> Conversation:
    """PLAIN (RFC 4616).

    Raises:
        AuthenticationFailedError: A NUL in either, which the mechanism cannot carry.
    """
    if "\0" in username or "\0" in password:
        del username, password  # who logs tracebacks with locals would log these
        raise AuthenticationFailedError(
            "PLAIN cannot carry a NUL character in sasl.username or sasl.password"
        )
    yield f"\0{username}\0{password}".encode()


def scram(mechanism: str, username: str, password: str) -> Conversation:
    """SCRAM-SHA-256 or SCRAM-SHA-512 (RFC 5802, KIP-84), without channel binding.

    The broker proves that it knows the password too; one that doesn't is refused.

    Raises:
        AuthenticationFailedError: The broker's messages are malformed or its proof is wrong.
    """
    # 6 MB and 0.1 s that only SCRAM's users are to pay for.
    from scramp import ScramException  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        client = _scram_client(mechanism, username, password)
        del username, password  # as above
        challenge = yield client.get_client_first().encode()
        client.set_server_first(challenge.decode())
        challenge = yield client.get_client_final().encode()
        client.set_server_final(challenge.decode())
    except ScramException as error:
        # Without its traceback, in whose frames are keys that were derived.
        raise AuthenticationFailedError(f"{mechanism} failed: {error}") from None
    except UnicodeDecodeError as error:
        raise AuthenticationFailedError(
            f"{mechanism} failed: the broker's message is not UTF-8"
        ) from error


def _scram_client(mechanism: str, username: str, password: str) -> Any:
    """A client that takes the credentials as they are written.

    scramp prepares them as RFC 5802 says, by SASLprep, and refuses what that prohibits. Kafka's
    brokers, Java's client and librdkafka don't: with a ``²`` in the password, which becomes a
    ``2``, or Hebrew before a digit, which is refused, librdkafka was let in and we were not.
    """
    from scramp import ScramClient  # noqa: PLC0415  # as above

    if all(text.isascii() and text.isprintable() for text in (username, password)):
        return ScramClient([mechanism], username, password)  # prepared, it is the same
    client = ScramClient([mechanism], "prepared", "prepared")
    client.username, client.password = _AsWritten(username), _AsWritten(password)
    return client


class _AsWritten:
    """What scramp asks of a user's name and password, from 1.5 on."""

    def __init__(self, text: str) -> None:
        self._text = text

    def escape(self) -> str:
        return self._text.replace("=", "=3D").replace(",", "=2C")

    def __bytes__(self) -> bytes:
        return self._text.encode()


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Conversation:
    """OAUTHBEARER (RFC 7628, KIP-255) with extensions (KIP-342).

    A broker that refuses the token says why in JSON and waits for one more message before it
    fails the authentication.

    Raises:
        AuthenticationFailedError: The token was refused, or it or the extensions cannot be
            sent.
    """
    check_extensions(extensions)
    if not _TOKEN.fullmatch(token):
        del token  # as above
        raise AuthenticationFailedError(
            "the OAUTHBEARER token is empty or holds characters that no bearer token has"
        )
    pairs = [f"auth=Bearer {token}", *(f"{k}={v}" for k, v in sorted(extensions.items()))]
    message = _SEPARATOR.join(["n,,", *pairs, "", ""]).encode()
    del token, pairs  # as above
    challenge = yield message
    del message
    if challenge:
        yield _SEPARATOR.encode()
        raise AuthenticationFailedError(f"the token was refused: {_refusal(challenge)}")


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Checks the names and values of SASL extensions.

    Raises:
        AuthenticationFailedError: One cannot be sent (KIP-342: names are letters, ``auth``
            is taken; values are printable ASCII). The value, maybe a secret, isn't told.
    """
    for name, value in extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise AuthenticationFailedError(
                f"{name!r} cannot name a SASL extension: letters alone, and not 'auth'"
            )
        if not _EXTENSION_VALUE.fullmatch(value):
            raise AuthenticationFailedError(
                f"the value of the SASL extension {name!r} is empty or not printable ASCII"
            )


def _refusal(challenge: bytes) -> str:
    """What an OAUTHBEARER error challenge says (RFC 7628, 3.2.2)."""
    said = json_object(challenge)
    if said is None:
        return "the broker gave no readable reason"
    known = [f"{key}={said[key]!r}"[:200] for key in ("status", "scope") if key in said]
    return ", ".join(known) or "the broker gave no reason"
