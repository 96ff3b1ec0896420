"""What each error code means for the member, as tables: responses by errors.

The rows follow the Java client (`AbstractCoordinator`, `ConsumerCoordinator`), which is what
brokers are tested with. A code without a row takes the table's `otherwise`. What a code means
for a commit or an offset fetch is in `kafka_coop.offsets.responses`.
"""

from __future__ import annotations

import enum

from kafka_coop.protocol.error_codes import ErrorCode, Table


class Reaction(enum.Enum):
    """What the member does about an error."""

    RETRY = "try again at once; nothing is reset"
    BACK_OFF = "try again after retry.backoff.ms"
    REDISCOVER = "the coordinator is elsewhere: look for it, then try again"
    ADOPT_MEMBER_ID = "take the member id the answer carries, try again at once (KIP-394)"
    RESET_GENERATION = "this generation is over for us: everything is lost, the member id stays"
    RESET_MEMBER = "the group forgot us: everything is lost, the member id too"
    REJOIN = "the group rebalances: join it"
    FENCED = "another member has our group.instance.id: everything is lost, the user must know"
    RAISE = "no retry of ours can help: the user must know"
    IGNORE = "nothing to do"


E = ErrorCode
R = Reaction

FIND_COORDINATOR = Table(
    {
        E.group_authorization_failed: R.RAISE,
        **{e: R.BACK_OFF for e in E if e.retriable},
    },
    otherwise=R.RAISE,
)

JOIN = Table(
    {
        E.coordinator_load_in_progress: R.BACK_OFF,
        E.coordinator_not_available: R.REDISCOVER,
        E.not_coordinator: R.REDISCOVER,
        E.unknown_member_id: R.RESET_MEMBER,
        # Not in Java's table: an old broker's answer to a member that it dropped mid-join.
        E.illegal_generation: R.RESET_GENERATION,
        E.member_id_required: R.ADOPT_MEMBER_ID,
        E.rebalance_in_progress: R.RETRY,
        E.fenced_instance_id: R.FENCED,
    },
    # 23, 24, 26, 30, 35, 81 and whatever comes: a configuration or a permission is wrong.
    otherwise=R.RAISE,
)

SYNC = Table(
    {
        E.rebalance_in_progress: R.RETRY,
        E.unknown_member_id: R.RESET_MEMBER,
        E.illegal_generation: R.RESET_GENERATION,
        E.coordinator_not_available: R.REDISCOVER,
        E.not_coordinator: R.REDISCOVER,
        # Not in Java's table, which raises it: brokers up to 3.9 said 27 here, Kafka 4's new
        # coordinator says what it is. The round is lost with the state of the group.
        E.coordinator_load_in_progress: R.BACK_OFF,
        # Not in Java's table: librdkafka's mock broker refuses a follower that syncs after the
        # group is up. A real broker says so of a malformed request alone.
        E.invalid_request: R.BACK_OFF,
        E.fenced_instance_id: R.FENCED,
    },
    otherwise=R.RAISE,
)

HEARTBEAT = Table(
    {
        E.rebalance_in_progress: R.REJOIN,
        E.illegal_generation: R.RESET_GENERATION,
        E.unknown_member_id: R.RESET_MEMBER,
        E.fenced_instance_id: R.FENCED,
        E.coordinator_not_available: R.REDISCOVER,
        E.not_coordinator: R.REDISCOVER,
    },
    otherwise=R.BACK_OFF,
)

COMMIT = Table(
    {
        E.rebalance_in_progress: R.REJOIN,
        E.illegal_generation: R.RESET_GENERATION,
        E.unknown_member_id: R.RESET_MEMBER,
        E.fenced_instance_id: R.FENCED,
    },
    otherwise=R.IGNORE,
)
"""What a refused commit says of the membership. The commit's own fate is decided elsewhere."""

LEAVE = Table({}, otherwise=R.IGNORE)
"""Best effort: whatever the answer, we are gone."""
