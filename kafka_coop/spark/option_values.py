"""Values of options, read from the strings that Spark passes on. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kafka_coop.spark.errors import OptionError
from kafka_coop.types import TopicPartition, is_topic_name

EARLIEST: Final = -2
"""In place of an offset: where the log begins. Spark's number."""

LATEST: Final = -1
"""In place of an offset: where the log ends. Spark's number."""

_DURATION = re.compile(r"\s*(\d{1,1000})\s*(us|ms|s|m|min|h|d|)\s*", re.IGNORECASE)
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_LONGEST: Final = timedelta(days=36_500)
"""Far below what a thread can wait for, which is no time-out of anybody's."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
"""Python's own int() takes 1_000 as well, which is a slip here."""

_LARGEST: Final = 2**63 - 1
_LAST_INDEX: Final = 2**31 - 1
_INDEX_DIGITS: Final = 10
_FLAGS = re.compile(r"\(\?([aimsux]+)\)")
"""In front of a regular expression. Python wants them in front of all of it, or of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where reading begins, or ends.

    Attributes:
        option: The option that says so, for error messages.
        offset: `EARLIEST` or `LATEST` for every partition; None: see the others.
        offsets: Each partition's own, `EARLIEST` and `LATEST` among them.
        timestamp: The first record at or after this time (ms since the epoch).
        timestamps: Each partition's own.
    """

    option: str
    offset: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None


def flag(option: str, text: str) -> bool:
    """``true`` or ``false``, in any case."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise OptionError(option, f"{text!r} is neither true nor false")


def integer(option: str, text: str, *, least: int = 1, most: int = _LARGEST) -> int:
    """A whole number between two bounds."""
    if not _WHOLE.fullmatch(text.strip()):
        raise OptionError(option, f"{text!r} is no whole number: write digits alone")
    number = int(text)
    if not least <= number <= most:
        raise OptionError(option, f"{number} is not between {least} and {most}")
    return number


def duration(option: str, text: str) -> timedelta:
    """As Spark reads one: a number with us, ms, s, m (min), h or d; a bare one counts ms."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise OptionError(option, f"{text!r} is no duration: write for instance 500ms, 30s or 15m")
    try:
        given = int(found[1]) * _UNITS[found[2].lower()]
    except OverflowError:
        given = timedelta.max
    if given > _LONGEST:
        raise OptionError(option, f"{text!r} is too long a time: {_LONGEST.days}d is the longest")
    return given


def topic_names(option: str, text: str) -> tuple[str, ...]:
    """Topics with commas between them."""
    names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not names:
        raise OptionError(option, "names no topic: write one or more, with commas between them")
    for name in names:
        _check_topic(option, name)
    return names


def topic_name(option: str, text: str) -> str:
    """One topic."""
    name = text.strip()
    if "," in name:
        raise OptionError(
            option, f"{name!r} is no single topic: name one, or fill the column topic row by row"
        )
    _check_topic(option, name)
    return name


def pattern(option: str, text: str) -> str:
    """A regular expression that has to match a topic's whole name, as in Java's ``matches``.

    Returns:
        The same for `CoopConsumer.subscribe`: ``^`` in front.
    """
    if not text:
        raise OptionError(option, "is empty: give a regular expression, for instance orders-.*")
    flags = _FLAGS.match(text)
    of, rest = (flags[1], text[flags.end() :]) if flags else ("", text)
    whole = f"^(?{of}:{rest})$"
    try:
        re.compile(rest)
        re.compile(whole)  # of flags that exclude one another the rest alone knows nothing
    except re.error as error:
        raise OptionError(option, f"{text!r} is no regular expression: {error}") from None
    return whole


def assigned(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions by topic: ``{"orders":[0,1]}``."""
    example = '{"orders":[0,1]}'
    found = []
    for topic, indices in _object(option, text, example).items():
        _check_topic(option, topic)
        if not isinstance(indices, list) or not all(_is_index(i) for i in indices):
            raise OptionError(option, f"{topic!r} needs a list of partitions, as in {example}")
        found += [TopicPartition(topic, index) for index in indices]
    if not found:
        raise OptionError(option, f"names no partition: write for instance {example}")
    return tuple(sorted(set(found)))


def by_partition(option: str, text: str, *, example: str, least: int) -> dict[TopicPartition, int]:
    """``{"orders":{"0":23,"1":-2}}``: a number for each partition."""
    found = {}
    for topic, numbers in _object(option, text, example).items():
        _check_topic(option, topic)
        if not isinstance(numbers, dict):
            raise OptionError(option, f"{topic!r} needs an object by partition, as in {example}")
        for index, number in numbers.items():
            is_number = index.isdecimal() and len(index) <= _INDEX_DIGITS
            if not (is_number and _is_index(int(index))):
                raise OptionError(option, f"{index!r} is no partition of {topic}: see {example}")
            if type(number) is not int or not least <= number <= _LARGEST:
                raise OptionError(
                    option,
                    f"{topic}:{index} needs a whole number from {least} to {_LARGEST}, got "
                    f"{number!r}",
                )
            found[TopicPartition(topic, int(index))] = number
    if not found:
        raise OptionError(option, f"names no partition: write for instance {example}")
    return found


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"is no JSON ({error}): write for instance {example}") from None
    if not isinstance(given, dict):
        raise OptionError(option, f"is no JSON object: write for instance {example}")
    return given


def _is_index(given: Any) -> bool:
    return type(given) is int and 0 <= given <= _LAST_INDEX


def _check_topic(option: str, name: str) -> None:
    if not is_topic_name(name):
        raise OptionError(
            option, f"{name!r} is no topic name: letters, digits, '.', '_' and '-' (1 to 249)"
        )
