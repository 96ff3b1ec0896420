"""Names, instances, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafka_coop import assignors
from kafka_coop.assignors import known_names, resolve
from kafka_coop.errors import ConfigurationError
from kafka_coop.types import (
    Assignment,
    Assignor,
    Cluster,
    Generation,
    GroupMetadata,
    Partitions,
    RebalanceProtocol,
    Subscription,
)

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
PROTOCOLS = {
    "range": (EAGER,),
    "roundrobin": (EAGER,),
    "sticky": (EAGER,),
    "cooperative-sticky": (COOPERATIVE, EAGER),
    "constrained-cooperative-sticky": (COOPERATIVE, EAGER),
    "fairest-sticky": (COOPERATIVE, EAGER),
    "stream-join-sticky": (COOPERATIVE, EAGER),
    "load-aware-sticky": (COOPERATIVE, EAGER),
}


def test_the_names_on_the_wire() -> None:
    assert known_names() == tuple(sorted(PROTOCOLS))
    for name, protocols in PROTOCOLS.items():
        assignor = resolve(name)
        assert isinstance(assignor, Assignor)
        assert assignor.name == name
        assert assignor.supported_protocols == protocols


def test_every_exported_name_is_there() -> None:
    for name in assignors.__all__:
        assert getattr(assignors, name) is getattr(assignors, name)
    assert dir(assignors) == sorted(assignors.__all__)
    with pytest.raises(AttributeError, match="Nonsense"):
        assignors.Nonsense  # type: ignore[attr-defined]  # noqa: B018  # the access is the test


def test_an_unknown_name_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="known: constrained-cooperative-sticky, "):
        resolve("rainge")


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_two_members_of_one_process_share_no_state(name: str) -> None:
    """aiokafka#1175: what its members own was kept on the class."""
    one, other = resolve(name), resolve(name)
    assert one is not other
    before = other.subscription_user_data(("t",))
    assignment = Assignment(partitions=Partitions({"t": [0]}), user_data=b"\0\0\0\5")
    one.on_assignment(assignment, GroupMetadata(group_id="g", generation=Generation(5)))
    assert other.subscription_user_data(("t",)) == before
    assert resolve(name).subscription_user_data(("t",)) == before


def test_cooperative_sticky_sends_the_generation_as_java_does() -> None:
    assignor = resolve("cooperative-sticky")
    assert assignor.subscription_user_data(("t",)) == b"\xff\xff\xff\xff"
    assignor.on_assignment(Assignment(), GroupMetadata(group_id="g", generation=Generation(258)))
    assert assignor.subscription_user_data(("t",)) == b"\0\0\1\2"


def test_sticky_sends_nothing_then_version_1() -> None:
    assignor = resolve("sticky")
    assert assignor.subscription_user_data(("t",)) is None
    assignor.on_assignment(
        Assignment(partitions=Partitions({"t": [1]})),
        GroupMetadata(group_id="g", generation=Generation(2)),
    )
    assert assignor.subscription_user_data(("t",)) == (
        b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\1" + b"\0\0\0\2"
    )


def test_the_constrained_strategy_says_once_that_it_falls_through() -> None:
    assignor = assignors.ConstrainedCooperativeSticky()
    cluster = Cluster(partitions={"a": 2, "b": 2})
    group = {"m": Subscription(topics=("a",)), "n": Subscription(topics=("a", "b"))}
    first = assignor.assign(cluster, group)
    assert len(first.notes) == 1
    assert dict(first) == dict(assignors.CooperativeSticky().assign(cluster, group))
    assert assignor.assign(cluster, group).notes == ()


def test_importing_the_names_imports_no_strategy_and_no_solver() -> None:
    program = (
        "import sys, kafka_coop.assignors;"
        "print(sorted(m for m in sys.modules if m.startswith('kafka_coop.assignors.')));"
        "import kafka_coop.leader; kafka_coop.assignors.resolve('load-aware-sticky');"
        "print([m for m in ('scipy', 'ortools', 'numba', 'confluent_kafka') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
