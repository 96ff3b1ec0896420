"""A real broker with every lock on its doors, and a small OIDC provider."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from kafka_coop.testing.cluster import KafkaCluster

PASSWORD = "correct-horse-battery"
CLIENT_SECRET = "staple-of-the-client"
AUDIENCE = "kafka-tests"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
GROUP = "guarded-group"
TOPIC = "guarded-topic"
TRANSACTION = "guarded-transaction"
USERS = ("reader", "stranger", "groupless", "topicless", "watched")


# --- certificates --------------------------------------------------------------------------------


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def stranger() -> trustme.CA:
    """An authority that nobody was told of."""
    return trustme.CA()


def pem(*blobs: trustme.Blob) -> str:
    return "".join(blob.bytes().decode() for blob in blobs)


def between(first: int, last: int) -> dict[str, Any]:
    """A certificate's validity, in years."""
    return {
        "not_before": dt.datetime(first, 1, 1, tzinfo=dt.UTC),
        "not_after": dt.datetime(last, 1, 1, tzinfo=dt.UTC),
    }


def broker_tls(*, client_auth: str, **validity: Any) -> dict[str, str]:
    """The settings of a listener that shows a certificate for 127.0.0.1 alone."""
    leaf = authority().issue_cert("127.0.0.1", **validity)
    prefix = "listener.name.client.ssl."
    return {
        prefix + "keystore.type": "PEM",
        prefix + "keystore.key": _pkcs8(leaf),
        prefix + "keystore.certificate.chain": pem(*leaf.cert_chain_pems),
        prefix + "truststore.type": "PEM",
        prefix + "truststore.certificates": pem(authority().cert_pem),
        prefix + "client.auth": client_auth,
    }


def _pkcs8(leaf: trustme.LeafCert) -> str:
    """The private key in the one form that Kafka reads."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


# --- an OIDC provider ----------------------------------------------------------------------------


class Provider:
    """A token endpoint for client credentials (RFC 6749, 4.4) and its keys (RFC 7517).

    Attributes:
        life: Seconds that tokens live.
        issued: The tokens.
        refused: How many requests had a wrong secret.
    """

    def __init__(self) -> None:
        self.life = 300.0
        self.issued: list[str] = []
        self.refused = 0
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, provider.keys())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                given = self.headers.get("Authorization", "").removeprefix("Basic ")
                user, _, secret = base64.b64decode(given).decode().partition(":")
                if secret != CLIENT_SECRET:
                    provider.refused += 1
                    self._answer(401, {"error": "invalid_client"})
                else:
                    token = provider.token(user)
                    provider.issued.append(token)
                    body = {"access_token": token, "token_type": "Bearer"}
                    self._answer(200, {**body, "expires_in": provider.life})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def keys(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one"}
        return {"keys": [{**key, "n": _number(numbers.n), "e": _number(numbers.e)}]}

    def token(self, subject: str) -> str:
        now = time.time()
        claims = {"sub": subject, "aud": AUDIENCE, "iat": now, "exp": now + self.life}
        signed = f"{_json({'alg': 'RS256', 'kid': 'one'})}.{_json(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _json(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@contextmanager
def provider() -> Iterator[Provider]:
    made = Provider()
    try:
        yield made
    finally:
        made.close()


# --- the broker's side ---------------------------------------------------------------------------


def broker_sasl(keys_url: str) -> dict[str, str]:
    """Every mechanism, on the clients' listener; nobody may do anything without an ACL."""
    prefix = "listener.name.client."
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    oauth = "org.apache.kafka.common.security.oauthbearer."
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    return {
        prefix + "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        prefix + "plain.sasl.jaas.config": f"{plain}{users};",
        prefix + "scram-sha-256.sasl.jaas.config": scram,
        prefix + "scram-sha-512.sasl.jaas.config": scram,
        prefix + "oauthbearer.sasl.jaas.config": f"{oauth}OAuthBearerLoginModule required;",
        prefix + "oauthbearer.sasl.server.callback.handler.class": (
            f"{oauth}OAuthBearerValidatorCallbackHandler"
        ),
        prefix + "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys_url,
        prefix + "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        **{
            f"{prefix}{mechanism.lower()}.connections.max.reauth.ms": str(REAUTHENTICATION_MS)
            for mechanism in MECHANISMS
        },
    }


REAUTHENTICATION_MS = 4000
"""A connection lives no longer than this without logging in again (KIP-368)."""

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the listeners behind the clients'
}


def make_scram_users(kafka: KafkaCluster) -> None:
    set_password(kafka, PASSWORD, *USERS)


def set_password(kafka: KafkaCluster, password: str, *users: str) -> None:
    """For SCRAM. Connections that are logged in stay so until they have to do it again."""
    admin = kafka.admin()
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted: list[Any] = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            for user in users
        ]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result(30)


Right: TypeAlias = tuple[ResourceType, str, AclOperation]


def allow(kafka: KafkaCluster, user: str, *what: Right) -> None:
    bindings = [AclBinding(*_fields(user, right)) for right in what]
    admin = kafka.admin()  # its requests end with it
    for done in admin.create_acls(bindings).values():
        done.result(30)


def forbid(kafka: KafkaCluster, user: str, *what: Right) -> None:
    """Takes rights away that were given before."""
    bindings = [AclBindingFilter(*_fields(user, right)) for right in what]
    admin = kafka.admin()
    for done in admin.delete_acls(bindings).values():
        assert len(done.result(30)) == 1


def _fields(user: str, right: Right) -> tuple[Any, ...]:
    kind, name, operation = right
    whose = (ResourcePatternType.LITERAL, f"User:{user}", "*")
    return (kind, name, *whose, operation, AclPermissionType.ALLOW)
