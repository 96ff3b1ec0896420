"""``Trigger.AvailableNow`` in a group: when is all that was there read?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from kafka_coop.config import parse
from kafka_coop.spark.errors import MembershipError, names_of
from kafka_coop.spark.holdings import Committed
from kafka_coop.spark.member import Member
from kafka_coop.spark.options import StreamOptions
from kafka_coop.types import TopicPartition

_LOG = logging.getLogger("kafka_coop.spark")

_PAUSE = 0.1
"""Seconds between two looks at what other members have done."""

_EVICTION_SLACK = timedelta(seconds=15)
"""Beyond a session's timeout, until what a dead member held has come to us."""


def wait_for_group(
    member: Member,
    targets: Mapping[TopicPartition, int],
    options: StreamOptions,
    plan: Callable[[], Mapping[str, Any] | None],
    is_asked: Callable[[], bool],
) -> Mapping[str, Any] | None:
    """What we held is read. Other members may be at the rest, or be dead.

    A dead one's partitions come to us when its session times out; a live one's commits show
    that it goes on. So: wait until all is committed, or nothing happens for a session's time: no
    commit, and no partition that comes or goes.

    Args:
        member: Ours.
        targets: Where the logs ended when the run began.
        options: The source's.
        plan: Plans a batch of what has come to us meanwhile; None: there is nothing.
        is_asked: Whether the driver wants the query to hand over what it holds. Others may go on
            for hours, and each commit of theirs has us wait on.

    Returns:
        The next batch; None: the run is over, or it is asked.

    Raises:
        MembershipError: The membership ended, or what we hold ourselves can't be read, or what we
            have read can't be committed, or nobody tells what others have.
    """
    patience = parse(options.kafka).session_timeout + _EVICTION_SLACK
    deadline = time.monotonic() + patience.total_seconds()
    before: tuple[frozenset[TopicPartition], dict[TopicPartition, Committed]] | None = None
    held: dict[TopicPartition, int] = {}
    unknown: dict[TopicPartition, int] = {}
    untold: list[TopicPartition] = []
    while time.monotonic() < deadline:
        if is_asked():
            return None
        if (found := plan()) is not None:
            return found
        member.commit_now()  # again, where it failed for a reason that may pass
        with member.changed:
            held = {of: hold.position for of, hold in member.holdings.held.items()}
            unknown = member.holdings.news()
        others = [of for of in targets if of not in held]
        committed = member.committed(others)
        untold = [of for of in others if of not in committed]
        if not unknown and all(
            held[of] >= target if of in held else _reached(committed.get(of), target)
            for of, target in targets.items()
        ):
            return None
        now = frozenset(held), committed
        if now != before:
            before, deadline = now, time.monotonic() + patience.total_seconds()
        with member.changed:
            member.changed.wait(_PAUSE)
            member.raise_failure()
    if ours := sorted(of for of, position in held.items() if position < targets.get(of, 0)):
        names = names_of(ours)
        raise MembershipError(
            f"{names} can't be read up to where the logs ended when the run began: for {patience} "
            f"they could not be claimed, or their ends not be had{member.last_error_in_words}: are "
            "the brokers in kafka.bootstrap.servers reachable?"
        )
    if unknown:
        raise MembershipError(
            f"what was read of {names_of(unknown)} could not be committed for {patience}"
            f"{member.last_error_in_words}: the checkpoint knows of it, and the group's other "
            "members would read it again. "
            "Are the brokers in kafka.bootstrap.servers reachable? Then start the query again"
        )
    if untold:
        raise MembershipError(
            f"nobody tells how far the group {options.group!r} has come with {names_of(untold)}: "
            f"for {patience} there was no answer{member.last_error_in_words}. Are the brokers in "
            "kafka.bootstrap.servers reachable? Then start the query again"
        )
    _LOG.warning(
        "group %s: other members hold partitions that are not read up to where they were when "
        "this run began, and did not go on for %s: the run ends without them",
        options.group,
        patience,
    )
    return None


def _reached(committed: Committed | None, target: int) -> bool:
    if target == 0:
        return True
    return committed is not None and committed.offset is not None and committed.offset >= target
