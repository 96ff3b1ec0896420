"""Prometheus metrics, health, and the log of rebalances.

`member` is what a consumer calls; `families` declares what is counted as it happens, `scrape`
what is read when Prometheus asks, `librdkafka` what librdkafka's statistics say; `collector` ties
all to a registry, and `serving` serves it; `log` writes one event a rebalance.
``docs/METRICS.md`` says what each metric means.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_coop.metrics.serving import MetricsServer, serve

__all__ = ["MetricsServer", "serve"]


def __getattr__(name: str) -> object:
    """Imports the server when it is asked for: most processes of tests never serve (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("kafka_coop.metrics.serving"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
