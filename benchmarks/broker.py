"""The broker that benchmarks measure with: its JVM runs as a broker's in production does."""

from __future__ import annotations

from typing import Final

from kafka_coop.testing.local import DEFAULT_VERSION, LocalKafka

_AS_IN_PRODUCTION: Final = (
    "-XX:TieredStopAtLevel=4",
    # As Kafka's own scripts have it (kafka-run-class.sh, kafka-server-start.sh).
    *("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-Xms1g", "-Xmx1g"),
)


def broker(version: str = DEFAULT_VERSION) -> LocalKafka:
    """A real Kafka whose JVM may use both of its compilers, and collects garbage bit by bit.

    `LocalKafka` does without either, which take longer to start. A broker that stays slow wants the
    cores that members, sources and Spark want, too, and most where it is asked most often: for the
    built-in source's many partitions, or by members that beat. And one that stands still for 30 to
    60 ms every few seconds, to collect its garbage, has every partition silent for as long.
    """
    return LocalKafka(version=version, jvm_options=_AS_IN_PRODUCTION)
