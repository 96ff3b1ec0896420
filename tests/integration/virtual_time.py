"""Time that passes only where somebody waits for it."""

from __future__ import annotations

_NANO = 1_000_000_000


class VirtualTime:
    """Stands in for the module `time`, where a module under test has it.

    Attributes:
        now: Seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * _NANO)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
