"""What a broker is configured with, and what it knows of who is asking."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """The broker's configuration of classic groups. The defaults are Kafka 4.1's.

    Attributes:
        initial_rebalance_delay: ``group.initial.rebalance.delay.ms``: how long an empty group
            waits for more members before its first round; extended while members come in, up
            to the rebalance timeout.
        min_session_timeout, max_session_timeout: ``group.min.session.timeout.ms`` and
            ``group.max.session.timeout.ms``.
        max_group_size: ``group.max.size``.
        new_member_join_timeout: How long the JoinGroup of a member that has never finished a
            round may stay parked. Fixed in Kafka: a client that gave up can't be told from one
            that waits, and each retry would leave a dead member behind.
        offset_metadata_max_size: ``offset.metadata.max.bytes``; characters, as Kafka counts.
    """

    initial_rebalance_delay: timedelta = timedelta(seconds=3)
    min_session_timeout: timedelta = timedelta(seconds=6)
    max_session_timeout: timedelta = timedelta(minutes=30)
    max_group_size: int = sys.maxsize
    new_member_join_timeout: timedelta = timedelta(minutes=5)
    offset_metadata_max_size: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who sends a request, as its header says.

    Attributes:
        client_id: Member ids begin with it.
        join_group_version: The JoinGroup version spoken. From 4 on a dynamic member must come
            back with the id it is given (KIP-394); from 9 on a restarted static leader is told
            that it leads, and to skip the assignment (KIP-814).
        offset_commit_version: From 9 on a commit to a group that does not exist is answered
            GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION. Our own members speak 8.
    """

    client_id: str = "rdkafka"
    join_group_version: int = 9
    offset_commit_version: int = 8

    @property
    def requires_known_member_id(self) -> bool:
        """Whether a dynamic member's first JoinGroup only earns it an id."""
        return self.join_group_version >= _KNOWN_MEMBER_ID_SINCE

    @property
    def supports_skip_assignment(self) -> bool:
        """Whether a restarted static leader can be told to lead without assigning."""
        return self.join_group_version >= _SKIP_ASSIGNMENT_SINCE

    @property
    def knows_group_id_not_found(self) -> bool:
        """Whether OffsetCommit may be answered GROUP_ID_NOT_FOUND."""
        return self.offset_commit_version >= _GROUP_ID_NOT_FOUND_SINCE


_KNOWN_MEMBER_ID_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_GROUP_ID_NOT_FOUND_SINCE = 9
