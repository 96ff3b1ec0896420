"""Flights and reports that the demo's tests share."""

from __future__ import annotations

from hypothesis import strategies as st

from kafka_coop.demo.flights import Flight
from kafka_coop.demo.reports import Rebalanced

airports = st.sampled_from(["EWR", "JFK", "LGA", "TUL", "OKC"])
minutes = st.none() | st.integers(-100, 2000)
flights = st.builds(Flight, airports, airports, minutes, minutes)


def rebalanced(
    *, generation: int = 3, role: str = "leader", error: str | None = None, follow_up: bool = True
) -> Rebalanced:
    return Rebalanced(
        generation=generation,
        role=role,
        members=4 if role == "leader" else None,
        reason="group is already rebalancing",
        error=error,
        gained=0,
        given_up=1,
        lost=0,
        kept=3,
        follow_up=follow_up,
        total=1.25,
        phases={"join": 1.0, "revoke": 0.0123, "commit": 0.00123},
    )
