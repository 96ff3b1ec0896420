"""The members of a plan: what each says, and what each would say once the plan was carried out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kafka_coop.assignors import resolve
from kafka_coop.assignors.checking import wrong_user_data
from kafka_coop.errors import AssignorFailedError, MalformedDataError, text_of
from kafka_coop.protocol.marks import SubscriptionMarks, append_marks, split_marks
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.protocol.user_data import Claim, decode_claim
from kafka_coop.types import (
    NO_PARTITIONS,
    Assignment,
    Assignor,
    Generation,
    GroupMetadata,
    Partitions,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMember:
    """One member as a plan begins with it.

    Attributes:
        sent: Its subscription as the leader gets it, user data with marks.
        raw: The bytes it came as, where it came as bytes.
        claim: What it owns by its own word: under the eager protocol that is in its user data.
        load: What it says its partitions cost.
        draining: It is about to leave.
    """

    sent: Subscription
    claim: Claim
    load: Mapping[TopicPartition, float]
    draining: bool
    raw: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """What the leader gets."""
        return encode_subscription(self.sent) if self.raw is None else self.raw


def strategy_maker(assignor: str | Assignor) -> Callable[[], Assignor]:
    """Returns what makes one more instance of a strategy: what-if has a whole group of them.

    An instance is copied, as deep as it lets itself be copied, so that what is tried out here
    is not remembered by the consumer it may belong to.
    """
    if isinstance(assignor, str):
        return lambda: resolve(assignor)

    def another() -> Assignor:
        try:
            return copy.deepcopy(assignor)
        except Exception:  # noqa: BLE001  # locks and sockets refuse in many ways
            try:
                return copy.copy(assignor)
            except Exception as cause:
                raise AssignorFailedError(
                    f"assignor {assignor.name!r} can't be copied ({text_of(cause)}), which a plan"
                    " of what would be needs: define __deepcopy__ or __copy__"
                ) from cause

    return another


def read_member(
    make: Callable[[], Assignor], given: Subscription | bytes, *, instance_id: str | None = None
) -> PlanMember:
    """Reads one member.

    Bytes are taken as they stand; bytes that do not parse subscribe to nothing, as for the
    leader. A Subscription without user data gets what a member of this strategy would send that
    was given `owned` under `generation`.

    Raises:
        AssignorFailedError: The strategy's `on_assignment` or `subscription_user_data` raised.
    """
    if isinstance(given, bytes):
        try:
            sent = decode_subscription(given)
        except MalformedDataError:
            sent = Subscription()
        return replace(_as_sent(replace(sent, instance_id=instance_id)), raw=given)
    if instance_id is not None:
        given = replace(given, instance_id=instance_id)
    if given.user_data is not None:
        return _as_sent(given)
    had = Assignment(partitions=given.owned)
    return member_after(make, given, had, given.generation, load={})


def member_after(
    make: Callable[[], Assignor],
    subscription: Subscription,
    assignment: Assignment,
    generation: Generation,
    load: Mapping[TopicPartition, float],
    *,
    draining: bool = False,
    told: bool = True,
) -> PlanMember:
    """The member once it was given this assignment, as its next JoinGroup says it.

    Not ``told``, its strategy knows nothing of it: another one made it.

    Raises:
        AssignorFailedError: The strategy's `on_assignment` or `subscription_user_data` raised.
    """
    strategy = make()
    try:
        if told and (assignment.partitions or generation >= 0):
            strategy.on_assignment(assignment, GroupMetadata(group_id="", generation=generation))
        user_data = strategy.subscription_user_data(subscription.topics)
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        raise AssignorFailedError(
            f"assignor {strategy.name!r} failed to say what a member would send ({text_of(cause)})"
        ) from cause
    if wrong := wrong_user_data(user_data):
        raise AssignorFailedError(
            f"assignor {strategy.name!r} failed to say what a member would send: {wrong}"
        )
    unsaid = {} if _load_in(user_data) else load
    if unsaid or draining:
        user_data = append_marks(user_data, SubscriptionMarks(load=unsaid, draining=draining))
    cooperative = RebalanceProtocol.COOPERATIVE in strategy.supported_protocols
    sent = replace(
        subscription,
        owned=assignment.partitions if cooperative else NO_PARTITIONS,
        generation=generation,
        user_data=user_data,
    )
    return PlanMember(
        sent=sent,
        claim=Claim(owned=assignment.partitions, generation=generation),
        load=_load_in(user_data),
        draining=draining,
    )


def _as_sent(subscription: Subscription) -> PlanMember:
    user_data, load, draining = _split(subscription.user_data)
    remembered = decode_claim(user_data) or Claim()
    claim = Claim(
        owned=subscription.owned or _named(remembered.owned, subscription.topics),
        generation=max(subscription.generation, remembered.generation),
    )
    return PlanMember(sent=subscription, claim=claim, load=load, draining=draining)


def _named(owned: Partitions, topics: tuple[str, ...]) -> Partitions:
    """Stream-join-sticky remembers numbers, under no topic's name: those of all its topics."""
    if owned.topics() == ("",):
        return Partitions(dict.fromkeys(topics, owned.get("")))
    return owned


def _load_in(user_data: bytes | None) -> Mapping[TopicPartition, float]:
    return _split(user_data)[1]


def _split(data: bytes | None) -> tuple[bytes | None, Mapping[TopicPartition, float], bool]:
    """The strategy's trailer stands before the member's own (see `kafka_coop.leader`)."""
    load: Mapping[TopicPartition, float] = {}
    draining = False
    for _ in range(2):
        data, marks = split_marks(data)
        if isinstance(marks, SubscriptionMarks):
            load, draining = load or marks.load, draining or marks.draining
    return data, load, draining
