"""Brokers and checks for tests: ours and yours.

The names are imported on first use, so that the pytest plugin costs nothing to the tests
that need no broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_coop.testing.assignor import AssignorCheckError, check_assignor
    from kafka_coop.testing.container import ContainerKafka
    from kafka_coop.testing.embedded import EmbeddedKafka
    from kafka_coop.testing.local import LocalKafka

__all__ = [
    "AssignorCheckError",
    "ContainerKafka",
    "EmbeddedKafka",
    "LocalKafka",
    "check_assignor",
]

_HOMES = {
    "AssignorCheckError": "kafka_coop.testing.assignor",
    "ContainerKafka": "kafka_coop.testing.container",
    "EmbeddedKafka": "kafka_coop.testing.embedded",
    "LocalKafka": "kafka_coop.testing.local",
    "check_assignor": "kafka_coop.testing.assignor",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
