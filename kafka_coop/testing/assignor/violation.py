"""What an assignor can do wrong, and how it is told."""

from __future__ import annotations

import enum

from kafka_coop.testing.assignor.situation import Situation


class Rule(enum.Enum):
    """What every assignor has to keep."""

    INTERFACE = "it must have the members of kafka_coop.types.Assignor"
    RETURNS = "it must not raise, and must return what the Assignor protocol says"
    IN_THE_GROUP = "it must assign to members of the group alone"
    EXISTS = "it must assign partitions that exist"
    SUBSCRIBED = "it must assign to members that subscribe to the topic"
    ONCE = "it must assign each partition to one member"
    COMPLETE = "every partition that somebody subscribes to must have an owner"
    PURE = "it must leave its arguments as they are"
    REPEATABLE = "the same snapshot must give the same plan"
    ORDER = "the order of members and topics must not matter"
    HOSTILE = "it must survive whatever bytes other members send"
    HANDED_OVER = "nothing may be new to a member that another still claims (KIP-429)"
    ENDS = "a rebalance must end after a few rounds"
    AT_REST = "a group in which nothing has changed must be left as it is"


class AssignorCheckError(AssertionError):
    """An assignor broke a rule; the text shows the smallest group found in which it does.

    Attributes:
        rule: Which.
        situation: The group.
        details: What happened, one line each.
    """

    def __init__(
        self,
        rule: Rule,
        details: tuple[str, ...],
        *,
        name: str = "",
        situation: Situation | None = None,
    ) -> None:
        self.rule = rule
        self.details = details
        self.situation = situation
        lines = [f"{name or 'the assignor'} breaks a rule: {rule.value}", *details]
        if situation is not None:
            lines += ["", "in this group:", *situation.lines()]
        super().__init__("\n    ".join(lines))
