"""Prometheus metrics, health, and the log of rebalances.

`member` is what a consumer calls; `families` declares what is counted as it happens, `scrape`
what is read when Prometheus asks, `librdkafka` what librdkafka's statistics say; `collector` ties
all to a registry, and `serving` serves it; `log` writes one event a rebalance.
``docs/METRICS.md`` says what each metric means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_coop.first_use import imported_on_first_use

if TYPE_CHECKING:
    from kafka_coop.metrics.serving import MetricsServer, serve

__all__ = ["MetricsServer", "serve"]

if not TYPE_CHECKING:  # most processes never serve
    __getattr__ = imported_on_first_use(
        __name__, dict.fromkeys(__all__, "kafka_coop.metrics.serving")
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
