"""A member of Java's own client, run in a JVM and driven from here."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]  # py4j has no types

from kafka_coop.testing.cluster import wait_until
from kafka_coop.testing.jars import kafka_jars
from kafka_coop.testing.java import find_java
from kafka_coop.testing.local import DEFAULT_VERSION

_CLIENTS = "org.apache.kafka.clients.consumer"
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"

PATIENCE = 30.0
"""Seconds for its process to end."""


class JavaMember:
    """A `KafkaConsumer` that is polled where the test says so.

    Args:
        servers: ``bootstrap.servers``.
        group, client, topics: As they say.
    """

    def __init__(self, servers: str, group: str, client: str, *topics: str) -> None:
        port, self._process = launch_gateway(
            classpath=f"{kafka_jars(DEFAULT_VERSION)}/*",
            java_path=str(find_java()),
            javaopts=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True)
        )
        java = self._gateway.jvm
        settings = java.java.util.Properties()
        for key, value in {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": client,
            "partition.assignment.strategy": f"{_CLIENTS}.CooperativeStickyAssignor",
            "key.deserializer": _BYTES,
            "value.deserializer": _BYTES,
        }.items():
            settings.setProperty(key, value)
        self._slice = java.java.time.Duration.ofMillis(100)
        self.consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
        self.consumer.subscribe(list(topics))

    def poll_until_assigned(self) -> None:
        def assigned() -> bool:
            self.consumer.poll(self._slice)
            return bool(self.consumer.assignment().size())

        wait_until(assigned, "the Java member owns nothing")

    def metric_names(self, group: str) -> set[str]:
        """The names of the metrics of one of its groups."""
        keys: Any = self.consumer.metrics().keySet()
        return {key.name() for key in keys if key.group() == group}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.consumer.close()
        finally:
            self._gateway.shutdown()
            self._process.stdin.close()  # or it would live for as long as the test run
            self._process.wait(PATIENCE)
