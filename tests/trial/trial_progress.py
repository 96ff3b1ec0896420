"""Waits for a crew to go on."""

from __future__ import annotations

import time
from datetime import timedelta

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.trial.crew import Crew
from kafka_coop.testing.trial.outcome import NANO

PATIENCE = timedelta(seconds=90)


def until_all_read_on(crew: Crew, *members: str, seconds: int) -> None:
    """Until each has read a record so many seconds from now."""
    began = time.monotonic_ns()

    def read_on() -> bool:
        last = [max((e.at for e in crew.events(m) if e.kind == "R"), default=0) for m in members]
        return min(last) > began + seconds * NANO

    wait_until(read_on, f"records of {members}", PATIENCE)
