from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_coop.testing import EmbeddedKafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka
