"""A watchdog logs in as its member does, by every mechanism, and shows no secret."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from integration_dying import dying
from integration_support import PATIENCE, members, settings, shared, unique, until
from security_members import login, member, secrets
from security_support import (
    CLIENT_SECRET,
    MECHANISMS,
    PASSWORD,
    TOPIC,
    Provider,
    allow,
    set_password,
)
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


# --- what it says of a login that is refused -----------------------------------------------------

WRONG = "hunter-two-is-wrong"

REFUSALS = {
    **dict.fromkeys(MECHANISMS, "sasl_authentication_failed"),
    "OAUTHBEARER": "invalid_client",
}
"""A word of the reason that a broker, or a token endpoint, gives."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_names_why_it_is_refused_and_shows_no_secret(
    guarded: LocalKafka, oidc: Provider, mechanism: str
) -> None:
    """On the standard error of the member that has died, which is read to its end."""
    key = "sasl.oauthbearer.client.secret" if mechanism == "OAUTHBEARER" else "sasl.password"
    given = {**login(oidc, mechanism, "watched"), key: WRONG}
    given |= {"bootstrap.servers": guarded.bootstrap_servers}
    died = subprocess.run(
        dying(given),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    with contextlib.suppress(ProcessLookupError):  # it would go on trying
        os.kill(int(died.stdout), signal.SIGKILL)
    (said,) = died.stderr.splitlines()
    assert "could not leave" in said
    assert REFUSALS[mechanism] in said
    for secret in (WRONG, *secrets(oidc, "watched")):
        assert secret not in said


_LIVES = """
import json, logging, sys
from kafka_coop import CoopConsumer

logging.basicConfig(level=logging.DEBUG)
config, topic = json.load(sys.stdin)
consumer = CoopConsumer({**config, "logger": logging.getLogger("librdkafka")})
consumer.subscribe([topic], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""
"""A member that says on its standard error all that it ever may."""


def test_a_password_that_has_changed_by_the_time_its_member_dies(
    guarded: LocalKafka, oidc: Provider
) -> None:
    """It was told the old one, which is in nothing that either of them says; nor is the new one."""
    user, group = unique("user"), unique("g")
    set_password(guarded, PASSWORD, user)
    of_group = (ResourceType.GROUP, group, AclOperation.READ)
    allow(guarded, user, of_group, (ResourceType.TOPIC, TOPIC, AclOperation.READ))
    security = login(oidc, "SCRAM-SHA-512", user)
    config = settings(
        guarded, group, session_timeout_ms=6000, coop_watchdog=True, debug="all", **security
    )
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(
            [sys.executable, "-c", _LIVES], text=True, stdin=pipe, stdout=pipe, stderr=pipe
        ) as process,
        ThreadPoolExecutor() as pool,
    ):
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            errors = pool.submit(process.stderr.read)
            with process.stdin:
                json.dump([config, TOPIC], process.stdin)
            assert process.stdout.readline() == "assigned\n"
            watchdog = watchdog_of(process.pid)
            set_password(guarded, WRONG, user)
            process.kill()
            said = errors.result(PATIENCE)
            os.kill(watchdog, signal.SIGKILL)  # it would go on trying
        finally:
            process.kill()
    (last,) = [line for line in said.splitlines() if "could not leave" in line]
    assert REFUSALS["SCRAM-SHA-512"] in last
    assert "SCRAM-SHA-512" in said.replace(last, ""), "librdkafka's log is among it"
    for secret in (PASSWORD, WRONG):
        assert secret not in said
