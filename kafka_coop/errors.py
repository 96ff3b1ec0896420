"""What can go wrong, as values and exceptions that know nothing of librdkafka.

    Exception
    ├── LocalProtocolError     we were driven wrongly: a bug of ours or of the caller
    ├── MalformedDataError     bytes of a peer or a broker that do not parse
    ├── ConfigurationError     a key, its value and the remedy
    ├── RequestFailedError     a request that got no usable answer
    │   ├── ConnectionFailedError      refused, cut, unreachable, a broken frame
    │   ├── RequestTimedOutError       no answer in time; the connection is closed with it
    │   ├── AuthenticationFailedError  TLS or SASL said no: retrying alone won't help
    │   ├── GroupRefusedError          the coordinator says no of the group as a whole
    │   └── VersionNotSupportedError   the broker is too old (or too new) for us
    └── AssignorFailedError    a user's assignor raised, or returned nonsense

The façade turns `Failure` values and these exceptions into `KafkaException`s with
`KafkaError` codes (`kafka_coop.kafka_errors`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error on its way to the user.

    Attributes:
        code: Kafka's error code where positive, librdkafka's local one (``_STATE`` = -172, …)
            where negative.
        message: What failed, and what the operator can do.
        retriable: Whether the same call may succeed later.
        fatal: Whether this consumer can never again be a member.
    """

    code: int
    message: str
    retriable: bool = False
    fatal: bool = False
    cause: BaseException | None = None


class LocalProtocolError(Exception):
    """A state machine was given an event it has no row for. Its state is unchanged."""


class MalformedDataError(ValueError):
    """Bytes from a peer or a broker do not parse. The text says what and where."""


class ConfigurationError(ValueError):
    """A configuration key is unknown, of the wrong type, or contradicts another.

    Attributes:
        key: The offending key.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class RequestFailedError(Exception):
    """A request got no usable answer. Whether it took effect at the broker is unknown."""


class ConnectionFailedError(RequestFailedError):
    """The connection could not be made, was cut, or carried bytes that do not parse."""


class RequestTimedOutError(RequestFailedError):
    """No answer came in time. Its connection is closed: a late answer must not be mistaken."""


class AuthenticationFailedError(RequestFailedError):
    """TLS or SASL refused us, or we refused the broker."""


class GroupRefusedError(RequestFailedError):
    """The coordinator tells nothing of the group: a right is missing, say.

    Attributes:
        code: Kafka's error code.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class VersionNotSupportedError(RequestFailedError):
    """Broker and client share no version of a request."""


class AssignorFailedError(Exception):
    """A user's assignor raised or returned nonsense; ``__cause__`` holds what it raised."""


def text_of(error: BaseException) -> str:
    """Type and text of what a user's code raised; its text may raise in its turn."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception as unsaid:  # noqa: BLE001  # a user's __str__ may raise anything
        return f"{kind}, whose text raises {type(unsaid).__name__}"
