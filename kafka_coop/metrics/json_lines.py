"""Log records as JSON, one object a line, with the structured fields of rebalances."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """For any handler: ``handler.setFormatter(JsonFormatter())``.

    Every line has ``time`` (UTC), ``level``, ``logger`` and ``message``; what a record carries
    as ``kafka_coop`` (see `kafka_coop.metrics.log.rebalance_fields`) is added under that name,
    and an exception's traceback as ``exception``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the record: what JSON does not know is written as text."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "kafka_coop", None)
        if fields is not None:
            line["kafka_coop"] = fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
