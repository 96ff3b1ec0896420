"""Errors on their way to the user: what failed, and what the operator can do."""

from __future__ import annotations

from kafka_coop.errors import (
    AssignorFailedError,
    AuthenticationFailedError,
    Failure,
    GroupRefusedError,
    MalformedDataError,
    RequestFailedError,
    RequestTimedOutError,
    VersionNotSupportedError,
)
from kafka_coop.protocol.error_codes import ErrorCode

# librdkafka's local codes (rd_kafka_resp_err_t), as confluent_kafka.KafkaError names them.
LOCAL_BAD_MESSAGE = -199
LOCAL_FAIL = -196
LOCAL_TRANSPORT = -195
LOCAL_INVALID_ARG = -186
LOCAL_TIMED_OUT = -185
LOCAL_CONFLICT = -173
LOCAL_STATE = -172
LOCAL_AUTHENTICATION = -169
LOCAL_NO_OFFSET = -168
LOCAL_UNSUPPORTED_FEATURE = -165
LOCAL_FATAL = -150
LOCAL_MAX_POLL_EXCEEDED = -147
LOCAL_AUTO_OFFSET_RESET = -140

_REMEDIES: dict[ErrorCode, str] = {
    ErrorCode.group_authorization_failed: "grant READ on the group to this principal",
    ErrorCode.topic_authorization_failed: "grant READ and DESCRIBE on the topic",
    ErrorCode.inconsistent_group_protocol: (
        "the group's other members share no partition.assignment.strategy with this one, or have "
        "group.protocol=consumer. docs/UPGRADING.md has the steps from one strategy to another, "
        "docs/MIGRATION.md those from one protocol to the other"
    ),
    ErrorCode.invalid_session_timeout: (
        "session.timeout.ms must lie between the broker's group.min.session.timeout.ms "
        "and group.max.session.timeout.ms"
    ),
    ErrorCode.invalid_group_id: "group.id is not valid, or the group is not a consumer group",
    ErrorCode.group_max_size_reached: "the broker's group.max.size is reached: remove members",
    ErrorCode.fenced_instance_id: (
        "another member runs with the same group.instance.id: give each member its own"
    ),
    ErrorCode.unsupported_version: "the broker is too old for a feature in use",
}


def failure_of_code(
    error: ErrorCode, what: str, *, detail: str | None = None, fatal: bool = False
) -> Failure:
    """The failure that Kafka's ``error`` stands for; ``what`` names what was being done."""
    text = f"{what} failed: {error.name.upper()}"
    if detail:
        text += f" ({detail})"
    if remedy := _REMEDIES.get(error):
        text += f": {remedy}"
    return Failure(code=int(error), message=text, retriable=error.retriable, fatal=fatal)


def is_hopeless(error: RequestFailedError) -> bool:
    """Whether it may not pass by itself: a certificate, a password, a broker that is too old."""
    return isinstance(error, AuthenticationFailedError | VersionNotSupportedError)


def failure_of_exception(error: Exception) -> Failure:
    """The failure that an exception of ours stands for."""
    match error:
        case AuthenticationFailedError():
            code = LOCAL_AUTHENTICATION
        case RequestTimedOutError():
            code = LOCAL_TIMED_OUT
        case GroupRefusedError():
            code = error.code
        case VersionNotSupportedError():
            code = LOCAL_UNSUPPORTED_FEATURE
        case MalformedDataError():
            code = LOCAL_BAD_MESSAGE
        case AssignorFailedError():
            code = LOCAL_FAIL
        case _:
            code = LOCAL_TRANSPORT
    return Failure(
        code=code,
        message=str(error),
        retriable=isinstance(error, RequestFailedError) and code == LOCAL_TRANSPORT,
        cause=error,
    )
