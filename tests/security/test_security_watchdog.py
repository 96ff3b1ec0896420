"""A watchdog logs in as its member does, by every mechanism, and shows no secret."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from integration_support import shared, until
from security_members import login
from security_support import CLIENT_SECRET, MECHANISMS, PASSWORD, Provider
from test_integration_watchdog import pair, watchdog_of

from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_logs_in_as_the_member_does(guarded: LocalKafka, oidc: Provider, mechanism: str) -> None:
    with pair(guarded, **login(oidc, mechanism, "watched")) as (child, here, topic):
        here.subscribe(topic)
        until(lambda: len(here.owned) == 1, here)
        watchdog = watchdog_of(child.process.pid)
        for file in ("cmdline", "environ"):
            shown = Path(f"/proc/{watchdog}/{file}").read_bytes().decode()
            assert PASSWORD not in shown
            assert CLIENT_SECRET not in shown
        issued = len(oidc.issued)
        child.send(signal.SIGKILL)
        shared(topic, 2, here)
        if mechanism == "OAUTHBEARER":
            assert len(oidc.issued) > issued, "it asks for a token of its own"
