"""Certificates for the TLS tests, made once a session."""

from __future__ import annotations

import datetime as dt
import functools
import ssl
from typing import TypeAlias

import trustme


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def stranger() -> trustme.CA:
    """An authority that nobody was told of."""
    return trustme.CA()


PAST = (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, tzinfo=dt.UTC))
# Beyond 2049 certificates write years with four digits.
FUTURE = (dt.datetime(2090, 1, 1, tzinfo=dt.UTC), dt.datetime(2090, 1, 2, tzinfo=dt.UTC))


Validity: TypeAlias = tuple[dt.datetime, dt.datetime] | None


def broker_certificate(
    *, name: str = "127.0.0.1", known: bool = True, valid: Validity = None
) -> trustme.LeafCert:
    return _issued(name, known, valid)


def client_certificate(*, known: bool = True, valid: Validity = None) -> trustme.LeafCert:
    return _issued("client.example", known, valid)


@functools.cache
def _issued(name: str, known: bool, valid: Validity) -> trustme.LeafCert:
    ca = authority() if known else stranger()
    if valid is None:
        return ca.issue_cert(name)
    return ca.issue_cert(name, not_before=valid[0], not_after=valid[1])


def broker_context(
    certificate: trustme.LeafCert | None = None, *, demands_client: bool = False
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (certificate or broker_certificate()).configure_cert(context)
    if demands_client:
        context.verify_mode = ssl.CERT_REQUIRED
        authority().configure_trust(context)
    return context


def authority_pem() -> str:
    return authority().cert_pem.bytes().decode()


def certificate_pem(leaf: trustme.LeafCert) -> str:
    return "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)


def key_pem(leaf: trustme.LeafCert) -> str:
    return leaf.private_key_pem.bytes().decode()
