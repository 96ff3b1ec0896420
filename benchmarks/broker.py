"""The broker that both sources read from: compiled as a broker in production is."""

from __future__ import annotations

from kafka_coop.testing.local import LocalKafka


def broker() -> LocalKafka:
    """A real Kafka whose JVM may use both of its compilers.

    `LocalKafka` does without the second, which is at work for longer than a test. A broker that
    stays slow wants the cores that sources and Spark want, too, and most where it is asked most
    often: by the built-in source, whose share of them grows when the broker's shrinks.
    """
    return LocalKafka(jvm_options=["-XX:TieredStopAtLevel=4"])
