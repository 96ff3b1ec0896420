"""The broker that benchmarks measure with: compiled as a broker in production is."""

from __future__ import annotations

from kafka_coop.testing.local import DEFAULT_VERSION, LocalKafka


def broker(version: str = DEFAULT_VERSION) -> LocalKafka:
    """A real Kafka whose JVM may use both of its compilers.

    `LocalKafka` does without the second, which is at work for longer than a test. A broker that
    stays slow wants the cores that members, sources and Spark want, too, and most where it is asked
    most often: for the built-in source's many partitions, or by members that beat.
    """
    return LocalKafka(version=version, jvm_options=["-XX:TieredStopAtLevel=4"])
