"""`kafka-coop describe`: one look at a group, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafka_coop.cli.forecast import Forecast
from kafka_coop.cli.group import GroupLook, MemberLook
from kafka_coop.cli.plan_json import plan_json
from kafka_coop.cli.userdata import as_json, explain, heartbeats
from kafka_coop.cli.words import NARROW, count, plural, ranges, spread
from kafka_coop.planning import GroupPlan
from kafka_coop.printable import shown

_MOST_MOVES: Final = 20
_MOST_TOPICS: Final = 5
_STATES: Final = {"Stable": "green", "Empty": "yellow"}


def print_description(
    console: Console, look: GroupLook, next_round: Forecast, *, partitions: bool
) -> None:
    """Prints a look at a group in as many columns as there are."""
    narrow = console.width < NARROW
    console.print(_heading(look))
    console.print(_overview(look, next_round))
    if look.members:
        console.print()
        console.print(_stacked(look) if narrow else _members(look))
    if partitions:
        console.print()
        console.print(_partitions(look, narrow=narrow))
    console.print()
    console.print(_forecast(next_round))


def description(look: GroupLook, next_round: Forecast) -> dict[str, Any]:
    """The same, and all of it, as JSON-able values. Absent knowledge is null."""
    leader = look.leader
    return {
        "group": look.id,
        "state": look.state,
        "type": look.kind,
        "assignor": look.assignor or None,
        "generation": None if look.generation is None else int(look.generation),
        "leader": None if leader is None else leader.id,
        "coordinator": look.coordinator,
        "follow_up_announced": look.follow_up,
        "members": [_member_json(look, member) for member in look.members],
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "owner": look.owners[p].id if p in look.owners else None,
                "committed": look.committed.get(p),
                "end": look.ends.get(p),
                "lag": look.lag(p),
            }
            for p in look.partitions
        ],
        "topics_not_seen": list(look.unseen),
        "unowned": [{"topic": p.topic, "partition": p.partition} for p in look.unowned],
        "subscriptions_unknown_because": look.untold or None,
        "lag": look.total_lag,
        "lag_unknown_because": look.unread,
        "next_rebalance": _forecast_json(next_round),
        "next_rebalance_unknown_because": next_round.unknown or None,
    }


def _member_json(look: GroupLook, member: MemberLook) -> dict[str, Any]:
    sent = member.subscription
    return {
        "member_id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "rack": None if sent is None else sent.rack,
        "topics": None if sent is None else list(sent.topics),
        "assigned": {t: indices.tolist() for t, indices in member.assigned.items()},
        "target": (
            None
            if member.target is None
            else {t: indices.tolist() for t, indices in member.target.items()}
        ),
        "owned_when_it_joined": (
            None if sent is None else {t: indices.tolist() for t, indices in sent.owned.items()}
        ),
        "generation_when_it_joined": (
            None if sent is None or sent.generation < 0 else int(sent.generation)
        ),
        "lag": look.lag_of(member),
        "user_data": as_json(member, look.assignor),
        "problem": member.problem,
    }


def _forecast_json(next_round: Forecast) -> dict[str, Any] | None:
    return None if next_round.plan is None else plan_json(next_round.plan)


def _heading(look: GroupLook) -> Text:
    text = Text(shown(look.id), style="bold", overflow="fold")
    text.append("  ")
    text.append(look.state, style=_STATES.get(look.state, "red"))
    return text


def _overview(look: GroupLook, next_round: Forecast) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(look, next_round):
        table.add_row(name, Text(value))
    return table


def _facts(look: GroupLook, next_round: Forecast) -> Iterator[tuple[str, str]]:
    generation = "" if look.generation is None else f", generation {look.generation}"
    yield "protocol", f"{look.kind}{generation}"
    if look.assignor:
        yield "assignor", shown(look.assignor)
    if look.kind == "classic" and look.members:
        leader = look.leader
        yield "leader", "not told by its broker" if leader is None else leader.name
    if look.coordinator:
        yield "coordinator", look.coordinator
    yield "members", str(len(look.members))
    yield "partitions", _balance(look, next_round)
    if look.unowned and look.members:
        yield "unowned", _some(look.unowned)
    yield from _hidden(look)
    if look.partitions or look.unread is not None:
        yield "lag", _lag(look)
    if beat := heartbeats(look.members):
        yield "heartbeats", f"{beat}, as the leader asks"
    if look.on_their_way:
        waiting = _some(look.on_their_way)
        yield "under way", f"the broker gives {waiting} to others, once they are revoked"
    if look.follow_up:
        yield "under way", "the leader announced another round: partitions change hands"


def _hidden(look: GroupLook) -> Iterator[tuple[str, str]]:
    if look.untold:
        yield "not told", look.untold
    if look.unseen:
        topics = ", ".join(map(shown, look.unseen[:_MOST_TOPICS]))
        more = ", …" if len(look.unseen) > _MOST_TOPICS else ""
        yield "not seen", f"{topics}{more}: no such topic, or not for these credentials to see"


def _lag(look: GroupLook) -> str:
    """The whole lag, where it is worst, and of how much it is not known."""
    if look.unread is not None:
        return look.unread
    lags = {p: lag for p in look.partitions if (lag := look.lag(p)) is not None}
    hidden = any(p.topic in look.unseen for p in look.partitions)
    if not lags:
        why = "no broker shows its topics" if hidden else "the group has committed nothing"
        return f"not known: {why}"
    text = f"{sum(lags.values()):,}"
    worst = max(lags, key=lags.__getitem__)
    if lags[worst]:
        text += f", most on {shown(worst.topic)} {worst.partition}: {lags[worst]:,}"
    if unknown := [p for p in look.partitions if p not in lags]:
        never = not hidden and not look.committed.keys() & set(unknown)
        why = " without a commit" if never else ""
        text += f"; not known of {plural(len(unknown), 'partition')}{why}"
    return text


def _balance(look: GroupLook, next_round: Forecast) -> str:
    total = str(len(look.partitions))
    if not look.members:
        return total
    now = spread(len(m.assigned) for m in look.members)
    planned = next_round.plan
    best = spread(m.after for m in planned.by_member) if planned is not None else ""
    return f"{total}, {now}" + (
        f" (the strategy's own plan: {best})" if best not in ("", now) else ""
    )


def _some(partitions: tuple[Any, ...]) -> str:
    shown = ", ".join(f"{p.topic} {p.partition}" for p in partitions[:_MOST_MOVES])
    more = len(partitions) - _MOST_MOVES
    return f"{len(partitions)}: {shown}" + (f", and {more} more" if more > 0 else "")


def _members(look: GroupLook) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("member", overflow="fold")
    table.add_column("host", overflow="fold")
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("lag", justify="right", no_wrap=True)
    table.add_column("partitions", overflow="fold")
    table.add_column("user data", overflow="fold")
    for member in look.members:
        table.add_row(
            _name(look, member),
            member.host,
            str(len(member.assigned)),
            count(look.lag_of(member)),
            ranges(member.assigned),
            Text(_notes(look, member), style="dim"),
        )
    return table


def _stacked(look: GroupLook) -> RenderableType:
    lines: list[RenderableType] = []
    for member in look.members:
        lines.append(_name(look, member))
        lag = f", lag {count(look.lag_of(member))}"
        owned = ranges(member.assigned)
        for text in (
            f"{plural(len(member.assigned), 'partition')}{lag}",
            *((owned,) if owned else ()),
            f"at {member.host}",
            *((notes,) if (notes := _notes(look, member)) else ()),
        ):
            lines.append(Padding(Text(text, overflow="fold"), (0, 0, 0, 2)))
    return Group(*lines)


def _name(look: GroupLook, member: MemberLook) -> Text:
    text = Text(member.name, overflow="fold")
    if look.leader is member:
        text.append(" (leads)", style="cyan")
    if member.instance_id is not None:
        text.append(f" [{shown(member.instance_id)}]", style="dim")
    return text


def _notes(look: GroupLook, member: MemberLook) -> str:
    return shown(member.problem or explain(member, look.assignor))


def _partitions(look: GroupLook, *, narrow: bool) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("partition", overflow="fold")
    if not narrow:
        table.add_column("committed", justify="right", no_wrap=True)
        table.add_column("end", justify="right", no_wrap=True)
    table.add_column("lag", justify="right", no_wrap=True)
    table.add_column("owner", overflow="fold")
    for p in look.partitions:
        owner = look.owners.get(p)
        offsets = (count(look.committed.get(p)), count(look.ends.get(p)))
        table.add_row(
            f"{shown(p.topic)} {p.partition}",
            *(() if narrow else offsets),
            count(look.lag(p)),
            "-" if owner is None else owner.name,
        )
    return table


def _forecast(next_round: Forecast) -> RenderableType:
    planned = next_round.plan
    if planned is None:
        return _line("next rebalance", f"not known: {next_round.unknown}")
    changes = next_round.changes
    if not changes:
        return Group(_line("next rebalance", "moves nothing"), *_warnings(planned))
    how = "; eager: everyone stops for it" if planned.eager else ""
    lines = [_line("next rebalance", f"moves {plural(len(changes), 'partition')}{how}")]
    lines += [Text(f"  {shown(str(change))}", overflow="fold") for change in changes[:_MOST_MOVES]]
    if (more := len(changes) - _MOST_MOVES) > 0:
        lines.append(Text(f"  and {more} more (--json has them all)"))
    return Group(*lines, *_warnings(planned))


def _warnings(planned: GroupPlan) -> Iterator[Text]:
    return (Text(f"warning: {shown(w)}", style="yellow") for w in planned.warnings)


def _line(name: str, value: str) -> Text:
    return Text.assemble((f"{name}  ", "dim"), value, overflow="fold")
