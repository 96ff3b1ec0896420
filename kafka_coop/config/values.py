"""Keys and values as librdkafka reads them.

confluent-kafka hands every value to librdkafka as ``str(value)``, the empty one and None as
NULL; librdkafka parses it with C's means. What comes of that is copied here, so that a
configuration means the same to both, and so that it is refused by one if by the other. The
one difference: librdkafka ignores what follows a number ("45s" is 45, in milliseconds) and
digits beyond 32 bits. Such a value is a mistake, and refused here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from numbers import Number
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from kafka_coop.config.known import KNOWN, OWN_PREFIX, property_of
from kafka_coop.config.properties import Kind, Property, Role
from kafka_coop.errors import ConfigurationError
from kafka_coop.types import MAX_STRING_BYTES

_C_SPACE = " \t\n\v\f\r"

# Decimal, 0x hexadecimal and 0 octal, as strtol(…, 0); str() of a whole float ends in ".0".
_NUMERAL = re.compile(
    rf"[{_C_SPACE}]*(?P<sign>[+-]?)"
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<octal>0[0-7]*)|(?P<decimal>[1-9][0-9]*))(?:\.0*)?"
)

_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

# librdkafka strips leading white space of all other texts.
_UNSTRIPPED = frozenset({"client.rack", "group.protocol.type"})

_TOLD_TO_BROKERS = frozenset({"client.id", "client.rack", "group.id", "group.instance.id"})

_SHOWN_CHARACTERS = 80
_SHOWN_BITS = 64

_DEFAULT_TOPIC_CONFIG = "default.topic.config"
_PLUGINS = "plugin.library.paths"


@dataclass(frozen=True, slots=True)
class Values:
    """A configuration, checked key by key. Names are canonical: aliases are resolved.

    Attributes:
        raw: The keys and values as the user wrote them, topic-level keys among the others.
    """

    raw: Mapping[str, Any] = field(repr=False)
    _read: Mapping[str, Any] = field(repr=False)
    _written_as: Mapping[str, str]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Values:
        """Reads a configuration.

        Raises:
            ConfigurationError: A key is unknown or refused, or its value can't be read, or
                two names of one property disagree.
        """
        raw = _flattened(config)
        read_so_far: dict[str, Any] = {}
        written_as: dict[str, str] = {}
        for key, value in raw.items():
            if key not in KNOWN and raw.get(_PLUGINS) and not key.startswith(OWN_PREFIX):
                continue  # a plugin's own key, which librdkafka alone can judge
            prop = property_of(key)
            understood = read(prop, value, key=key)
            if prop.name in read_so_far and read_so_far[prop.name] != understood:
                other = written_as[prop.name]
                raise ConfigurationError(
                    key, f"{key} and {other} are the same property, given two values: remove one"
                )
            read_so_far[prop.name] = understood
            written_as[prop.name] = key
        return cls(raw, read_so_far, written_as)

    def given(self, name: str) -> bool:
        """Whether the user wrote it, under any of its names."""
        return name in self._read

    def name_of(self, name: str) -> str:
        """The name the user knows the property by."""
        return self._written_as.get(name, name)

    def integer(self, name: str) -> int:
        """An integer property, its default where it is not given."""
        value: int = self._value(name)
        return value

    def duration(self, name: str) -> timedelta:
        """An integer property that counts milliseconds."""
        return timedelta(milliseconds=self.integer(name))

    def flag(self, name: str) -> bool:
        """A boolean property."""
        value: bool = self._value(name)
        return value

    def choice(self, name: str) -> str:
        """A property with a closed set of values, in librdkafka's spelling."""
        value: str = self._value(name)
        return value

    def text(self, name: str) -> str | None:
        """A text property; None where it is neither given nor has a default."""
        value: str | None = self._value(name)
        return value

    def given_value(self, name: str) -> Any:
        """What the user gave, as it was read; None where nothing, or nothing but None or ''."""
        return self._read.get(name)

    def shown(self, name: str) -> str:
        """``key=value`` for an error's text. Never to be asked of a secret."""
        origin = "" if self.given(name) else " (the default)"
        return f"{self.name_of(name)}={self._value(name)}{origin}"

    def _value(self, name: str) -> Any:
        value = self._read.get(name)
        return read(KNOWN[name], KNOWN[name].default) if value is None else value


def _flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of ``default.topic.config`` among the others, over them, as confluent does."""
    flat = dict(config)
    topic_config = flat.pop(_DEFAULT_TOPIC_CONFIG, {})
    if not isinstance(topic_config, Mapping):
        raise ConfigurationError(
            _DEFAULT_TOPIC_CONFIG,
            f"{_DEFAULT_TOPIC_CONFIG} must be a dict, not {_type(topic_config)}; its keys may "
            "as well stand at the top level",
        )
    flat.update(topic_config)
    for key in flat:
        if not isinstance(key, str):
            raise ConfigurationError(str(key), f"the key {key!r} must be a str, not {_type(key)}")
    return flat


def read(prop: Property, value: Any, *, key: str | None = None) -> Any:
    """A value as librdkafka would read it.

    Args:
        prop: The property.
        value: What the user gave.
        key: The name the user gave it by, should an error have to say so.

    Returns:
        An ``int``, ``bool``, ``str`` or None by the property's kind, or the value itself where
        librdkafka or confluent-kafka alone can judge it. None: unset.

    Raises:
        ConfigurationError: The value is outside of what the property takes.
    """
    adapter = _adapter(prop)
    try:
        return adapter.validate_python(value)
    except ValidationError:
        pass  # raised below: the pydantic error holds the value, and an error's context shows
    raise _refusal(prop, value, key or prop.name)


def _refusal(prop: Property, value: Any, key: str) -> ConfigurationError:
    told = isinstance(value, str | int | float) and prop.kind is not Kind.TEXT
    subject = f"{key}={_short(value)}" if told else f"{key}, of type {_type(value)},"
    return ConfigurationError(key, f"{subject} is refused: it must be {_wanted(prop)}")


def _short(value: float | str) -> str:
    if isinstance(value, str):
        cut = "…" if len(value) > _SHOWN_CHARACTERS else ""
        return f"{value[:_SHOWN_CHARACTERS]!r}{cut}"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"(a number of {value.bit_length()} bits)"  # repr() may refuse to write it
    return repr(value)


def _wanted(prop: Property) -> str:
    match prop.kind:
        case Kind.INTEGER:
            assert prop.limits is not None, "every integer has limits"
            return "a whole number from {} to {}".format(*prop.limits)
        case Kind.BOOLEAN:
            return "true or false"
        case Kind.ENUM:
            return f"one of {', '.join(prop.choices)}"
        case Kind.FLAGS:
            return f"a comma-separated list of {', '.join(prop.choices) or 'features'}"
        case Kind.CALLABLE:
            return "callable (leave the key out where there is nothing to call)"
        case _:
            most = f" of {MAX_STRING_BYTES} bytes at most" if prop.name in _TOLD_TO_BROKERS else ""
            return f"a str{most} that C can hold (no NUL, no lone surrogates)"


def _type(value: object) -> str:
    return type(value).__name__


@cache
def _adapter(prop: Property) -> TypeAdapter[Any]:
    """The pydantic type of a property. Built when its key is first met: there are 200."""
    shape: Any = Any
    match prop.kind:
        case _ if prop.role is Role.PRODUCER:
            pass  # librdkafka says what it thinks of those, if anything
        case Kind.INTEGER:
            assert prop.limits is not None, "every integer has limits"
            low, high = prop.limits
            shape = Annotated[int, BeforeValidator(_whole), Field(ge=low, le=high)]
        case Kind.BOOLEAN:
            shape = Annotated[bool, BeforeValidator(_truth)]
        case Kind.ENUM:
            shape = Annotated[str, BeforeValidator(partial(_one_of, prop.choices))]
        case Kind.FLAGS:
            shape = Annotated[str, BeforeValidator(partial(_some_of, prop.choices))]
        case Kind.TEXT:
            strip = prop.name not in _UNSTRIPPED
            read_text = partial(_text, strip=strip, short=prop.name in _TOLD_TO_BROKERS)
            shape = Annotated[str | None, BeforeValidator(read_text)]
        case Kind.CALLABLE:
            shape = Annotated[Any, BeforeValidator(_callable)]
        case _:
            pass
    return TypeAdapter(shape)


def _c_string(value: Any) -> str:
    """What librdkafka gets to see, '' for its NULL.

    confluent takes ``str()`` of anything; of a list or bytes nothing good comes of it.
    """
    if value is None:
        return ""
    if not isinstance(value, str | Number | os.PathLike):
        raise ValueError("neither text nor a number")  # noqa: TRY004  # pydantic's contract
    text = str(value)
    if "\0" in text:
        raise ValueError("C ends a string at a NUL")
    text.encode()  # a lone surrogate has no UTF-8, and its UnicodeEncodeError is a ValueError
    return text


def _whole(value: Any) -> int:
    match = _NUMERAL.fullmatch(_c_string(value))
    if match is None:
        raise ValueError("not a whole number")
    hexadecimal, octal, decimal = match["hex"], match["octal"], match["decimal"]
    base = 16 if hexadecimal else 8 if octal else 10
    number = int(hexadecimal or octal or decimal, base)
    return -number if match["sign"] == "-" else number


def _truth(value: Any) -> bool:
    truth = _TRUTHS.get(_folded(_c_string(value)))
    if truth is None:
        raise ValueError("neither true nor false")
    return truth


def _one_of(choices: tuple[str, ...], value: Any) -> str:
    wanted = _folded(_c_string(value).lstrip(_C_SPACE))
    for choice in choices:
        if _folded(choice) == wanted:
            return choice
    raise ValueError("none of the choices")


def _some_of(choices: tuple[str, ...], value: Any) -> str:
    text = _c_string(value)
    if not text:
        raise ValueError("empty")
    for flag in text.split(","):
        name = flag.lstrip(_C_SPACE)
        if choices and name:
            _one_of(choices, name[1:] if name[0] in "+-" else name)
    return text


def _text(value: Any, *, strip: bool, short: bool) -> str | None:
    text = _c_string(value)
    if short and len(text.encode()) > MAX_STRING_BYTES:
        raise ValueError("no string of Kafka's protocol")
    return (text.lstrip(_C_SPACE) if strip else text) or None


def _callable(value: Any) -> Any:
    if not callable(value):
        raise ValueError("not callable")  # noqa: TRY004  # pydantic's contract
    return value


def _folded(text: str) -> str:
    """Lower case as C has it: ASCII letters alone (``'\N{KELVIN SIGN}'.lower()`` is a ``k``)."""
    return text.lower() if text.isascii() else text
