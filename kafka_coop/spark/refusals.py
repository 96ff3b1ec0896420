"""What the group refuses for good, commits above all: what to tell the user.

Whoever reads a range has claimed it with a commit before (docs/SPARK.md). Where claims are refused
for good, the query would read nothing and say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError

from kafka_coop.config.known import KNOWN
from kafka_coop.hopeless import HOPELESS
from kafka_coop.spark.errors import OptionError, name_of
from kafka_coop.spark.kafka_keys import PREFIX
from kafka_coop.spark.options import ReadOptions
from kafka_coop.types import TopicPartition

_OF_MEMBERS: Final = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION})
"""To a member: the partitions are not its own any more, and it is told so otherwise. To who is no
member: the group has some."""

_PROPERTY: Final = re.compile(r'property:? "([\w.]+)"|`([\w.]+)`|([\w]+(?:\.[\w]+)+) failed')
"""Which one librdkafka complains of."""

_UNWRITTEN: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on that topic, or write to another",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise option kafka.message.max.bytes, and max.message.bytes "
    "of the topic",
    KafkaError._MSG_TIMED_OUT: "are the brokers in kafka.bootstrap.servers reachable? Option "  # noqa: SLF001  # the name of confluent's public constant
    "kafka.delivery.timeout.ms says how long to try",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE and DESCRIBE on transactional "
    "ids that begin with option kafka.transactional.id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant IDEMPOTENT_WRITE on the cluster",
}
"""What helps, by the code of what keeps records from being written."""


def unwritten(error: KafkaError) -> str:
    """What keeps records from being written, and the remedy where there is one."""
    remedy = _UNWRITTEN.get(error.code())
    return error.str() if remedy is None else f"{error.str()}: {remedy}"


def unread(error: KafkaError, of: TopicPartition | None, options: ReadOptions) -> str:
    """Why a partition can't be read; of None, any of the query's."""
    what = f"what option {options.subscription} names" if of is None else name_of(of)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return _no_right(f"read {what}", "READ and DESCRIBE", options)
    return f"{what} can't be read: {error.str()}"


def refused_configuration(whose: str, error: Exception, given: Mapping[str, str]) -> OptionError:
    """What librdkafka says of the properties it was made with, by the option's name.

    Args:
        whose: "producer", or who else was to be made.
        error: What confluent-kafka raised.
        given: The ``kafka.*`` options, without their prefix.
    """
    return OptionError(
        f"{PREFIX}{_property(str(error), given)}",
        f"the {whose}'s configuration is refused: {error}. Correct it, or remove it",
    )


def _property(complaint: str, given: Mapping[str, str]) -> str:
    """What the user calls the property that librdkafka complains of, perhaps by another name."""
    found = _PROPERTY.search(complaint)
    if found is None:
        named = (key for key in sorted(given, key=len, reverse=True) if key in complaint)
        return next(named, "*")
    name = found[1] or found[2] or found[3]
    aliases = (key for key in given if key in KNOWN and KNOWN[key].alias_of == name)
    return name if name in given else next(aliases, name)


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
        return _no_right(f"the offsets of {names}", "READ", options)
    if code in (KafkaError.OFFSET_METADATA_TOO_LARGE, KafkaError.INVALID_COMMIT_OFFSET_SIZE):
        return (
            f"the brokers don't take the claim on {names} beside its offset "
            "(docs/SPARK.md, claims): raise their offset.metadata.max.bytes to 100 or more"
        )
    if code in HOPELESS:
        return f"the group of option {group} can't be used: {error.str()}"
    return None


def _no_right(to: str, rights: str, options: ReadOptions) -> str:
    return (
        f"no right to {to}: grant {rights} on the topics of option {options.subscription}, or "
        "leave them out"
    )
