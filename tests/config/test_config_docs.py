"""docs/CONFIGURATION.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from config_samples import BASE, OIDC, SCRAM

from kafka_coop.config import parse
from kafka_coop.config.fetcher import _BETTER_DEFAULTS
from kafka_coop.config.known import KNOWN, REFUSED, property_of
from kafka_coop.config.strategies import DEFAULT, KNOWN_STRATEGIES
from kafka_coop.config.values import Values

_PAGE = (Path(__file__).parents[2] / "docs" / "CONFIGURATION.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `(?P<key>[\w.]+)` \| (?P<default>[^|]+) \| (?P<by>\w+) \|", re.MULTILINE)
_ROWS = {row["key"]: row for row in _ROW.finditer(_PAGE)}

# Where ours differ from librdkafka's, which the page says too.
_OUR_DEFAULTS: dict[str, str | None] = {
    "partition.assignment.strategy": ",".join(DEFAULT),
    "heartbeat.interval.ms": None,
    "auto.offset.reset": "latest",
    "reconnect.backoff.max.ms": "1000",
    **{key: str(value) for key, value in _BETTER_DEFAULTS.items()},
}


def test_the_tables_were_found() -> None:
    assert len(_ROWS) > 60


@pytest.mark.parametrize("key", _ROWS)
def test_documented_keys_are_known_and_their_defaults_right(key: str) -> None:
    prop = property_of(key)
    default = _OUR_DEFAULTS.get(key, prop.default)
    documented = _ROWS[key]["default"]
    if documented == "required":
        assert key in {"group.id", "bootstrap.servers"}
    else:
        assert documented == ("unset" if default is None else f"`{default}`")


def test_every_key_we_read_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()
    plain = Values._value

    def spy(self: Values, name: str) -> Any:
        asked.add(name)
        return plain(self, name)

    monkeypatch.setattr(Values, "_value", spy)
    for frame in (SCRAM, {**OIDC, "security.protocol": "sasl_ssl"}):
        parse({**BASE, **frame})
    asked -= {"metadata.broker.list"}  # by its better known name
    unsupported = {
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.metadata.authentication.type",
    }
    assert asked - unsupported <= _ROWS.keys()
    for key in unsupported:
        assert f"`{key}`" in _PAGE


def test_what_librdkafka_does_not_get_is_documented_as_the_memberships() -> None:
    values: dict[str, Any] = {
        key: print if KNOWN[key].default is None and key.startswith("on_") else KNOWN[key].default
        for key, row in _ROWS.items()
        if row["by"] == "membership" and key != "partition.assignment.strategy"
    }
    fetcher = parse({**BASE, **values}).fetcher
    assert set(values) & set(fetcher) == {"enable.auto.commit", "enable.auto.offset.store"}


def test_refusals_and_strategies_are_documented() -> None:
    for name in (*REFUSED, *KNOWN_STRATEGIES):
        assert f"`{name}`" in _PAGE, name


def test_keys_of_share_consumers_are_accepted_and_documented_as_without_effect() -> None:
    """Who comes from Java sets the first, and sees no difference."""
    for key, value in {"max.poll.records": 5, "share.acknowledgement.mode": "explicit"}.items():
        assert parse({**BASE, key: value}).fetcher[key] == value
        assert f"`{key}`" in _PAGE
