"""What a configuration property is. The facts of librdkafka's are in `librdkafka_keys`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """How librdkafka reads a property's value. The values are its documentation's words."""

    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    ENUM = "enum value"
    """One of a closed set, whatever its case."""
    FLAGS = "CSV flags"
    TEXT = "string"
    PATTERNS = "pattern list"
    DEDICATED = "see dedicated API"
    """Set by C functions alone: no configuration holds it."""
    HIDDEN = "hidden"
    """Accepted but documented nowhere, so that its type is not known."""
    CALLABLE = "callable"
    """confluent-kafka's own: a Python callable."""
    OBJECT = "object"
    """confluent-kafka's own: any Python object."""


class Role(enum.Enum):
    """Whose property it is. librdkafka ignores, with a warning, one of the other role."""

    CONSUMER = "C"
    PRODUCER = "P"
    BOTH = "*"


@dataclass(frozen=True, slots=True)
class Property:
    """A configuration property.

    Attributes:
        name: The key.
        role: Whose it is.
        kind: How its value is read.
        default: Its default in writing; None: unset.
        limits: Of an integer: the least and the greatest value.
        choices: Of a closed set: its values.
        alias_of: The name of the property that this one is another name for.
    """

    name: str
    role: Role
    kind: Kind
    default: str | None = None
    limits: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()
    alias_of: str | None = None
