"""Our errors as confluent_kafka's: `KafkaException` with a `KafkaError` inside.

    confluent_kafka.KafkaException
    └── CoopException
        ├── ConfigurationException    a key of the configuration (also a ValueError)
        ├── CommitException           a commit that failed for some of its partitions, or all
        │   └── CommitFailedException the group did not take it
        ├── FencedException           another member has this group.instance.id: fatal
        ├── PollTooLateException      max.poll.interval.ms passed; partitions were lost
        └── AssignorException         a user's assignor raised, or returned nonsense

Code that handles confluent's errors handles these: `exception.args[0]` is a `KafkaError` with
`code()`, `retriable()` and `fatal()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from kafka_coop.errors import AssignorFailedError, ConfigurationError, Failure
from kafka_coop.membership.failures import LOCAL_INVALID_ARG, LOCAL_MAX_POLL_EXCEEDED

if TYPE_CHECKING:
    from kafka_coop.partitions import PartitionResult


class CoopException(KafkaException):  # named like its base
    """Any error that kafka_coop raises by itself."""


class ConfigurationException(CoopException, ValueError):  # noqa: N818  # the same
    """A configuration key is unknown, of the wrong type, or contradicts another.

    Attributes:
        key: The offending key.
    """

    def __init__(self, error: KafkaError, key: str) -> None:
        super().__init__(error)
        self.key = key

    def __reduce__(self) -> tuple[type[ConfigurationException], tuple[KafkaError, str]]:
        return type(self), (self.args[0], self.key)


class CommitException(CoopException):
    """A commit that failed for some of its partitions, or for all.

    Attributes:
        partitions: All of them, each with its offset, and its error where it failed.
    """

    def __init__(self, error: KafkaError, partitions: Sequence[PartitionResult] = ()) -> None:
        super().__init__(error)
        self.partitions = partitions


class CommitFailedException(CommitException):
    """The group did not take a commit: the partitions are not this member's any more."""


class FencedException(CoopException):
    """Another member runs with the same ``group.instance.id``."""


class PollTooLateException(CoopException):
    """``max.poll.interval.ms`` passed between two polls: the group went on without us."""


class AssignorException(CoopException):
    """A user's assignor raised, or returned nonsense. The group survives it."""


_LOST = (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)


def kafka_error(
    code: int, reason: str, *, retriable: bool = False, fatal: bool = False
) -> KafkaError:
    """A KafkaError with a reason of ours in place of librdkafka's description."""
    return KafkaError(code, reason, retriable=retriable, fatal=fatal)


def coop_exception(code: int, reason: str) -> CoopException:
    """An exception with one of librdkafka's codes and a reason of ours."""
    return CoopException(kafka_error(code, reason))


def exception_of(failure: Failure) -> CoopException:
    """The exception that tells the user of a failure."""
    error = kafka_error(
        failure.code, failure.message, retriable=failure.retriable, fatal=failure.fatal
    )
    kind: type[CoopException] = CoopException
    if isinstance(failure.cause, AssignorFailedError):
        kind = AssignorException
    elif failure.code == KafkaError.FENCED_INSTANCE_ID:
        kind = FencedException
    elif failure.code == LOCAL_MAX_POLL_EXCEEDED:
        kind = PollTooLateException
    made = kind(error)
    made.__cause__ = failure.cause
    return made


def configuration_exception(error: ConfigurationError) -> ConfigurationException:
    """A configuration error, as confluent raises it: with ``_INVALID_ARG``."""
    return ConfigurationException(KafkaError(LOCAL_INVALID_ARG, str(error)), error.key)


def commit_exception(error: KafkaError, partitions: Sequence[PartitionResult]) -> CommitException:
    """The exception for a commit that ended with ``error``, and so for these partitions."""
    kind = CommitFailedException if error.code() in _LOST else CommitException
    return kind(error, partitions)
