"""What the façade knows of a membership, whoever runs it.

`classic` runs the state machine of `kafka_coop.membership` over connections of its own.
`broker_assigned` leaves membership to librdkafka, and the assignment to the broker (KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

from kafka_coop.backend.mailbox import Mailbox
from kafka_coop.backend.promises import Promise
from kafka_coop.membership.events import StepDone
from kafka_coop.membership.record import RebalanceRecord
from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import FetchedOffset, OffsetAndMetadata
from kafka_coop.types import Generation, GroupMetadata, Partitions, TopicPartition


class Observer:
    """What a backend tells of its work. Must be quick: the membership's thread calls it."""

    def rebalance(self, record: RebalanceRecord) -> None:
        """A round ended."""

    def heartbeat(self, latency: timedelta | None) -> None:
        """A heartbeat was acknowledged, or (None) refused, or not answered."""

    def commit(self, latency: timedelta, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """A commit ended."""


class Backend(Protocol):
    """A membership. Every method may be called from any thread.

    All but `let_commits_in` and `stop` return at once.
    """

    mailbox: Mailbox

    def start(self, attend: Callable[[], None]) -> None:
        """Begins to run. Nothing is sent before something is asked for.

        ``attend`` carries out what is in the mailbox. A membership whose rebalances happen
        inside poll calls it there; others leave that to whoever polls.
        """

    def subscribe(self, topics: tuple[str, ...], patterns: tuple[str, ...]) -> None:
        """Wants these topics, by name or by regular expression, instead of all earlier ones."""

    def unsubscribe(self) -> None:
        """Wants no topic; leaves the group."""

    def drain(self) -> bool:
        """Asks the group to take over what this member owns, in rounds of its own.

        Returns:
            Whether that can be had. An eager round takes everything from everyone: there
            nothing is gained by a round before the leave, and a static member only leaves for
            good with it. A broker that assigns by itself (KIP-848) knows no such wish.
        """

    def enforce_rebalance(self, reason: str) -> None:
        """Asks the group for a round (KIP-568)."""

    def step_done(self, done: StepDone) -> None:
        """The user's thread carried out a step that it took from the mailbox."""

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: timedelta
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        """Commits as a member, in the order given, one request at a time.

        The promise holds each partition's error; it raises nothing but for a bug.
        """

    def let_commits_in(self) -> None:
        """Has sent what waits for this thread to let it in, before it waits for that, or works on.

        Every call into librdkafka keeps the interpreter from other threads until it returns.
        """

    def committed(
        self, partitions: Partitions, timeout: timedelta
    ) -> Promise[dict[TopicPartition, FetchedOffset]]:
        """The group's committed offsets.

        The promise raises `RequestFailedError` when there was no answer in time.
        """

    def find_starts(
        self,
        partitions: Partitions,
        generation: Generation,
        still_wanted: Callable[[Partitions], Partitions],
    ) -> None:
        """Finds where to start partitions assigned by hand.

        The mailbox gets `StartsFound` with this ``generation``, which the caller makes up.
        ``still_wanted``, which any thread may call, says which are worth asking for again.
        """

    def metadata(self) -> GroupMetadata:
        """The member's identity now."""

    def last_known(self) -> GroupMetadata:
        """The same as it was last heard of, for who must not wait."""

    def vouched(self) -> GroupMetadata:
        """The identity that producers send offsets with; `kafka_coop.membership.core` has why."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """For later logins."""

    def begin_close(self) -> None:
        """Leaves for good. Steps may follow; `Mailbox.left` says when it is over."""

    def abandon(self, ended: Callable[[], None]) -> None:
        """Leaves for good, and stops by itself: nobody is there any more to carry steps out.

        Python's garbage collector calls it, in whatever that interrupts: it takes no lock.
        ``ended`` is called by the backend's thread in the end.
        """

    def stop(self, timeout: timedelta) -> None:
        """Ends the thread and closes the connections, whatever is still under way."""
