"""The clock of leases and timeouts. Called for every record: no Python in between."""

from kafka_coop.broker.clock import elapsed as now

__all__ = ["now"]
