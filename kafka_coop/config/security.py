"""``security.protocol``, ``ssl.*`` and ``sasl.*``.

They hold for two sets of connections: librdkafka's, and those of the group membership. What
the latter can't honour is refused where it would have an effect, never ignored: half of the
traffic would go by other rules than the user thinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from kafka_coop.config.settings import OidcSettings, SaslSettings, TlsSettings
from kafka_coop.config.values import Values
from kafka_coop.errors import ConfigurationError

_NOT_IN_TLS: Mapping[str, str] = {
    "ssl.curves.list": "remove it: OpenSSL's own choice is used",
    "ssl.sigalgs.list": "remove it: OpenSSL's own choice is used",
    "ssl.ca.certificate.stores": "export the certificates as PEM and set ssl.ca.location",
    "ssl.providers": "load OpenSSL providers in openssl.cnf",
    "ssl.engine.location": "use a key file: ssl.key.location",
    "ssl.engine.id": "use a key file: ssl.key.location",
}

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_METHOD = "sasl.oauthbearer.method"
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_GRANT = "sasl.oauthbearer.grant.type"
_METADATA = "sasl.oauthbearer.metadata.authentication.type"
_EXTENSIONS = "sasl.oauthbearer.extensions"


def tls_settings(values: Values) -> TlsSettings | None:
    """What ``security.protocol`` and ``ssl.*`` ask for; None: no TLS.

    Raises:
        ConfigurationError: A key is set that the membership's connection can't honour.
    """
    if values.choice("security.protocol") not in {"ssl", "sasl_ssl"}:
        return None
    for name, remedy in _NOT_IN_TLS.items():
        if values.given(name):
            raise ConfigurationError(
                name, f"{name} is not supported by the group membership's connection: {remedy}"
            )
    authorities = values.text("ssl.ca.location")
    identification = values.choice("ssl.endpoint.identification.algorithm")
    return TlsSettings(
        # "probe": librdkafka looks in the usual places, and so do we where nothing is set.
        ca_location=None if authorities == "probe" else authorities,
        ca_pem=values.text("ssl.ca.pem"),
        certificate_location=values.text("ssl.certificate.location"),
        certificate_pem=values.text("ssl.certificate.pem"),
        key_location=values.text("ssl.key.location"),
        key_pem=values.text("ssl.key.pem"),
        key_password=values.text("ssl.key.password"),
        keystore_location=values.text("ssl.keystore.location"),
        keystore_password=values.text("ssl.keystore.password"),
        crl_location=values.text("ssl.crl.location"),
        cipher_suites=values.text("ssl.cipher.suites"),
        verify=values.flag("enable.ssl.certificate.verification"),
        check_hostname=identification == "https",
    )


def sasl_settings(values: Values) -> SaslSettings | None:
    """What ``security.protocol`` and ``sasl.*`` ask for; None: no SASL.

    Raises:
        ConfigurationError: The mechanism is none of ours, or lacks a piece.
    """
    _refuse_several_mechanisms(values)
    protocol = values.choice("security.protocol")
    if protocol not in {"sasl_plaintext", "sasl_ssl"}:
        return None
    mechanism = _mechanism(values, protocol)
    if mechanism == "OAUTHBEARER":
        return _oauthbearer(values)
    return SaslSettings(
        mechanism=mechanism,
        username=_needed(values, "sasl.username", f"{_name(values)}={mechanism}"),
        password=_needed(values, "sasl.password", f"{_name(values)}={mechanism}"),
    )


def _refuse_several_mechanisms(values: Values) -> None:
    if not values.given("sasl.mechanisms"):
        return
    key, given = _name(values), values.given_value("sasl.mechanisms") or ""
    if not given or " " in given or "," in given:
        raise ConfigurationError(key, f"{key}={given!r} is refused: it must name one mechanism")


def _name(values: Values) -> str:
    return values.name_of("sasl.mechanisms")


def _mechanism(
    values: Values, protocol: str
) -> Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]:
    key, mechanism = _name(values), values.text("sasl.mechanisms")
    supported = ", ".join(_MECHANISMS)
    if mechanism == "GSSAPI":
        default = "" if values.given("sasl.mechanisms") else ", the default"
        raise ConfigurationError(
            key,
            f"{key}=GSSAPI{default} (Kerberos) is not supported by the group membership's "
            f"connection: set it to one of {supported}, at a broker listener that has it, or "
            f"change security.protocol={protocol}",
        )
    if mechanism not in _MECHANISMS:
        raise ConfigurationError(
            key, f"{key}={mechanism!r} is refused: it must be one of {supported}, in upper case"
        )
    return cast('Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]', mechanism)


def _needed(values: Values, name: str, by: str) -> str:
    value = values.text(name)
    if value is None:
        raise ConfigurationError(name, f"{by} needs {name}: set it")
    return value


def _oauthbearer(values: Values) -> SaslSettings:
    callback = values.given_value("oauth_cb")
    by_oidc = values.choice(_METHOD) == "oidc"
    _refuse_unsecured(values, has_callback=callback is not None, by_oidc=by_oidc)
    oidc = _oidc(values, has_callback=callback is not None) if by_oidc else None
    if oidc is None and callback is None:
        raise ConfigurationError(
            "oauth_cb",
            f"{_name(values)}=OAUTHBEARER needs oauth_cb, or {_METHOD}=oidc: set one of them",
        )
    return SaslSettings(
        mechanism="OAUTHBEARER",
        oauth_cb=callback,
        oauth_config=values.text("sasl.oauthbearer.config"),
        oidc=None if callback else oidc,
    )


def _refuse_unsecured(values: Values, *, has_callback: bool, by_oidc: bool) -> None:
    if not values.flag(_UNSECURED):
        return
    if has_callback or by_oidc:
        other = "oauth_cb" if has_callback else f"{_METHOD}=oidc"
        raise ConfigurationError(
            _UNSECURED, f"{_UNSECURED} and {other} exclude one another: remove one"
        )
    raise ConfigurationError(
        _UNSECURED,
        f"{_UNSECURED} is not supported by the group membership's connection: pass an oauth_cb "
        "that returns the unsecured token (RFC 7515, appendix A.5) and its expiry",
    )


def _oidc(values: Values, *, has_callback: bool) -> OidcSettings | None:
    """The client credentials; None where ``oauth_cb`` has something else in their place."""
    for name, accepted in ((_METADATA, "none"), (_GRANT, "client_credentials")):
        if values.choice(name) == accepted:
            continue
        if has_callback:
            return None  # librdkafka checks the pieces of these
        raise ConfigurationError(
            name,
            f"{values.shown(name)} is not supported by the group membership's connection: "
            f"use {accepted}, or pass an oauth_cb that fetches such tokens",
        )
    by = f"{_METHOD}=oidc"
    return OidcSettings(
        token_endpoint_url=_needed(values, "sasl.oauthbearer.token.endpoint.url", by),
        client_id=_needed(values, "sasl.oauthbearer.client.id", by),
        client_secret=_needed(values, "sasl.oauthbearer.client.secret", by),
        scope=values.text("sasl.oauthbearer.scope"),
        extensions=_extensions(values.text(_EXTENSIONS) or ""),
        https_ca_location=_probed(values.text("https.ca.location")),
        https_ca_pem=values.text("https.ca.pem"),
    )


def _probed(location: str | None) -> str | None:
    return None if location == "probe" else location


def _extensions(text: str) -> dict[str, str]:
    """``name=value,name=value``, as librdkafka splits it."""
    extensions: dict[str, str] = {}
    for at, pair in enumerate(filter(None, text.split(",")), start=1):
        name, equals, value = pair.strip().partition("=")
        if not (name and equals and value):
            raise ConfigurationError(
                _EXTENSIONS, f"{_EXTENSIONS}: entry {at} must be name=value, comma between entries"
            )
        extensions[name] = value
    return extensions
