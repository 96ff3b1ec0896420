"""Kafka's error codes, by name, under one import for every pure layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "Table"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """The reactions to one response's errors; a code without a row takes ``otherwise``."""

    rows: Mapping[ErrorCode, R]
    otherwise: R

    def __getitem__(self, error: ErrorCode) -> R:
        return self.rows.get(error, self.otherwise)
