"""Certificates for the TLS tests, made once a session."""

from __future__ import annotations

import datetime as dt
import functools
import ssl

import trustme


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def stranger() -> trustme.CA:
    """An authority that nobody was told of."""
    return trustme.CA()


@functools.cache
def broker_certificate(
    *, name: str = "127.0.0.1", known: bool = True, expired: bool = False
) -> trustme.LeafCert:
    ca = authority() if known else stranger()
    if expired:
        return ca.issue_cert(
            name,
            not_before=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            not_after=dt.datetime(2020, 1, 2, tzinfo=dt.UTC),
        )
    return ca.issue_cert(name)


@functools.cache
def client_certificate() -> trustme.LeafCert:
    return authority().issue_cert("client.example")


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
