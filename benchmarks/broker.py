"""The broker that benchmarks measure with: compiled as a broker in production is."""

from __future__ import annotations

from kafka_coop.testing.local import DEFAULT_VERSION, LocalKafka


def broker(version: str = DEFAULT_VERSION) -> LocalKafka:
    """A real Kafka whose JVM may use both of its compilers.

    `LocalKafka` does without the second, which is at work for longer than a test. A broker that
    stays slow wants the cores that members, sources and Spark want, too: of two cores it takes two
    thirds of one for the load of `benchmarks.rebalance`, and a third with both compilers.
    """
    return LocalKafka(version=version, jvm_options=["-XX:TieredStopAtLevel=4"])
