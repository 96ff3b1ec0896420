"""What is read out of a group: leader, user data, the next round's moves, the timeline."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cli_groups import look, member, owning, settled
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, ConsoleDimensions

from kafka_coop.assignors import CooperativeSticky, known_names
from kafka_coop.cli.describing import description, print_description
from kafka_coop.cli.forecast import forecast
from kafka_coop.cli.group import GroupLook, MemberLook, look_at_member, named
from kafka_coop.cli.timeline import Timeline
from kafka_coop.cli.userdata import explain
from kafka_coop.cli.watch_screen import View, chosen, picture, status_line
from kafka_coop.cli.words import to_json
from kafka_coop.leader import lead
from kafka_coop.planning.picture import svg
from kafka_coop.protocol.assignment import encode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.protocol.user_data import Claim, encode_generation, encode_sticky
from kafka_coop.types import (
    NO_PARTITIONS,
    Assignment,
    Cluster,
    Generation,
    Partitions,
    Subscription,
    TopicPartition,
)

TWO = {"a": ("t",), "b": ("t",)}


class Mine(CooperativeSticky):
    """A strategy that is not built in."""

    name = "mine"


def described(seen: GroupLook, width: int, *, partitions: bool = True) -> str:
    console = Console(width=width, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    print_description(console, seen, forecast(seen), partitions=partitions)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- who leads -----------------------------------------------------------------------------


def test_the_leader_is_known_by_its_own_mark() -> None:
    seen = settled("cooperative-sticky", {"t": 4}, TWO, leader="b", generation=7)
    assert seen.leader is not None
    assert (seen.leader.name, seen.generation) == ("b", 7)


def test_without_marks_the_leader_is_known_of_a_group_of_one_alone() -> None:
    alone = look("range", {"t": 1}, [owning("a", "t", 0)])
    assert alone.leader is alone.members[0]
    assert look("range", {"t": 2}, [owning("a", "t", 0), owning("b", "t", 1)]).leader is None


def test_members_of_one_client_id_are_told_apart() -> None:
    twins = [
        look_at_member(member_id=i, client_id="rdkafka", host="", metadata=b"", assignment=b"")
        for i in ("rdkafka-11-ab", "rdkafka-22-cd")
    ]
    assert [m.name for m in named(twins)] == ["rdkafka~1-ab", "rdkafka~2-cd"]


def test_members_whose_ids_end_alike_are_told_apart_too() -> None:
    """Else what is kept by name, as the next round's plan is, would have one of them alone."""
    cluster = {"t": 4}
    sent = encode_subscription(Subscription(topics=("t",)))
    twins = [
        look_at_member(
            member_id=f"rdkafka-{n}-beef",
            client_id="rdkafka",
            host="",
            metadata=sent,
            assignment=encode_assignment(Assignment(partitions=Partitions({"t": owned}))),
        )
        for n, owned in ((1, [0, 1]), (2, [2, 3]))
    ]
    seen = look("cooperative-sticky", cluster, twins)
    assert [m.name for m in seen.members] == ["rdkafka~1-beef", "rdkafka~2-beef"]
    assert forecast(seen).changes == ()


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_the_next_round_goes_by_the_order_of_ids_and_speaks_of_names(strategy: str) -> None:
    """As its leader does. Java's members share a client id, and librdkafka's: their names are in
    the order of their ids' ends."""
    ids = [f"rdkafka-{n}-{end}" for n, end in enumerate(["cccc", "bbbb", "aaaa"])]
    sent = encode_subscription(Subscription(topics=("t",)))
    given = lead(strategy, {"t": 3}, dict.fromkeys(ids, sent)).assignments
    members = [
        look_at_member(
            member_id=i, client_id="rdkafka", host="", metadata=sent, assignment=given[i]
        )
        for i in ids
    ]
    seen = look(strategy, {"t": 3}, members)
    assert forecast(seen).changes == ()
    planned = forecast(seen).plan
    assert planned is not None
    left = planned.leave("rdkafka~cccc")
    assert [m.member for m in left.by_member] == ["rdkafka~bbbb", "rdkafka~aaaa"]
    assert {p.destination for p in left.partitions} == {"rdkafka~bbbb", "rdkafka~aaaa"}
    assert "rdkafka~bbbb" in svg(left)


# --- user data -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "user_data", "words"),
    [
        ("cooperative-sticky", None, ""),
        ("cooperative-sticky", encode_generation(Generation(4)), "generation 4"),
        (
            "sticky",
            encode_sticky(Claim(owned=Partitions({"t": [0, 1, 3]}), generation=Generation(2))),
            "generation 2; claims t 0-1 3",
        ),
        ("mine", b"\1\2\3\4\5", "5 bytes of a strategy unknown here: 01 02030405"),
        (
            "mine",
            append_marks(b"x" * 40, SubscriptionMarks(draining=True, rejoin=2)),
            f"40 bytes of a strategy unknown here: {'78787878 ' * 4}…; draining; rejoins 2",
        ),
        (
            "load-aware-sticky",
            append_marks(None, SubscriptionMarks(load={TopicPartition("t", 0): 2.5})),
            "load 2.5 on 1 partitions",
        ),
        (
            "cooperative-sticky",
            append_marks(None, SubscriptionMarks(busy=True)),
            "its user is busy",
        ),
    ],
)
def test_user_data_in_words(strategy: str, user_data: bytes | None, words: str) -> None:
    assert explain(owning("a", "t", 0, user_data=user_data), strategy) == words


def test_what_the_leader_recalled_in_words() -> None:
    marks = AssignmentMarks(follow_up=True, recalled={"java-1\x1b": Partitions({"t": [2]})})
    assert told(marks) == "told that another round comes; told that java-1\\x1b is to get back t 2"


def test_what_the_leader_announced_in_words() -> None:
    ahead = AssignmentMarks(follow_up=True, ahead=True)
    assert told(ahead) == "told that another round comes, and to begin it"
    assert told(AssignmentMarks()) == ""


def told(marks: AssignmentMarks) -> str:
    assignment = encode_assignment(Assignment(user_data=append_marks(b"", marks)))
    return explain(member("a", assignment=assignment), "cooperative-sticky")


@given(st.binary(), st.binary(), st.sampled_from([*known_names(), "mine"]))
def test_no_bytes_of_a_member_break_the_description(
    metadata: bytes, assignment: bytes, strategy: str
) -> None:
    hostile = member("a", metadata=metadata, assignment=assignment)
    seen = look(strategy, {"t": 2}, [hostile, owning("b", "t", 0)])
    json.dumps(description(seen, forecast(seen)))
    described(seen, 80)


# --- the next round ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", sorted(known_names()))
@given(counts=st.dictionaries(st.sampled_from("tuv"), st.integers(1, 7), min_size=1), n=st.data())
def test_a_settled_group_is_to_move_nothing(
    strategy: str, counts: dict[str, int], n: st.DataObject
) -> None:
    """The round after one that nobody claimed anything in is everyone's first of claims."""
    size = n.draw(st.integers(1, 4))
    seen = settled(strategy, counts, {f"m{i}": tuple(counts) for i in range(size)})
    assert forecast(seen).changes == ()
    assert after(seen) == {m.name: len(m.assigned) for m in seen.members}


def after(seen: GroupLook) -> dict[str, int]:
    planned = forecast(seen).plan
    assert planned is not None
    return {m.member: m.after for m in planned.by_member}


def test_moves_are_those_the_leader_would_make() -> None:
    seen = look("cooperative-sticky", {"t": 4}, [owning("a", "t", 0, 1, 2, 3), owning("b", "t")])
    assert [(c.source, c.destination) for c in forecast(seen).changes] == [("a", "b")] * 2
    assert after(seen) == {"a": 2, "b": 2}


def test_a_new_partition_comes_from_nobody() -> None:
    seen = look("range", {"t": 2}, [owning("a", "t", 0)])
    (change,) = forecast(seen).changes
    assert (change.partition, change.source, change.destination) == (1, None, "a")
    assert seen.unowned == (("t", 1),)


def test_an_unknown_strategy_needs_its_class() -> None:
    seen = look("mine", {"t": 2}, [owning("a", "t", 0, 1), owning("b", "t")])
    assert "--assignor" in forecast(seen).unknown
    assert len(forecast(seen, Mine()).changes) == 1


def test_another_strategys_class_is_no_forecast_of_this_group() -> None:
    seen = look("mine", {"t": 2}, [owning("a", "t", 0, 1), owning("b", "t")])
    assert "'mine'" in forecast(seen, CooperativeSticky()).unknown


def test_no_forecast_is_made_of_what_the_broker_hides() -> None:
    hidden = look("range", {"t": 2}, [member("a")], state="PreparingRebalance")
    assert "PreparingRebalance" in forecast(hidden).unknown
    assert "no members" in forecast(look("", {}, [], state="Empty")).unknown


def test_no_forecast_is_made_without_the_topics_that_are_owned() -> None:
    """To credentials that may not describe a topic it is as if there were none."""
    seen = look("cooperative-sticky", {}, [owning("a", "t", 0, 1), owning("b", "t")])
    assert "members own partitions of t, and no broker shows" in forecast(seen).unknown
    text = described(seen, 100)
    assert "not seen     t: no such topic, or not for these credentials to see" in text
    assert "not known: no broker shows its topics" in text
    assert description(seen, forecast(seen))["topics_not_seen"] == ["t"]


def test_a_topic_that_there_is_not_is_named() -> None:
    """A misspelt one, as a rule: nobody owns anything of it."""
    seen = settled("cooperative-sticky", {"orders": 2}, {"a": ("ordrs", "orders")})
    assert "not seen     ordrs: no such topic" in described(seen, 100)
    assert forecast(seen).changes == ()


def test_without_subscriptions_it_is_said_what_nobody_has_of_the_topics_that_are_owned() -> None:
    owner = replace(owning("a", "t", 0), subscription=None)
    untold = replace(look("range", {"t": 2}, [owner]), untold="a broker is silent")
    text = described(untold, 100)
    assert "unowned      1: t 1\n" in re.sub(" +\n", "\n", text)
    assert "not told     a broker is silent" in text
    assert "a broker is silent" in forecast(untold).unknown


def test_names_that_move_the_cursor_are_written_out() -> None:
    evil = look("range\x1b[2J", {"t": 1}, [owning("a\x1b[2J", "t\x1b[2J", 0)])
    assert "\x1b" not in described(evil, 80)


def test_nor_does_the_end_of_an_id_by_which_members_are_told_apart() -> None:
    """A member of KIP-848 chooses its own."""
    twins = [
        look_at_member(member_id=i, client_id="c", host="", metadata=b"", assignment=b"")
        for i in ("A\x1b[2J", "B\x1b[2J")
    ]
    assert not any("\x1b" in m.name for m in named(twins))


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x9b", "\u202e", "\n"])
def test_json_holds_nothing_that_a_terminal_heeds(
    character: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding="utf-8"))
    value = {"name": f"é{character}"}
    text = to_json(value)
    monkeypatch.undo()
    assert json.loads(text) == value
    assert "é" in text
    assert character not in text.replace("\n", "")
    assert text.count("\n") == 2, "its own"


# --- where the broker assigns (KIP-848) ----------------------------------------------------


def test_a_broker_that_assigns_tells_what_is_on_its_way_and_what_has_nobody() -> None:
    def partitions(*numbers: int) -> Partitions:
        return Partitions({"t": numbers})

    one, two = (
        MemberLook(id=n, name=n, client_id=n, host="", assigned=has, target=wants)
        for n, has, wants in (
            ("a", partitions(0, 1), partitions(0)),
            ("b", NO_PARTITIONS, partitions(1, 3)),
        )
    )
    seen = GroupLook(
        id="g",
        state="Reconciling",
        kind="consumer",
        members=(one, two),
        cluster=Cluster(partitions={"t": 4, "read once": 1}),
        committed={TopicPartition("read once", 0): 1},
    )
    assert [p.partition for p in seen.on_their_way] == [1, 3]
    assert seen.unowned == (("t", 2), ("t", 3))
    assert "under way   the broker gives 2: t 1, t 3 to others" in described(seen, 100)
    assert description(seen, forecast(seen))["members"][1]["target"] == {"t": [1, 3]}


# --- lag -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committed", "ends", "words"),
    [
        ({}, {}, "not known: the group has committed nothing"),
        ({1: 5, 2: 5}, {1: 5, 2: 5}, "0; not known of 1 partition without a commit"),
        ({1: 5, 2: 5}, {1: 7, 2: 1005}, "1,002, most on t 2: 1,000; not known of 1 partition"),
        ({0: 1, 1: 5, 2: 5}, {1: 5, 2: 5}, "0; not known of 1 partition\n"),
        ({0: 1, 1: 5, 2: 5}, {0: 1, 1: 5, 2: 6}, "1, most on t 2: 1\n"),
    ],
)
def test_lag_is_summed_where_it_is_known(
    committed: dict[int, int], ends: dict[int, int], words: str
) -> None:
    seen = look(
        "range",
        {"t": 3},
        [owning("a", "t", 0, 1, 2)],
        committed={TopicPartition("t", p): offset for p, offset in committed.items()},
        ends={TopicPartition("t", p): offset for p, offset in ends.items()},
    )
    lines = described(seen, 100).splitlines()
    (line,) = (line for line in lines if line.startswith("lag "))
    assert words in f"{line.removeprefix('lag').strip()}\n"


def test_a_lag_that_could_not_be_read_of_all_is_not_known() -> None:
    """The leader of partition 1 is away. What is left of the sum would look like a group that has
    caught up."""
    seen = replace(
        look(
            "range",
            {"t": 2},
            [owning("a", "t", 0), owning("b", "t", 1)],
            committed={TopicPartition("t", 0): 5, TopicPartition("t", 1): 5},
            ends={TopicPartition("t", 0): 7},
        ),
        unread="some logs' ends can't be read",
    )
    told = description(seen, forecast(seen))
    assert (told["lag"], told["lag_unknown_because"]) == (None, "some logs' ends can't be read")
    assert [m["lag"] for m in told["members"]] == [2, None]
    assert status_line(seen).endswith(" · lag not known: some logs' ends can't be read")


# --- the timeline --------------------------------------------------------------------------


def test_a_member_joins_and_what_it_is_given_moves() -> None:
    timeline = Timeline()
    before = settled("cooperative-sticky", {"t": 4}, {"a": ("t",)}, generation=1)
    after = settled("cooperative-sticky", {"t": 4}, TWO, generation=3)
    assert timeline.see(before) == []
    joining = look("", {"t": 4}, [member("a"), member("b")], state="PreparingRebalance")
    assert [h.text for h in timeline.see(joining)] == [
        "b joined",
        "Stable → PreparingRebalance",
    ]
    texts = [h.text for h in timeline.see(after)]
    assert texts == [
        "PreparingRebalance → Stable",
        "rebalance to generation 3: 2 partitions moved (a → b: 2)",
    ]
    assert timeline.see(after) == []


def test_a_member_dies_and_its_partitions_have_no_owner() -> None:
    timeline = Timeline()
    timeline.see(look("range", {"t": 2}, [owning("a", "t", 0), owning("b", "t", 1)]))
    happened = timeline.see(look("range", {"t": 2}, [owning("a", "t", 0)]))
    assert [h.text for h in happened] == [
        "b left",
        "rebalance: 1 partition moved (b → nobody: 1)",
        "nobody owns t 1",
    ]


def test_a_static_member_that_comes_back_in_time_has_moved_nothing() -> None:
    """Without a round it is given what it had, under a new member id (KIP-345)."""
    before = settled("cooperative-sticky", {"t": 4}, TWO)
    a, b = (replace(m, instance_id=m.name) for m in before.members)
    a_again = replace(a, id="another-id")
    timeline = Timeline()
    timeline.see(replace(before, members=(a, b)))
    (returned,) = timeline.see(replace(before, members=(a_again, b)))
    assert (returned.kind, returned.text) == ("returned", "a came back to its place")
    assert returned.facts == {"member": "a", "member_id": "another-id"}
    assert timeline.see(replace(before, members=(a_again, b))) == []


def test_one_that_came_too_late_left_and_joined() -> None:
    before = settled("cooperative-sticky", {"t": 4}, TWO)
    a, b = (replace(m, instance_id=m.name) for m in before.members)
    timeline = Timeline()
    timeline.see(replace(before, members=(a, b)))
    alone = replace(a, assigned=a.assigned | b.assigned)
    assert [h.kind for h in timeline.see(replace(before, members=(alone,)))] == [
        "left",
        "rebalance",
    ]
    back = timeline.see(replace(before, members=(a, replace(b, id="another-id"))))
    assert [h.kind for h in back] == ["joined", "rebalance"]


def test_what_was_not_told_for_a_while_did_not_happen() -> None:
    """Where some broker is silent there are no marks, hence no generation and no leader."""
    told = settled("cooperative-sticky", {"t": 4}, TWO)
    silent = [replace(m, subscription=None, assignment_marks=None) for m in told.members]
    untold = replace(told, members=tuple(silent), untold="a broker is silent")
    timeline = Timeline()
    assert [timeline.see(seen) for seen in (told, untold, told)] == [[], [], []]


# --- screens -------------------------------------------------------------------------------

CROWD = settled(
    "cooperative-sticky",
    {"a-topic-with-quite-a-long-name": 40, "t": 300},
    {f"orders-service-{i:03}": ("a-topic-with-quite-a-long-name", "t") for i in range(60)},
)


@pytest.mark.parametrize("width", [20, 40, 72, 80, 200])
def test_a_description_fits_into_the_terminal(width: int) -> None:
    lines = described(CROWD, width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("orders-service-059"[:8] in line for line in lines)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
@pytest.mark.parametrize("trouble", ["", "can't reach broker:9092: " + "x" * 300])
def test_the_live_screen_fits_into_the_terminal(size: tuple[int, int], trouble: str) -> None:
    width, height = size
    timeline = Timeline()
    timeline.see(look("range", {"t": 300}, []))
    happened = [("12:00:00", h) for h in timeline.see(CROWD)]
    console = Console(width=width, height=height, file=io.StringIO(), markup=False)
    dimensions = ConsoleDimensions(width, height)
    console.print(picture(CROWD, happened, View(), dimensions, trouble))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_keys_sort_and_filter() -> None:
    seen = look(
        "range",
        {"t": 3},
        [owning("a", "t", 0, 1), owning("b", "t", 2), owning("c", "u")],
        committed={TopicPartition("t", p): 0 for p in range(3)},
        ends={TopicPartition("t", 0): 1, TopicPartition("t", 1): 1, TopicPartition("t", 2): 9},
    )
    view = View()

    def after(keys: str) -> list[str]:
        assert all(view.press(key) for key in keys)
        return [m.name for m in chosen(seen, view)]

    assert after("") == ["a", "b", "c"]
    assert after("l") == ["b", "a", "c"]
    assert after("c") == ["a", "b", "c"]
    assert after("nr") == ["c", "b", "a"]
    assert after("r/q\x7fb\n") == ["b"]
    assert after("\x1b") == ["a", "b", "c"]
    assert after("/t\n") == ["a", "b"]  # members with partitions of t
    assert not view.press("q")


def test_the_group_in_one_line() -> None:
    seen = settled("cooperative-sticky", {"t": 5}, TWO, generation=9)
    assert status_line(seen) == "Stable · 2 members · 5 partitions, 2-3 each · generation 9"


def test_the_leaders_interval_is_said_once() -> None:
    ours = append_marks(None, SubscriptionMarks())
    text = described(settled("cooperative-sticky", {"t": 2}, TWO, user_data=ours), 80)
    assert text.count("every 10 ms") == 1
