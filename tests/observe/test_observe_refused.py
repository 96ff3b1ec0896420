"""The command line before brokers that want credentials, and that grant little for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide them
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer
from kafka_coop.cli.app import run
from kafka_coop.cli.exits import Exit
from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

GROUP = "guarded"
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("root", "reader", "stranger"))


def login(name: str, password: str | None = None) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"{name}-secret" if password is None else password,
    }


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    """A broker with a group that root may see, and reader, but not its topic."""
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{_JAAS} {_USERS};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Brokers among themselves have no names.
        "super.users": "User:root;User:ANONYMOUS",
    }
    with LocalKafka(client_protocol="SASL_PLAINTEXT", properties=properties) as kafka:
        kafka.create_topic("secret", partitions=2)
        base: dict[str, Any] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "log_level": 0,
            **login("root"),
        }
        admin = AdminClient(base)
        granted = AclBinding(
            ResourceType.GROUP,
            GROUP,
            ResourcePatternType.LITERAL,
            "User:reader",
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([granted]).values():
            future.result(30)
        producer = Producer(base)
        producer.produce("secret", b"x", partition=0)
        assert producer.flush(30) == 0
        with Consumer({**base, "group.id": GROUP}) as consumer:
            consumer.commit(offsets=[TopicPartition("secret", 0, 1)], asynchronous=False)
        yield kafka.bootstrap_servers


@pytest.mark.parametrize("command", [["describe", GROUP], ["watch", GROUP], ["groups"]])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            login("root", "guess"), (Exit.UNAUTHORISED, "Authentication failed"), id="password"
        ),
        pytest.param({}, (Exit.UNREACHABLE, "can't reach"), id="no-credentials"),
    ],
)
def test_wrong_and_no_credentials(
    command: list[str],
    config: dict[str, str],
    expected: tuple[Exit, str],
    secured: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, said = expected
    settings = [f"-X{key}={value}" for key, value in config.items()]
    assert run([*command, "-b", secured, "--timeout", "8", *settings]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert "guess" not in err


@pytest.mark.parametrize("command", ["describe", "watch"])
def test_a_group_that_one_may_not_see(
    command: str, secured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"-X{key}={value}" for key, value in login("stranger").items()]
    assert run([command, GROUP, "-b", secured, *settings]) == Exit.UNAUTHORISED
    out, err = capsys.readouterr()
    assert out == ""
    assert "not authorized" in err.lower() or "authorization" in err.lower()
    assert len(err.splitlines()) == 1


def test_members_are_shown_to_who_may_not_see_their_topic(
    secured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"bootstrap.servers": secured, "group.id": GROUP, **login("root")}
    settings = [f"-X{key}={value}" for key, value in login("reader").items()]
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        consumer.subscribe(["secret"])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        status = run(["describe", GROUP, "-b", secured, *settings])
    out, err = capsys.readouterr()
    assert (status, err) == (Exit.OK, "")
    assert "secret 0-1" in out
