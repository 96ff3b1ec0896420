"""`kafka-coop plan`: one change after the other, and what each would move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.errors import AssignorFailedError, ConfigurationError
from kafka_coop.planning import GroupPlan, plan
from kafka_coop.planning.picture import html, svg
from kafka_coop.planning.table import table
from kafka_coop.types import Assignor, Subscription, is_topic_name

_MOST = 1_000_000
"""Partitions of a topic: more than a cluster has, and what memory there is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change and the rebalance that it causes."""

    what: str
    plan: GroupPlan


def invented(members: int, topics: Sequence[str], assignor: str | Assignor) -> GroupPlan:
    """A settled group of members that all subscribe to the same topics.

    Args:
        members: How many.
        topics: ``name=partitions`` each.
        assignor: The group's strategy.

    Raises:
        CommandError: A topic is none, or nothing is known of the strategy.
    """
    counts = dict(_topic(text, "--topic") for text in topics)
    if not counts:
        raise CommandError("give a GROUP, or --members N with --topic name=partitions", Exit.USAGE)
    everyone = {f"member-{n}": Subscription(topics=tuple(sorted(counts))) for n in range(members)}
    try:
        return plan(assignor, counts, everyone)
    except (ConfigurationError, AssignorFailedError) as error:
        raise CommandError(f"--assignor: {error}", Exit.USAGE) from None


def steps(
    now: GroupPlan,
    *,
    leave: Iterable[str],
    grow: Iterable[str],
    change_to: str | Assignor | None,
    join: Iterable[str],
) -> list[Step]:
    """Carries the changes out, each on the group that the one before left.

    First members leave, all together; then topics grow, the strategy changes, and members join.
    Without any change: one more round of the group as it is.

    Raises:
        CommandError: A change that can't be made.
    """
    done: list[Step] = []
    gone, added = tuple(leave), tuple(join)
    try:
        if gone:
            now = _note(
                done,
                f"{' and '.join(gone)} {'leaves' if len(gone) == 1 else 'leave'}",
                now.leave(*gone),
            )
        for text in grow:
            topic, partitions = _topic(text, "--grow")
            what = f"{topic} grows to {partitions} partitions"
            now = _note(done, what, now.grow(topic, partitions))
        if change_to is not None:
            after = now.under(change_to)
            now = _note(done, f"the strategy becomes {after.strategy}", after)
        for member in added:
            now = _note(done, f"{member} joins", now.join(member))
    except (ValueError, ConfigurationError, AssignorFailedError) as error:
        raise CommandError(str(error), Exit.USAGE) from None
    return done or [Step(what="nothing changes", plan=now)]


def print_steps(console: Console, made: Sequence[Step]) -> None:
    """Prints a table for each step, folded to the console's width."""
    for number, step in enumerate(made):
        if number:
            console.print()
        console.print(Text(f"If {step.what}", style="bold"), soft_wrap=True)
        console.print(Text(table(step.plan, console.width)), soft_wrap=True)


def draw(made: Sequence[Step], file: Path) -> None:
    """Writes the last step's picture: HTML with the table, or SVG, by the file's name.

    Raises:
        CommandError: Neither, or the file can't be written.
    """
    last = made[-1]
    if file.suffix not in {".html", ".svg"}:
        raise CommandError(f"--picture {file}: end it in .html or .svg", Exit.USAGE)
    content = svg(last.plan) if file.suffix == ".svg" else html(last.plan, f"If {last.what}")
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--picture {file}: {error}", Exit.USAGE) from None


def _note(done: list[Step], what: str, after: GroupPlan) -> GroupPlan:
    done.append(Step(what=what, plan=after))
    return after


def _topic(text: str, option: str) -> tuple[str, int]:
    name, equals, number = text.rpartition("=")
    if not equals or not name or not number.isdecimal() or not number.isascii():
        raise CommandError(f"{option}: {text!r} is no topic=partitions", Exit.USAGE)
    if not number.strip("0"):
        raise CommandError(f"{option}: {name!r}: a topic has at least one partition", Exit.USAGE)
    if not is_topic_name(name):
        raise CommandError(
            f"{option}: {name!r}: a topic's name has letters, digits, '.', '_' and '-' alone, and"
            " 249 of them at most",
            Exit.USAGE,
        )
    if len(number) > len(str(_MOST)) or int(number) > _MOST:
        raise CommandError(f"{option}: {name!r}: more than {_MOST:,} partitions", Exit.USAGE)
    return name, int(number)
