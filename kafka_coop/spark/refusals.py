"""What the group refuses for good, commits above all: what to tell the user.

Whoever reads a range has claimed it with a commit before (docs/SPARK.md). Where claims are refused
for good, the query would read nothing and say nothing.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from kafka_coop.hopeless import HOPELESS
from kafka_coop.spark.options import ReadOptions

_OF_MEMBERS: Final = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION})
"""To a member: the partitions are not its own any more, and it is told so otherwise. To who is no
member: the group has some."""


def refusal(error: KafkaError, names: str, options: ReadOptions) -> str | None:
    """What an error means for the query.

    Args:
        error: The group's answer to a join, a commit, or a question for what is committed.
        names: The partitions in question.
        options: The source's.

    Returns:
        The text for the user; None: it may pass (a rebalance, a coordinator that moves).
    """
    code, group = error.code(), f"kafka.group.id={options.group}"
    if options.partitions and code in _OF_MEMBERS:
        return (
            f"the group of option {group} has members, and takes no commits from others: with "
            "option assign the query is none. Give it a group of its own, stop the members, or "
            "set subscribe instead of assign, which shares the topic with them"
        )
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return f"no right to the group of option {group}: grant READ on it, or name another"
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return (
            f"no right to the offsets of {names}: grant READ on the topics of option "
            f"{_subscription(options)}, or leave them out"
        )
    if code in (KafkaError.OFFSET_METADATA_TOO_LARGE, KafkaError.INVALID_COMMIT_OFFSET_SIZE):
        return (
            f"the brokers don't take the claim on {names} beside its offset "
            "(docs/SPARK.md, claims): raise their offset.metadata.max.bytes to 100 or more"
        )
    if code in HOPELESS:
        return f"the group of option {group} can't be used: {error.str()}"
    return None


def _subscription(options: ReadOptions) -> str:
    if options.partitions:
        return "assign"
    return "subscribePattern" if options.pattern else "subscribe"
