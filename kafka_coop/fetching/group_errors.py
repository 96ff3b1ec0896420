"""Why a member that librdkafka is can't go on, or begin: its words, with what to do.

librdkafka tells the broker's code in its text alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from kafka_coop.membership.failures import LOCAL_FATAL, LOCAL_INVALID_ARG

_REMEDIES = {
    KafkaError(code).str(): remedy
    for code, remedy in {
        KafkaError.GROUP_ID_NOT_FOUND: (
            "The group has classic members, and the broker does not upgrade it: a leader's "
            "strategy keeps data in the assignment (all of kafka_coop's do but 'sticky'), or "
            "group.consumer.migration.policy forbids it. Stop the classic members first, then "
            "start those with group.protocol=consumer (docs/MIGRATION.md)"
        ),
        KafkaError.UNKNOWN: (
            "The broker could not take this member in, and its log says why. Most likely the group "
            "has classic members, and was amid a rebalance: end this process, and start it again "
            "when the group is Stable (docs/MIGRATION.md)"
        ),
        KafkaError.UNRELEASED_INSTANCE_ID: (
            "Another member runs with this group.instance.id: give each its own. Or it has died "
            "without close(): the broker keeps its place until its session is over "
            "(group.consumer.session.timeout.ms, 45 s unless set). End this process, and start it "
            "again then (docs/MIGRATION.md)"
        ),
        KafkaError.UNSUPPORTED_ASSIGNOR: (
            "The broker has no assignor of the name in group.remote.assignor: name one that is in "
            "its group.consumer.assignors ('uniform', 'range'), or remove the key"
        ),
        KafkaError.GROUP_MAX_SIZE_REACHED: (
            "The group has as many members as the broker's group.consumer.max.size allows: stop "
            "one, or raise that, then start this process again"
        ),
        KafkaError.INVALID_REGULAR_EXPRESSION: (
            "With group.protocol=consumer the broker reads patterns, as Google's RE2 does (no "
            "lookahead, no backreferences, no possessive quantifiers): correct {patterns}, and "
            "start this process again (docs/MIGRATION.md)"
        ),
    }.items()
}
"""What to do, by the broker's word for why it is over."""


def why_it_is_over(text: str, topics: Sequence[str]) -> str:
    """What librdkafka says of a fatal error, and the remedy where there is one.

    Args:
        text: As librdkafka says it.
        topics: What was subscribed to.
    """
    remedies = [remedy for why, remedy in _REMEDIES.items() if why in text]
    patterns = _patterns(topics) or "those of the subscription before"
    return ". ".join([text, *remedies]).replace("{patterns}", patterns)


def not_subscribed(error: KafkaError, topics: Sequence[str]) -> KafkaException:
    """What librdkafka refuses a subscription with, and the remedy where there is one."""
    code, text = error.code(), error.str()
    if code == LOCAL_FATAL:
        text += ". The membership of this consumer is over for good: close it, and make another one"
    elif code == LOCAL_INVALID_ARG and (patterns := _patterns(topics)):
        text += (
            ". With group.protocol=consumer librdkafka has to understand patterns, too (no "
            f"lookahead, no named groups): correct {patterns}, or list the topics"
        )
    return KafkaException(KafkaError(code, text, code == LOCAL_FATAL))


def _patterns(topics: Sequence[str]) -> str:
    return ", ".join(f"'{topic}'" for topic in topics if topic.startswith("^"))
