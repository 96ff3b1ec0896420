"""What a member asks for: its subscription, and the bytes that carry it to the leader."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kafka_coop.assignors.checking import wrong_user_data
from kafka_coop.errors import AssignorFailedError, text_of
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Assignor, Generation, Partitions, RebalanceProtocol, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """Topics by name, regular expressions, and the topics these match by now."""

    topics: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    matched: tuple[str, ...] = ()

    @property
    def all_topics(self) -> tuple[str, ...]:
        """By name and by pattern, sorted."""
        return tuple(sorted({*self.topics, *self.matched}))

    def wants(self, topic: str) -> bool:
        """Whether a leader that saw ``topic`` before we did may give it to us."""
        return topic in self.topics or any(p.match(topic) for p in self.patterns)

    def matching(self, matched: tuple[str, ...]) -> Interest:
        """The same, with other topics matched."""
        return replace(self, matched=matched)


def subscription_bytes(
    assignor: Assignor,
    *,
    interest: Interest,
    owned: Partitions,
    applied: Generation,
    rack: str | None,
    rejoins: int,
    draining: bool = False,
    busy: bool = False,
) -> bytes:
    """The bytes for one strategy.

    ``rejoins`` counts the rejoins that this member forced. The coordinator starts no round for
    a follower that joins with unchanged bytes (KAFKA-10455), so a forced rejoin must change
    them; a mere retry must not, or it would start a round of its own. ``draining`` asks the leader
    to give this member nothing, ``busy`` not to count on it to give anything up at once.

    The marks alone say that this member is one of ours. Under an eager strategy there are none, so
    that the leader suggests no pace: librdkafka's leader would send them back in the assignment,
    and brokers turn no group over to KIP-848 whose assignments carry user data.

    Raises:
        AssignorFailedError: The strategy's ``subscription_user_data`` raised, or gave no bytes.
    """
    topics = interest.all_topics
    try:
        user_data = assignor.subscription_user_data(topics)
    except BaseException as error:  # SystemExit would end the membership's thread
        raise AssignorFailedError(
            f"{assignor.name}: subscription_user_data raised {text_of(error)}: fix the assignor"
        ) from error
    if wrong := wrong_user_data(user_data):
        # Nobody would hear of what it comes to below, and the member would never join.
        raise AssignorFailedError(f"{assignor.name}: {wrong}: fix the assignor")
    if rejoins or RebalanceProtocol.COOPERATIVE in assignor.supported_protocols:
        marks = SubscriptionMarks(rejoin=rejoins, draining=draining, busy=busy)
        user_data = append_marks(user_data, marks)
    return encode_subscription(
        Subscription(topics=topics, owned=owned, generation=applied, user_data=user_data, rack=rack)
    )
