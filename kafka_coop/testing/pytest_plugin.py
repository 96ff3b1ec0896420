"""Fixtures for pytest: an embedded broker for each test, a real one for the whole run.

Registered by the package's entry point; nothing is imported before a fixture is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_coop.testing.cluster import KafkaCluster
    from kafka_coop.testing.embedded import EmbeddedKafka


@pytest.fixture
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """A fresh embedded cluster of one broker for each test."""
    from kafka_coop.testing.embedded import EmbeddedKafka  # noqa: PLC0415  # loads librdkafka

    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def local_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A real Kafka, started once for the whole run, whatever the number of xdist workers.

    Tests share it: let each use topics and groups of its own. Where Java or the jars are not
    to be had, tests are skipped, and fail where the environment variable CI is set.
    """
    from kafka_coop.testing.shared import shared_kafka  # noqa: PLC0415  # loads librdkafka
    from kafka_coop.testing.unavailable import LocalKafkaUnavailableError  # noqa: PLC0415  # with it

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # each worker has a folder of its own in it
    with contextlib.ExitStack() as stack:
        try:
            kafka = stack.enter_context(shared_kafka(folder))
        except LocalKafkaUnavailableError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        yield kafka
