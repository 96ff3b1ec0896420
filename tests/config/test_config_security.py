from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from config_samples import BASE, OIDC, SCRAM
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.config import OidcSettings, SaslSettings, TlsSettings, parse
from kafka_coop.config.known import KNOWN
from kafka_coop.config.properties import Kind
from kafka_coop.errors import ConfigurationError


def _sasl(**config: Any) -> SaslSettings:
    sasl = parse({**BASE, **config}).connection.sasl
    assert sasl is not None
    return sasl


def _tls(**config: Any) -> TlsSettings:
    tls = parse({**BASE, "security.protocol": "ssl", **config}).connection.tls
    assert tls is not None
    return tls


def _refused(config: dict[str, Any]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parse({**BASE, **config})
    return caught.value


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [
        ("plaintext", False, False),
        ("SSL", True, False),
        ("sasl_plaintext", False, True),
        ("Sasl_Ssl", True, True),
    ],
)
def test_the_protocol_decides_what_is_used(protocol: str, tls: bool, sasl: bool) -> None:
    connection = parse({**BASE, **SCRAM, "security.protocol": protocol}).connection
    assert (connection.tls is not None, connection.sasl is not None) == (tls, sasl)


def test_every_tls_setting_comes_from_its_key() -> None:
    names = {
        "ssl.ca.location": "ca_location",
        "ssl.ca.pem": "ca_pem",
        "ssl.certificate.location": "certificate_location",
        "ssl.certificate.pem": "certificate_pem",
        "ssl.key.location": "key_location",
        "ssl.key.pem": "key_pem",
        "ssl.key.password": "key_password",
        "ssl.keystore.location": "keystore_location",
        "ssl.keystore.password": "keystore_password",
        "ssl.crl.location": "crl_location",
        "ssl.cipher.suites": "cipher_suites",
    }
    tls = _tls(**{key: f"value of {key}" for key in names})
    for key, name in names.items():
        assert getattr(tls, name) == f"value of {key}"
    assert (tls.verify, tls.check_hostname) == (True, True)
    lax = _tls(
        **{
            "enable.ssl.certificate.verification": "false",
            "ssl.endpoint.identification.algorithm": "NONE",
        }
    )
    assert (lax.verify, lax.check_hostname) == (False, False)


def test_probing_for_authorities_is_what_python_does_by_itself() -> None:
    assert _tls(**{"ssl.ca.location": "probe"}) == TlsSettings()


@pytest.mark.parametrize(
    "key",
    [
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "ssl.ca.certificate.stores",
        "ssl.providers",
        "ssl.engine.location",
        "ssl.engine.id",
    ],
)
def test_tls_that_our_connection_cannot_do_is_refused_where_it_matters(key: str) -> None:
    error = _refused({"security.protocol": "ssl", key: "x"})
    assert error.key == key
    assert "not supported by the group membership's connection" in str(error)
    assert parse({**BASE, key: "x"}).fetcher[key] == "x"


def test_tls_objects_of_the_c_interface_are_refused() -> None:
    for key in ("ssl_ca", "ssl_key", "ssl_certificate", "ssl.certificate.verify_cb"):
        assert _refused({key: object()}).key == key


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(mechanism: str) -> None:
    config = {**SCRAM, "sasl.mechanisms": mechanism}
    sasl = _sasl(**config)
    assert (sasl.mechanism, sasl.username, sasl.password) == (mechanism, "me", "pass")
    for missing in ("sasl.username", "sasl.password"):
        error = _refused({k: v for k, v in config.items() if k != missing})
        assert error.key == missing
        assert str(error) == f"sasl.mechanisms={mechanism} needs {missing}: set it"


def test_kerberos_is_refused_even_as_the_default_and_only_where_it_matters() -> None:
    default = _refused({"security.protocol": "sasl_ssl"})
    assert "GSSAPI, the default" in str(default)
    written = _refused({"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"})
    assert written.key == "sasl.mechanism"
    for error in (default, written):
        assert "set it to one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER" in str(error)
    assert parse({**BASE, "sasl.mechanism": "GSSAPI"}).connection.sasl is None


@pytest.mark.parametrize("mechanism", ["plain", "SCRAM-SHA-1", "EXTERNAL"])
def test_other_mechanisms_are_refused(mechanism: str) -> None:
    error = _refused({**SCRAM, "sasl.mechanisms": mechanism})
    assert error.key == "sasl.mechanisms"
    assert mechanism in str(error)


def _token(_: str | None) -> tuple[str, float]:
    return "token", 0.0


_BEARER = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "OAUTHBEARER"}


def test_tokens_from_a_callback() -> None:
    sasl = _sasl(**_BEARER, **{"oauth_cb": _token, "sasl.oauthbearer.config": "c"})
    assert sasl == SaslSettings(mechanism="OAUTHBEARER", oauth_cb=_token, oauth_config="c")


def test_tokens_by_client_credentials() -> None:
    sasl = _sasl(
        **OIDC,
        **{
            "sasl.oauthbearer.scope": "s",
            "sasl.oauthbearer.extensions": "a=1, b=x=y",
            "https.ca.pem": "p",
        },
    )
    assert sasl.oidc == OidcSettings(
        token_endpoint_url="https://login.invalid/token",
        client_id="me",
        client_secret="pass",
        scope="s",
        extensions={"a": "1", "b": "x=y"},
        https_ca_pem="p",
    )


def test_a_callback_goes_before_client_credentials() -> None:
    sasl = _sasl(**OIDC, oauth_cb=_token)
    assert (sasl.oauth_cb, sasl.oidc) == (_token, None)


def test_no_source_of_tokens_is_an_error() -> None:
    error = _refused(_BEARER)
    assert error.key == "oauth_cb"
    assert "sasl.oauthbearer.method=oidc" in str(error)


@pytest.mark.parametrize("missing", [k for k in OIDC if k.endswith((".id", ".secret", ".url"))])
def test_missing_client_credentials_are_named(missing: str) -> None:
    error = _refused({k: v for k, v in OIDC.items() if k != missing})
    assert error.key == missing
    assert missing in str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("sasl.oauthbearer.metadata.authentication.type", "azure_imds"),
        ("sasl.oauthbearer.metadata.authentication.type", "aws_iam"),
    ],
)
def test_other_sources_of_tokens_need_a_callback(key: str, value: str) -> None:
    error = _refused({**OIDC, key: value})
    assert error.key == key
    assert "oauth_cb" in str(error)
    assert _sasl(**{**OIDC, key: value, "oauth_cb": _token}).oauth_cb is _token


def test_unsecured_tokens_need_a_callback() -> None:
    key = "enable.sasl.oauthbearer.unsecure.jwt"
    alone = _refused({**_BEARER, key: True})
    assert alone.key == key
    assert "pass an oauth_cb" in str(alone)
    assert "exclude one another" in str(_refused({**_BEARER, key: True, "oauth_cb": _token}))
    assert parse({**BASE, key: True}).connection.sasl is None


@pytest.mark.parametrize("extensions", ["odd", "odd=", "=odd", "a=1,odd"])
def test_malformed_extensions_are_refused_without_repeating_them(extensions: str) -> None:
    error = _refused({**OIDC, "sasl.oauthbearer.extensions": extensions})
    assert error.key == "sasl.oauthbearer.extensions"
    assert "odd" not in str(error)


_SECRET_KEYS = sorted(
    name
    for name, prop in KNOWN.items()
    if prop.kind is Kind.TEXT
    and any(
        word in name
        for word in ("password", "secret", "pem", "passphrase", "username", "oauthbearer.config")
    )
)


def test_the_secret_keys_were_found() -> None:
    assert {"sasl.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"} <= {*_SECRET_KEYS}


# Values that no text of ours could hold by chance.
_SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(
    lambda text: f"§{text}§"
)
_FRAMES: list[dict[str, Any]] = [
    SCRAM,
    {**SCRAM, "security.protocol": "ssl"},
    OIDC,
    {**OIDC, "oauth_cb": partial(_token, "§in a partial§")},
    {**SCRAM, "sasl.password": None},
    {**SCRAM, "session.timeout.ms": "wrong"},
    {**OIDC, "sasl.oauthbearer.method": "wrong"},
    {**SCRAM, "ssl.ca.pem": "§".encode(), "security.protocol": "sasl_ssl"},
]


@given(
    frame=st.sampled_from(_FRAMES),
    secrets=st.dictionaries(
        st.one_of(
            st.sampled_from(_SECRET_KEYS),
            st.sampled_from(["sasl.pasword", "sasl.oauthbearer.extensions", "ssl.key.passwd"]),
        ),
        st.one_of(
            _SECRETS,
            _SECRETS.map(lambda s: f"{s}\0"),
            _SECRETS.map(lambda s: [s]),
            _SECRETS.map(lambda s: {s: s}),
        ),
        max_size=4,
    ),
)
@settings(deadline=None)
def test_no_secret_is_ever_told(frame: dict[str, Any], secrets: dict[str, Any]) -> None:
    config = {**BASE, **frame, **secrets}
    try:
        told = repr(parse(config))
    except ConfigurationError as error:
        told = f"{error!r} {error} {error.__cause__!r} {error.__context__!r}"
    assert "§" not in told
    assert "xc2" not in told


@pytest.mark.parametrize("frame", [{**SCRAM, "security.protocol": "sasl_ssl"}, OIDC])
def test_no_secret_is_in_a_repr(frame: dict[str, Any]) -> None:
    secrets = {key: "§" for key in _SECRET_KEYS if "client.secret" not in key}
    oidc_secret = {"sasl.oauthbearer.client.secret": "§", "sasl.oauthbearer.extensions": "a=§"}
    assert "§" not in repr(parse({**BASE, **frame, **secrets, **oidc_secret}))
