"""`kafka_coop.plan`: that it says what the leader does, counts right, and explains it."""

from __future__ import annotations

import doctest
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsIndex, cast

import pytest
from group_strategies import Group, small_groups
from hypothesis import given, settings
from hypothesis import strategies as st
from optimum import best_by_trying_all, rightful_owners

import kafka_coop
import kafka_coop.planning
from kafka_coop import plan
from kafka_coop.assignors import LoadAwareSticky, Sticky, known_names, resolve
from kafka_coop.errors import AssignorFailedError, ConfigurationError
from kafka_coop.leader import lead
from kafka_coop.membership.interest import Interest, subscription_bytes
from kafka_coop.planning import Balance, Reason
from kafka_coop.planning.table import runs
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import (
    NO_GENERATION,
    Cluster,
    Generation,
    GroupAssignment,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)

COOPERATIVE = [n for n in known_names() if n not in {"range", "roundrobin", "sticky"}]


def owning(**owned: list[int]) -> Group:
    return {
        m: Subscription(topics=("t",), owned=Partitions({"t": p}), generation=Generation(1))
        for m, p in owned.items()
    }


def why(given_plan: kafka_coop.planning.GroupPlan) -> dict[tuple[str, int], Reason]:
    return {(p.topic, p.partition): p.reason for p in given_plan.partitions}


def test_who_joins_with_one_topic_names_it_in_a_list() -> None:
    """Of a text it subscribed to the letters, and the plan said that nothing moves."""
    now = plan("cooperative-sticky", {"t": 2}, owning(a=[0, 1]))
    assert now.join("b", ["t"]).totals.moved == 1
    with pytest.raises(TypeError, match=r"topics expects a list of strings, got 'orders'"):
        now.join("b", "orders")


def test_the_function_and_its_package_do_not_hide_each_other() -> None:
    program = (
        "import kafka_coop.planning.picture, kafka_coop;"
        "from kafka_coop import plan;"
        "print(kafka_coop.plan('range', {'t': 1}, {}).totals.partitions, plan is kafka_coop.plan)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "True"]


def test_the_example_in_the_documentation() -> None:
    assert doctest.testmod(kafka_coop.planning).failed == 0


def test_the_output_shown_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "ASSIGNORS.md").read_text()
    group = {f"member-{i}": Subscription(topics=("orders",)) for i in range(3)}
    now = plan("cooperative-sticky", {"orders": 12}, group)
    assert str(now.join("member-3")) in text


@pytest.mark.parametrize("name", COOPERATIVE)
@given(world=small_groups())
@settings(max_examples=80)
def test_a_plan_is_what_the_leader_would_do(name: str, world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    sent = {m: encode_subscription(replace(s, user_data=b"")) for m, s in group.items()}
    outcome = lead(name, cluster, sent)
    said = plan(name, cluster, sent)
    assert said.assignment == {m: a.partitions for m, a in outcome.intended.items()}
    assert Partitions.of((p.topic, p.partition) for p in said.partitions if p.withheld) == (
        outcome.withheld
    )
    assert (said.rounds == 2) == outcome.follow_up


@pytest.mark.parametrize("name", known_names())
@given(world=small_groups())
@settings(max_examples=80)
def test_every_partition_is_accounted_for(name: str, world: tuple[Cluster, Group]) -> None:
    cluster, group = world
    said = plan(name, cluster, group)
    owners = rightful_owners(cluster, group)
    topics = {t for s in group.values() for t in s.topics}
    everything = [(t, p) for t in sorted(topics) for p in range(cluster.partitions[t])]
    assert [(p.topic, p.partition) for p in said.partitions] == everything
    n = said.totals
    assert (
        n.kept + n.moved + n.placed + n.unassigned - len({p for p in said.unassigned if p.moves})
        == n.partitions
        == len(everything)
    )
    for p in said.partitions:
        if name != "stream-join-sticky":  # whose claims are numbers, in its user data
            assert p.source == owners.get((p.topic, p.partition))
        assert (p.reason is Reason.KEPT) == (p.source == p.destination is not None)
        assert str(p).endswith(p.reason.value)
    for m in said.by_member:
        assert m.before - m.gives + m.gets == m.after == len(said.assignment[m.member])
    assert sum(len(w.partitions) for w in said.ways()) == n.partitions - n.kept
    assert str(said)


@given(small_groups())
@settings(max_examples=100)
def test_the_fewest_moves_are_those_of_trying_everything(world: tuple[Cluster, Group]) -> None:
    said = plan("range", *world)
    assert said.totals.fewest_moves == best_by_trying_all(*world)[1]


@pytest.mark.parametrize("name", known_names())
@given(world=small_groups(), topic=st.sampled_from(["t0", "t9"]))
@settings(max_examples=40)
def test_what_if_goes_on_from_the_plan_carried_out(
    name: str, world: tuple[Cluster, Group], topic: str
) -> None:
    first = plan(name, *world)
    calm = first.again()
    assert {p.reason for p in calm.partitions} <= {Reason.KEPT, Reason.LEFT_OUT}
    assert calm.assignment == first.assignment
    for then in (first.join("new"), first.leave("m0"), first.grow(topic, 5), first.under("range")):
        before = {(p.topic, p.partition): p.source for p in then.partitions if p.source}
        was = {(p.topic, p.partition): p.destination for p in first.partitions}
        assert before.items() <= was.items()


def test_why_a_partition_goes_where_it_goes() -> None:
    three = plan("cooperative-sticky", {"t": 6}, owning(a=[0, 1, 2], b=[3, 4, 5]))
    joined = three.join("c")
    assert {p.reason for p in joined.moves} == {Reason.NEW_MEMBER}
    assert (joined.balance_before, joined.balance_after) == (
        Balance(least=0, most=3, mean=2.0),
        Balance(least=2, most=2, mean=2.0),
    )
    left = joined.leave("a")
    assert {p.reason for p in left.placed} == {Reason.GONE_MEMBER}
    assert not left.moves
    assert {p.reason for p in left.grow("t", 8).placed} == {Reason.NEW_PARTITION}
    uneven = plan("cooperative-sticky", {"t": 4}, owning(a=[0, 1, 2, 3], b=[]))
    assert {p.reason for p in uneven.moves} == {Reason.BALANCE}
    assert {
        p.reason for p in plan("range", {"t": 2}, {"a": Subscription(topics=("t",))}).placed
    } == {Reason.UNOWNED}


def test_a_plan_that_spoils_the_balance_is_not_made_for_its_sake() -> None:
    both = {m: Subscription(topics=("t", "u")) for m in ("a", "b")}
    spoilt = plan("cooperative-sticky", {"t": 5, "u": 3}, both).under("range")
    assert spoilt.balance_before == Balance(least=4, most=4, mean=4.0)
    assert spoilt.balance_after == Balance(least=3, most=5, mean=4.0)
    assert {p.reason for p in spoilt.moves} == {Reason.EXCHANGE}


def test_claims_that_do_not_count_are_told_apart() -> None:
    group = owning(a=[0], b=[0, 1], c=[])
    group["c"] = Subscription(topics=(), owned=Partitions({"t": [2]}), generation=Generation(1))
    said = why(plan("cooperative-sticky", {"t": 3}, group))
    assert said["t", 0] is Reason.DISPUTED
    assert said["t", 1] is Reason.KEPT
    assert said["t", 2] is Reason.UNSUBSCRIBED


def test_a_member_that_drains_gives_everything() -> None:
    group = owning(a=[0, 1], b=[2, 3])
    group["a"] = replace(group["a"], user_data=append_marks(None, SubscriptionMarks(draining=True)))
    said = plan("cooperative-sticky", {"t": 4}, group)
    assert {(p.source, p.reason) for p in said.moves} == {("a", Reason.DRAINING)}
    assert said.totals.moved == said.totals.fewest_moves == 2


@pytest.mark.parametrize("name", ["cooperative-sticky", "load-aware-sticky", "sticky"])
def test_a_member_that_drains_goes_on_draining_in_what_follows(name: str) -> None:
    group = owning(a=[0, 1], b=[2, 3])
    said = plan(name, {"t": 4}, group)
    marks = SubscriptionMarks(draining=True)
    sent = {m: p.sent for m, p in said.members.items()}
    sent["a"] = replace(sent["a"], user_data=append_marks(sent["a"].user_data, marks))
    drained = plan(name, {"t": 4}, sent)
    assert len(drained.assignment["b"]) == 4
    assert drained.again().totals.kept == 4
    assert not drained.join("c").assignment["a"]
    assert drained.under("fairest-sticky").totals.kept == 4


@pytest.mark.parametrize("name", known_names())
def test_a_change_of_strategy_is_planned_by_what_members_send_under_it_then(name: str) -> None:
    """Its instances were given nothing: a plan said that nothing moves, and 11 of 12 did."""
    now = plan(
        "cooperative-sticky", {"t": 12}, owning(c=[0, 1, 2, 3, 4], b=[5, 6, 7], a=[8, 9, 10])
    )
    strategy = resolve(name)
    cooperative = RebalanceProtocol.COOPERATIVE in strategy.supported_protocols
    sent = {
        m: subscription_bytes(
            resolve(name),
            interest=Interest(topics=("t",)),
            owned=owned if cooperative else Partitions(),
            applied=Generation(2),
            rack=None,
            rejoins=0,
        )
        for m, owned in now.assignment.items()
    }
    want = lead(strategy, {"t": 12}, sent).intended
    then = now.under(name)
    assert then.assignment == {m: a.partitions for m, a in want.items()}
    assert then.under(name).totals.kept == then.again().totals.kept


def test_the_fewest_moves_leave_a_member_that_drains_what_it_alone_wants() -> None:
    """As the leader does."""
    group = owning(a=[0, 1], b=[2, 3])
    group["a"] = Subscription(
        topics=("t", "u"),
        owned=Partitions({"t": [0, 1], "u": [0]}),
        generation=Generation(1),
        user_data=append_marks(None, SubscriptionMarks(draining=True)),
    )
    said = plan("cooperative-sticky", {"t": 4, "u": 1}, group)
    assert said.totals.moved == said.totals.fewest_moves == 2


def test_loads_are_told_and_travel_with_their_partitions() -> None:
    costs = {TopicPartition("t", p): 90.0 if p == 0 else 10.0 for p in range(4)}
    group = owning(a=[0, 1], b=[2, 3])
    assignor = LoadAwareSticky(lambda owned: {p: costs[p] for p in owned})
    said = plan(assignor, {"t": 4}, group)
    assert [p.reason for p in said.moves] == [Reason.LOAD]
    assert [(m.load_before, m.load_after) for m in said.by_member] == [(100.0, 90.0), (20.0, 30.0)]
    by_name = plan("load-aware-sticky", {"t": 4}, {m: p.sent for m, p in said.members.items()})
    joined = by_name.join("c")
    assert sum(m.load_after or 0 for m in joined.by_member) == 120.0


def test_a_member_nearer_to_the_replicas() -> None:
    cluster = Cluster(partitions={"t": 2}, replica_racks={"t": (("r1",), ("r2",))})
    group = owning(a=[0], b=[1])
    group = {m: replace(s, rack=r) for (m, s), r in zip(group.items(), ("r2", "r1"), strict=True)}
    said = plan("cooperative-sticky", cluster, group)
    assert {p.reason for p in said.moves} == {Reason.RACK}


def test_the_eager_protocol_interrupts_everything() -> None:
    said = plan("sticky", {"t": 4}, owning(a=[0, 1], b=[2, 3])).join("c")
    assert said.totals.moved == 1
    assert said.totals.interrupted == 4
    assert said.totals.withheld == 0
    assert "all 4 owned partitions" in str(said)


def test_a_strategy_without_balance_is_held_against_the_one_with() -> None:
    said = plan("fairest-sticky", {"t": 4}, owning(a=[0, 1], b=[2, 3])).join("c")
    assert (said.totals.moved, said.totals.fewest_moves) == (0, 1)


def test_an_instance_is_not_changed_by_what_is_tried_out() -> None:
    mine = Sticky()
    plan(mine, {"t": 4}, owning(a=[0, 1], b=[2, 3])).join("c").leave("a")
    assert mine.subscription_user_data(("t",)) is None


def test_bytes_that_do_not_parse_are_the_leaders_warning() -> None:
    said = plan("cooperative-sticky", {"t": 2}, {"a": b"\0", "b": owning(b=[0, 1])["b"]})
    assert said.totals.kept == 2
    assert "warning: member 'a' gets nothing" in str(said)


def test_static_members_keep_their_place_by_instance_id() -> None:
    sent = {m: encode_subscription(Subscription(topics=("t",))) for m in ("a", "b")}
    said = plan("range", {"t": 2}, sent, instance_ids={"a": "2", "b": "1"})
    assert said.assignment["b"] == Partitions({"t": [0]})


class Raises(Sticky):
    name = "raises"

    def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:  # type: ignore[override]  # so that it can
        raise LookupError("nothing there")


def test_wrong_questions_get_an_answer() -> None:
    group = owning(a=[0])
    with pytest.raises(ConfigurationError, match="unknown strategy 'rainge'"):
        plan("rainge", {"t": 1}, group)
    with pytest.raises(AssignorFailedError, match="nothing there"):
        plan(Raises(), {"t": 1}, group)
    said = plan("range", {"t": 2}, group)
    with pytest.raises(ValueError, match="'a' is in the group already"):
        said.join("a")
    with pytest.raises(ValueError, match="'x' is not in the group; its members: a"):
        said.leave("x")
    with pytest.raises(ValueError, match="it can't shrink to 1"):
        said.grow("t", 1)


def test_a_group_of_nobody_and_nothing() -> None:
    for members in ({}, {"a": Subscription()}, {"a": Subscription(topics=("nowhere",))}):
        said = plan("cooperative-sticky", {}, members)
        assert said.totals.partitions == 0
        assert said.balance_after == Balance(least=0, most=0, mean=0)
        assert str(said)


def test_the_table_is_safe_to_print_and_bounded() -> None:
    group: Group = {f"m{i}": Subscription(topics=("t",)) for i in range(1000)}
    group["\x1b[2J"] = Subscription(topics=("t",))
    text = str(plan("roundrobin", {"t": 5000}, group))
    assert "\x1b" not in text
    assert "\\x1b[2J" in text
    assert len(text.splitlines()) < 150
    assert "… 941 more" in text


def test_runs_of_numbers() -> None:
    assert runs(Partitions({"a": [0, 1, 2, 5], "b": [7]})) == "a 0-2, 5; b 7"
    assert runs(Partitions({"a": range(0, 40, 2)})).endswith("14, …")


def test_a_member_without_a_generation_that_owns_nothing_is_new() -> None:
    group = owning(a=[0, 1])
    group["b"] = Subscription(topics=("t",), generation=NO_GENERATION)
    assert {p.reason for p in plan("cooperative-sticky", {"t": 2}, group).moves} == {
        Reason.NEW_MEMBER
    }


class Unfit(LoadAwareSticky):
    """What would be of a group is asked of copies, each of which says what it would send."""

    def __init__(self, sends: object = None, *, copied: bool = True) -> None:
        super().__init__()
        self._sends = sends
        self._copied = copied

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        if isinstance(self._sends, BaseException):
            raise self._sends
        return cast("bytes | None", self._sends)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        if self._copied:
            return super().__reduce_ex__(protocol)
        raise RuntimeError("no copies")


@pytest.mark.parametrize(
    ("unfit", "text"),
    [
        (Unfit("text"), "subscription_user_data returned 'text', which is neither bytes nor None"),
        (Unfit(SystemExit(0)), "failed to say what a member would send"),
        (Unfit(copied=False), r"can't be copied \(RuntimeError: no copies\)"),
    ],
)
def test_a_strategy_of_which_no_member_can_be_made_is_named(unfit: Unfit, text: str) -> None:
    with pytest.raises(AssignorFailedError, match=text):
        plan(unfit, {"t": 2}, owning(a=[0, 1])).join("b")


def test_a_generation_that_a_member_makes_up_is_no_strategys_failure() -> None:
    """Four bytes of another strategy's user data pass for one."""
    said = Subscription(topics=("t",), user_data=b"\x7f\xff\xff\xff")
    assert plan("cooperative-sticky", {"t": 2}, {"a": said}).join("b").totals.partitions == 2
