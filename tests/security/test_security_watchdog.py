"""A watchdog logs in as its member does, by every mechanism, and shows no secret."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from integration_support import members, shared, unique, until
from security_members import login, member
from security_support import CLIENT_SECRET, MECHANISMS, PASSWORD, Provider
from test_integration_watchdog import pair, watchdog_of

from kafka_coop.config import parse
from kafka_coop.testing.local import LocalKafka
from kafka_coop.watchdog.supervisor import leave
from kafka_coop.watchdog.ward import Ward

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


def test_certificates_that_are_in_exchange_are_read_once_they_are_there(
    guarded: LocalKafka, oidc: Provider, tmp_path: Path
) -> None:
    """A member may die while a rotation has removed the old file and not written the new one."""
    group, security = unique("g"), login(oidc, "PLAIN", "watched")
    one = member(guarded, security, group)
    with members(one):
        until(lambda: len(one.owned) == 2, one)  # the coordinator is up
    bundle, authorities = tmp_path / "ca.pem", security.pop("ssl.ca.pem")
    security["ssl.ca.location"] = str(bundle)
    given = {"bootstrap.servers": guarded.bootstrap_servers, "group.id": group, **security}
    said: list[str] = []
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            bundle.write_text(authorities)

    ward = Ward(group_id=group, member_id="dead")
    asyncio.run(leave(ward, parse(given).connection, say=said.append, sleep=sleep))
    assert pauses == [0.1, 0.2], "then the broker answered, that it knows no such member"
    assert not said
