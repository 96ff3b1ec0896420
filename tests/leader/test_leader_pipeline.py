"""The leader's step: every kind of member and of assignor is survived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.assignors import known_names, resolve
from kafka_coop.errors import AssignorFailedError, ConfigurationError
from kafka_coop.leader import LeaderOutcome, lead, run_assignor, suggested_heartbeat_interval
from kafka_coop.membership.interest import Interest, subscription_bytes
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.protocol.user_data import Claim, encode_sticky
from kafka_coop.types import (
    NO_GENERATION,
    NO_PARTITIONS,
    Assignment,
    Assignor,
    Cluster,
    Generation,
    GroupAssignment,
    GroupMetadata,
    GroupSubscription,
    Partitions,
    RebalanceProtocol,
    Subscription,
)


def member(
    *topics: str,
    owned: Partitions | None = None,
    generation: int = 1,
    user_data: bytes | None = None,
) -> bytes:
    return encode_subscription(
        Subscription(
            topics=topics,
            owned=owned or Partitions(),
            generation=Generation(generation),
            user_data=user_data,
        )
    )


OURS = append_marks(None, SubscriptionMarks())
"""User data of a member of this package."""


def partitions(outcome: LeaderOutcome | Mapping[str, bytes]) -> dict[str, list[tuple[str, int]]]:
    sent = outcome.assignments if isinstance(outcome, LeaderOutcome) else outcome
    return {m: [(t, p) for t, p in decode_assignment(b).partitions] for m, b in sent.items()}


class Scripted:
    """A user's assignor that returns what it was told to."""

    name = "scripted"

    def __init__(
        self,
        plan: Callable[[GroupSubscription], object],
        protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.COOPERATIVE,),
    ) -> None:
        self.supported_protocols = protocols
        self._plan = plan
        self.saw: GroupSubscription = {}

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        return None

    def assign(self, cluster: Cluster, group: GroupSubscription) -> GroupAssignment:
        self.saw = group
        return cast(GroupAssignment, self._plan(group))

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        pass


def giving(**plan: Partitions) -> Scripted:
    return Scripted(lambda _: {m: Assignment(partitions=p) for m, p in plan.items()})


# --- decode --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known_names())
@pytest.mark.parametrize(
    "garbage", [b"", b"\xff", b"\0\1\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\2\xff\xff"]
)
def test_a_member_whose_bytes_do_not_parse_gets_nothing_and_the_others_all(
    name: str, garbage: bytes
) -> None:
    outcome = lead(name, {"t": 4}, {"bad": garbage, "good": member("t")})
    assert partitions(outcome) == {"bad": [], "good": [("t", p) for p in range(4)]}
    assert outcome.error is None
    assert any("'bad'" in w for w in outcome.warnings)
    assert outcome.subscriptions["bad"] == Subscription()


def test_a_thousand_bad_members_are_not_a_thousand_warnings() -> None:
    outcome = lead("range", {"t": 1}, {f"m{i}": b"" for i in range(1000)})
    assert len(outcome.warnings) == 11
    assert "990 more" in outcome.warnings[-1]


@pytest.mark.parametrize("name", known_names())
def test_nobody_and_nothing(name: str) -> None:
    assert lead(name, {}, {}).assignments == {}
    assert lead(name, {"t": 3}, {}).topics == ()
    for cluster in ({}, {"t": 0}, {"t": -3}):
        outcome = lead(name, cluster, {"m": member("t"), "n": member()})
        assert partitions(outcome) == {"m": [], "n": []}
        assert outcome.topics == ("t",), "a topic that may come to be is watched, too"
        assert not outcome.follow_up


@pytest.mark.parametrize("name", known_names())
def test_many_members_and_one_partition(name: str) -> None:
    outcome = lead(name, {"t": 1}, {f"m{i}": member("t") for i in range(3000)})
    assert sum(map(len, partitions(outcome).values())) == 1


def test_marks_are_taken_off_before_the_assignor_sees_the_user_data() -> None:
    scripted = giving()
    marked = append_marks(b"mine", SubscriptionMarks(rejoin=3))
    members = {
        "a": member("t", user_data=marked),
        "b": member("t", user_data=b"plain"),
        "c": member("t", user_data=append_marks(b"echo", AssignmentMarks(follow_up=True))),
    }
    outcome = lead(scripted, {"t": 1}, members, instance_ids={"a": "i1", "b": None})
    seen = {m: s.user_data for m, s in scripted.saw.items()}
    assert seen == {"a": b"mine", "b": b"plain", "c": b"echo"}
    assert {m: s.instance_id for m, s in outcome.subscriptions.items()} == {
        "a": "i1",
        "b": None,
        "c": None,
    }


def test_a_member_who_drains_gives_up_all_and_gets_nothing() -> None:
    owned = Partitions({"t": [0, 1, 2]})
    drains = append_marks(None, SubscriptionMarks(draining=True))
    members = {"a": member("t", owned=owned, user_data=drains), "b": member("t")}
    outcome = lead("cooperative-sticky", {"t": 4}, members)
    assert partitions(outcome) == {"a": [], "b": [("t", 3)]}
    assert outcome.withheld == owned
    assert outcome.follow_up
    assert outcome.topics == ("t",)
    assert outcome.subscriptions["a"].topics == ("t",)


def test_what_only_those_subscribe_to_who_drain_stays_theirs() -> None:
    """Were it taken from them, nobody would have it: nobody else is there to."""
    owned = Partitions({"t": [0, 1], "u": [0]})
    drains = append_marks(None, SubscriptionMarks(draining=True))
    members = {
        "a": member("t", "u", owned=owned, user_data=drains),
        "b": member("t", user_data=drains),
        "c": member("u"),
    }
    outcome = lead("cooperative-sticky", {"t": 2, "u": 1}, members)
    planned = {m: list(a.partitions) for m, a in outcome.intended.items()}
    assert planned["c"] == [("u", 0)]
    assert sorted(planned["a"] + planned["b"]) == [("t", 0), ("t", 1)]


def test_who_drains_from_a_join_takes_no_number_with_it() -> None:
    """The first of those that add a topic leaves again, and nobody else has that topic yet."""
    had = {"new": [0, 1], "old": [2, 3]}
    said = {
        m: encode_sticky(Claim(owned=Partitions({"": numbers}), generation=Generation(1)))
        for m, numbers in had.items()
    }
    drains = append_marks(said["new"], SubscriptionMarks(draining=True))
    members = {
        "new": member(
            "a", "b", "x", owned=Partitions(dict.fromkeys("abx", had["new"])), user_data=drains
        ),
        "old": member(
            "a", "b", owned=Partitions(dict.fromkeys("ab", had["old"])), user_data=said["old"]
        ),
    }
    outcome = lead("stream-join-sticky", dict.fromkeys("abx", 4), members)
    assert outcome.intended["old"].partitions == Partitions(dict.fromkeys("ab", range(4)))
    assert not outcome.intended["new"].partitions
    everyone = {m: member("a", "b", "x", user_data=drains) for m in had}
    alone = lead("stream-join-sticky", dict.fromkeys("abx", 4), everyone).intended
    assert {p for m in everyone for p in alone[m].partitions} == {
        (t, n) for t in "abx" for n in range(4)
    }, "where all drain, they keep what they have"


# --- the assignor --------------------------------------------------------------------------


def test_an_unknown_strategy_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="cooperative-sticky, fairest-sticky") as caught:
        lead("nonsense", {}, {})
    assert caught.value.key == "partition.assignment.strategy"


def boom(_: GroupSubscription) -> object:
    raise ZeroDivisionError("of mine")


@pytest.mark.parametrize(
    "plan",
    [
        boom,
        lambda _: None,
        lambda _: [1, 2],
        lambda _: {"a": "everything"},
        lambda _: {"a": Assignment(partitions=cast(Partitions, {"t": [0]}))},
        lambda _: {"a": Assignment(user_data=cast(bytes, "text"))},
    ],
)
def test_whatever_an_assignor_does_members_keep_what_is_rightfully_theirs(
    plan: Callable[[GroupSubscription], object],
) -> None:
    members = {
        "a": member("t", owned=Partitions({"t": [0, 1]})),
        "b": member("t", owned=Partitions({"t": [1, 2]}), generation=2),
        "c": member("t"),
    }
    outcome = lead(Scripted(plan), {"t": 5}, members)
    assert partitions(outcome) == {"a": [("t", 0)], "b": [("t", 1), ("t", 2)], "c": []}
    assert isinstance(outcome.error, AssignorFailedError)
    assert outcome.error.__cause__ is not None
    assert "scripted" in outcome.warnings[0]
    assert partitions(run_assignor(Scripted(plan), {"t": 5}, members)) == partitions(outcome)


def test_what_an_assignor_has_no_right_to_assign_is_left_out_and_said() -> None:
    scripted = giving(
        a=Partitions({"t": [0, 1, 7], "nowhere": [0]}),
        b=Partitions({"u": [0], "t": [-1]}),
        stranger=Partitions({"t": [2]}),
    )
    members = {"a": member("t"), "b": member("t"), "c": member("u")}
    outcome = lead(scripted, {"t": 3, "u": 1}, members)
    assert partitions(outcome) == {"a": [("t", 0), ("t", 1)], "b": [], "c": []}
    said = " ".join(outcome.warnings)
    assert "3 partitions of the plan do not exist" in said
    assert "1 members of the plan are not in the group" in said
    assert "1 partitions went to members not subscribed to them" in said
    assert isinstance(outcome.error, AssignorFailedError)
    assert all(warning in str(outcome.error) for warning in outcome.warnings)


def test_a_partition_given_twice_goes_to_its_owner_else_to_the_first() -> None:
    both = Partitions({"t": [0, 1]})
    scripted = giving(a=both, b=both)
    members = {"a": member("t"), "b": member("t", owned=Partitions({"t": [1]}))}
    outcome = lead(scripted, {"t": 2}, members)
    assert partitions(outcome) == {"a": [("t", 0)], "b": [("t", 1)]}
    assert "2 partitions of the plan went to more than one member" in outcome.warnings


def test_user_data_of_a_plan_reach_their_member_before_the_marks() -> None:
    scripted = Scripted(lambda _: {"a": Assignment(user_data=b"for a")})
    outcome = lead(scripted, {"t": 1}, {"a": member("t"), "b": member("t")})
    sent = {m: decode_assignment(b).user_data for m, b in outcome.assignments.items()}
    assert split_marks(sent["a"])[0] == b"for a"
    assert split_marks(sent["b"])[0] == b""


# --- withhold ------------------------------------------------------------------------------


def test_what_another_member_owns_is_withheld_until_it_is_revoked() -> None:
    owned = Partitions({"t": [0, 1, 2, 3]})
    first = lead("cooperative-sticky", {"t": 4}, {"a": member("t", owned=owned), "b": member("t")})
    got = decode_assignment(first.assignments["a"]).partitions
    assert len(got) == 2
    assert partitions(first)["b"] == []
    assert first.withheld == owned - got
    assert first.intended["b"].partitions == first.withheld
    assert first.follow_up
    then = lead("cooperative-sticky", {"t": 4}, {"a": member("t", owned=got), "b": member("t")})
    assert decode_assignment(then.assignments["b"]).partitions == first.withheld
    assert not then.withheld
    assert not then.follow_up


def test_a_beaten_claim_counts_as_a_transfer() -> None:
    """A zombie may still be consuming what it lost to somebody else (franz-go's d7ae9db9)."""
    members = {
        "new": member("t", owned=Partitions({"t": [0, 1, 2]}), generation=9),
        "zombie": member("t", owned=Partitions({"t": [2]}), generation=7),
        "third": member("t"),
    }
    scripted = giving(
        new=Partitions({"t": [0]}), zombie=Partitions({"t": [1]}), third=Partitions({"t": [2]})
    )
    outcome = lead(scripted, {"t": 3}, members)
    assert outcome.withheld == Partitions({"t": [1, 2]})
    assert partitions(outcome) == {"new": [("t", 0)], "zombie": [], "third": []}


def test_the_rightful_owner_keeps_what_a_zombie_claims_too() -> None:
    members = {
        "owner": member("t", owned=Partitions({"t": [0]}), generation=9),
        "zombie": member("t", owned=Partitions({"t": [0]}), generation=8),
    }
    outcome = lead("cooperative-sticky", {"t": 1}, members)
    assert partitions(outcome) == {"owner": [("t", 0)], "zombie": []}
    assert not outcome.withheld
    assert outcome.follow_up, "the zombie has to revoke"


def test_what_is_given_back_to_one_of_two_equal_claimants_waits_for_the_other() -> None:
    both = member("t", owned=Partitions({"t": [0]}))
    outcome = lead("cooperative-sticky", {"t": 1}, {"a": both, "b": both})
    assert partitions(outcome) == {"a": [], "b": []}
    assert outcome.withheld == Partitions({"t": [0]})


def test_somebody_who_has_only_to_revoke_is_a_follow_up_too() -> None:
    scripted = giving(a=Partitions())
    outcome = lead(scripted, {"t": 1}, {"a": member("t", owned=Partitions({"t": [0]}))})
    assert not outcome.withheld
    assert outcome.follow_up


def test_claims_on_what_is_not_there_are_no_reason_for_another_round() -> None:
    owned = Partitions({"gone": [0], "t": [0, 99]})
    outcome = lead("cooperative-sticky", {"t": 1}, {"a": member("t", owned=owned)})
    assert partitions(outcome) == {"a": [("t", 0)]}
    assert not outcome.follow_up


def test_under_an_eager_strategy_nothing_is_withheld() -> None:
    """Its members revoked all before they joined; whoever says otherwise is not believed.

    In the two-bounce upgrade members of both kinds meet under cooperative-sticky only: as long
    as one member knows but the eager strategy, those who know both run eagerly.
    """
    members = {"a": member("t", owned=Partitions({"t": [0, 1, 2, 3]})), "b": member("t")}
    for name in ("range", "roundrobin", "sticky"):
        outcome = lead(name, {"t": 4}, members)
        assert sorted(map(len, partitions(outcome).values())) == [2, 2]
        assert not outcome.follow_up
    mixed = lead("cooperative-sticky", {"t": 4}, members)
    assert sorted(map(len, partitions(mixed).values())) == [0, 2]


def test_topics_that_the_leader_does_not_see_are_named() -> None:
    """Its own rights may be fewer than those of who subscribes to them."""
    members = {"a": member("t"), "b": member("t", "hidden")}
    outcome = lead("cooperative-sticky", {"t": 2}, members)
    assert sum(map(len, partitions(outcome).values())) == 2
    (said,) = outcome.warnings
    assert "nobody gets a partition of hidden: " in said
    assert not lead("cooperative-sticky", {"t": 2, "hidden": 1}, members).warnings


def test_what_is_claimed_under_a_strategy_that_this_leader_takes_for_eager_is_withheld() -> None:
    """A version of it may be newer, and cooperative: its members have still what they say."""
    plan = {
        "a": Assignment(partitions=Partitions({"t": [0]})),
        "b": Assignment(partitions=Partitions({"t": [1]})),
    }
    scripted = Scripted(lambda _: plan, protocols=(RebalanceProtocol.EAGER,))
    members = {"a": member("t", owned=Partitions({"t": [0, 1]})), "b": member("t")}
    outcome = lead(scripted, {"t": 2}, members)
    assert partitions(outcome) == {"a": [("t", 0)], "b": []}
    assert outcome.follow_up


# --- encode --------------------------------------------------------------------------------


@pytest.mark.parametrize("follow_up", [False, True])
def test_the_assignment_says_whether_another_round_comes_and_how_often_to_beat(
    follow_up: bool,
) -> None:
    owned = Partitions({"t": [0, 1] if follow_up else [0]})
    members = {"a": member("t", owned=owned, user_data=OURS), "b": member("t", user_data=OURS)}
    outcome = lead("cooperative-sticky", {"t": 2}, members)
    for data in outcome.assignments.values():
        user_data, marks = split_marks(decode_assignment(data).user_data)
        assert user_data == b""
        assert marks == AssignmentMarks(
            follow_up=follow_up, ahead=follow_up, heartbeat_interval=timedelta(milliseconds=10)
        )


def test_the_leaders_own_assignment_alone_says_that_it_leads() -> None:
    members = {name: member("t", user_data=OURS) for name in "abc"}
    outcome = lead("range", {"t": 3}, members, leader="b", generation=Generation(7))
    marks = {
        m: split_marks(decode_assignment(d).user_data)[1] for m, d in outcome.assignments.items()
    }
    interval = timedelta(milliseconds=10)
    assert marks == {
        "a": AssignmentMarks(heartbeat_interval=interval),
        "b": AssignmentMarks(heartbeat_interval=interval, leads=Generation(7)),
        "c": AssignmentMarks(heartbeat_interval=interval),
    }
    gone = lead("range", {"t": 3}, members, leader="d", generation=Generation(7))
    assert gone.assignments == lead("range", {"t": 3}, members).assignments


def test_sticky_assignments_are_the_bytes_java_sends() -> None:
    outcome = lead("sticky", {"t": 1}, {"a": member("t")})
    assert outcome.assignments["a"] == b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("members", "milliseconds"),
    [
        (0, 100),
        (1, 100),
        (2, 10),
        (4, 10),
        (5, 12.5),
        (7, 24.5),
        (10, 50),
        (20, 200),
        (25, 250),
        (300, 3000),
        (9999, 3000),
    ],
)
def test_the_group_beats_a_hundred_times_a_second_and_a_small_one_more_often(
    members: int, milliseconds: float
) -> None:
    assert suggested_heartbeat_interval(members) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("range", None),
        ("roundrobin", None),
        ("sticky", None),
        ("cooperative-sticky", AssignmentMarks(heartbeat_interval=timedelta(milliseconds=10))),
        ("fairest-sticky", AssignmentMarks(heartbeat_interval=timedelta(milliseconds=10))),
    ],
)
def test_a_group_of_ours_is_told_its_pace_under_a_cooperative_strategy_alone(
    strategy: str, told: AssignmentMarks | None
) -> None:
    """By what members really send, none of which has forced a rejoin."""
    sent = subscription_bytes(
        resolve(strategy),
        interest=Interest(topics=("t",)),
        owned=NO_PARTITIONS,
        applied=NO_GENERATION,
        rack=None,
        rejoins=0,
    )
    for data in lead(strategy, {"t": 3}, dict.fromkeys("abc", sent)).assignments.values():
        _, marks = split_marks(decode_assignment(data).user_data)
        assert marks == told


def test_beside_a_member_of_another_client_no_pace_is_suggested() -> None:
    members = {"a": member("t", user_data=OURS), "b": member("t"), "c": member("t", user_data=OURS)}
    for name, data in lead("range", {"t": 3}, members).assignments.items():
        _, marks = split_marks(decode_assignment(data).user_data)
        assert marks == (None if name == "b" else AssignmentMarks())


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_members_of_another_client_get_javas_bytes_under_an_eager_strategy(strategy: str) -> None:
    """Sarama's send an assignment's user data back in place of their own, under any strategy.

    Once the group runs on sticky, its leader refuses all that is no claim there.
    """
    members = {"a": member("t", user_data=b"of its user"), "b": member("t")}
    outcome = lead(strategy, {"t": 2}, members, leader="b", generation=Generation(7))
    assert outcome.assignments["a"] == b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


def test_partitions_may_be_given_by_count_or_as_a_cluster() -> None:
    members = {"a": member("t"), "b": member("t")}
    counted = run_assignor("range", {"t": 5}, members)
    assert counted == run_assignor(resolve("range"), Cluster(partitions={"t": 5}), members)


def test_an_assignor_is_what_the_protocol_says() -> None:
    scripted: Assignor = giving()
    assert isinstance(scripted, Assignor)


# --- what it costs -------------------------------------------------------------------------


@given(
    strategy=st.sampled_from(sorted(known_names())),
    owned=st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
def test_a_plan_moves_no_fewer_than_the_bound_and_ours_exactly_as_many(
    strategy: str, owned: list[int]
) -> None:
    count = len(owned)
    members = {
        f"m{i}": member(
            "t",
            owned=Partitions({"t": [p for p, o in enumerate(owned) if o == i]}),
            generation=1,
        )
        for i in range(4)
    }
    costs = lead(strategy, {"t": count}, members).figures
    assert costs.partitions == count
    assert costs.fewest <= costs.moved
    if strategy in ("cooperative-sticky", "constrained-cooperative-sticky", "fairest-sticky"):
        assert costs.moved == costs.fewest == costs.withheld


def test_a_single_claim_is_waited_for() -> None:
    owned = Partitions({"t": [0]})
    drains = append_marks(None, SubscriptionMarks(draining=True))
    members = {"a": member("t", owned=owned, user_data=drains), "b": member("t")}
    outcome = lead("cooperative-sticky", {"t": 1}, members)
    assert partitions(outcome) == {"a": [], "b": []}
    assert outcome.withheld == owned
    dropped = lead(giving(), {"t": 1}, {"a": member("t", owned=owned)})
    assert not dropped.withheld
    assert dropped.follow_up, "it has to revoke its one partition"
