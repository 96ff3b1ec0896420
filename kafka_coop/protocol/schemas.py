"""kio's description of a message in one version, loaded when it is first spoken.

kio describes every message of Kafka in every version as dataclasses; importing them all would
take seconds. Requests are written by kio, answers are read by
`kafka_coop.protocol.response_reader`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from kafka_coop.protocol.response_reader import Reader, Values, message_reader


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSchema:
    """A request in one version.

    Attributes:
        version: Which.
        flexible: Whether it is one with tagged fields, its header included (KIP-482).
        module: Where kio has the structures inside it.
        entity: kio's class of it.
        write: kio's writer.
    """

    version: int
    flexible: bool
    module: Any
    entity: Any
    write: Callable[[Any, Any], None]

    def encode(self, **values: Any) -> bytes:
        """Returns the request's bytes. Values that the version has no field for are left out."""
        buffer = io.BytesIO()
        self.write(buffer, _filled(self.entity, values))
        return buffer.getvalue()

    def nested(self, name: str, /, **values: Any) -> Any:
        """Returns a structure to stand inside the request, made likewise."""
        return _filled(getattr(self.module, name), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSchema:
    """An answer in one version.

    Attributes:
        flexible_header: Whether tagged fields follow its correlation id.
        read: Its reader.
    """

    flexible_header: bool
    read: Reader


@cache
def request_schema(api: str, version: int) -> RequestSchema:
    """Loads a request's description; ``api`` as in ``join_group``."""
    module = _messages(api, version).request
    entity = getattr(module, _class_name(api) + "Request")
    return RequestSchema(
        version=version,
        flexible=entity.__flexible__,
        module=module,
        entity=entity,
        write=import_module("kio.serial").entity_writer(entity),
    )


@cache
def response_schema(api: str, version: int) -> ResponseSchema:
    """Loads an answer's description; ``api`` as in ``join_group``."""
    entity = getattr(_messages(api, version).response, _class_name(api) + "Response")
    return ResponseSchema(
        flexible_header=entity.__header_schema__.__flexible__, read=message_reader(entity)
    )


def _messages(api: str, version: int) -> Any:
    """Imports the package, which imports both of its modules, and never one of these by itself.

    Each member has a thread of its own. One thread that began with a module would lock that, then
    its package, while another one goes from the package to the module: Python sees a deadlock
    and raises in one of them.
    """
    return import_module(f"kio.schema.{api}.v{version}")


def _class_name(api: str) -> str:
    return "".join(word.capitalize() for word in api.split("_"))


def _filled(entity: Any, values: Values) -> Any:
    known = entity.__dataclass_fields__
    return entity(**{name: value for name, value in values.items() if name in known})
