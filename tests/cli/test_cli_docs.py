"""docs/CLI.md names what `--json` prints: each field, and none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from cli_groups import look, member, owning, settled

from kafka_coop.cli.describing import description
from kafka_coop.cli.forecast import forecast
from kafka_coop.cli.plan_json import plan_json
from kafka_coop.cli.timeline import Timeline
from kafka_coop.planning import GroupPlan
from kafka_coop.protocol.assignment import encode_assignment
from kafka_coop.protocol.marks import AssignmentMarks, SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.protocol.user_data import encode_generation
from kafka_coop.types import Assignment, Generation, Partitions, Subscription, TopicPartition

DOCS = (Path(__file__).parents[2] / "docs" / "CLI.md").read_text()
JSON = DOCS[DOCS.index("## What `--json` prints") : DOCS.index("## Exit status")]

NAMES = {"t", "a", "b", "b-id"}
"""Topics and members, which are keys, too."""


def fields(value: object) -> Iterator[str]:
    """The name of every field in it, however deep."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in NAMES:
                yield key
            yield from fields(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from fields(inner)


def documented(heading: str) -> set[str]:
    """The words in backticks of the table under this heading."""
    rows = JSON[JSON.index(f"| {heading} |") :].split("\n\n", 1)[0].splitlines()[2:]
    return set(re.findall(r"`(\w+)`", "\n".join(rows)))


def described() -> dict[str, Any]:
    """A group in which everything that may be told is."""
    sent = SubscriptionMarks(rejoin=1, draining=True, busy=True, load={TopicPartition("t", 0): 2.5})
    told = AssignmentMarks(
        follow_up=True,
        ahead=True,
        heartbeat_interval=timedelta(milliseconds=50),
        leads=Generation(4),
        recalled={"b-id": Partitions({"t": [2]})},
    )
    data = append_marks(encode_generation(Generation(3)), sent)
    metadata = encode_subscription(Subscription(topics=("t",), user_data=data))
    assignment = encode_assignment(
        Assignment(partitions=Partitions({"t": [0]}), user_data=append_marks(b"", told))
    )
    ours = member("a", metadata=metadata, assignment=assignment)
    ours = replace(ours, target=Partitions({"t": [0, 1]}))
    seen = look("cooperative-sticky", {"t": 4}, [ours, owning("b", "t", 1, 2)])
    return description(seen, forecast(seen))


def plan() -> GroupPlan:
    seen = settled("cooperative-sticky", {"t": 4}, {"a": ("t",)})
    made = forecast(replace(seen, members=(*seen.members, member("b", metadata=joins())))).plan
    assert made is not None
    return made


def joins() -> bytes:
    return encode_subscription(Subscription(topics=("t",)))


def test_every_field_of_describe() -> None:
    printed = described()
    assert printed.pop("next_rebalance") is not None
    (first, *_) = printed["members"]
    user_data = first.pop("user_data")
    marks = {*fields(user_data)}
    assert {"busy", "ahead", "recalled", "load"} <= marks
    assert marks == documented("Field of `user_data`")
    own = {*fields(first)}
    assert own | {"user_data"} == documented("Field of a member")
    printed["members"] = []
    assert {*fields(printed), "next_rebalance"} == documented("Field") - {"plan"}


def test_every_field_of_a_plan() -> None:
    printed = plan_json(plan())
    assert printed["changes"]
    assert {*fields(printed)} == documented("Field of a plan")


def test_every_event_of_watch() -> None:
    """And its facts. `look` and `trouble` are the command's own."""
    two = {"a": ("t",), "b": ("t",)}
    looks = [
        settled("cooperative-sticky", {"t": 4}, {"a": ("t",)}, generation=3),
        settled("cooperative-sticky", {"t": 4}, two, generation=4, leader="b"),
        replace(settled("cooperative-sticky", {"t": 4}, two, generation=5), state="Rebalancing"),
        settled("cooperative-sticky", {"t": 4}, {"a": ("t",)}, generation=6),
        look("cooperative-sticky", {"t": 4}, [owning("a", "t", 0)]),
    ]
    timeline = Timeline()
    happened = [h for seen in looks for h in timeline.see(seen)]
    table = documented("`event`")
    kinds = {h.kind for h in happened}
    assert {"joined", "left", "leader", "state", "rebalance", "unowned"} <= kinds <= table
    facts = {"text", *(f for h in happened for f in fields(h.facts))}
    looked = {"look", "trouble", "returned", "members", "lag", "lag_unknown_because"}
    assert table == kinds | facts | looked
