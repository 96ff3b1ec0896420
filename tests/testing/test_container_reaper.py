"""What testcontainers removes after a crash, where its reaper's image can't be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound  # type: ignore[import-untyped]  # no stubs
from testcontainers.core.config import testcontainers_config

from kafka_coop.testing import container


@pytest.mark.parametrize("is_here", [True, False])
def test_the_containers_of_others_are_reaped_as_ever(
    monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    """A Kafka of ours that does without it leaves a user's own database as it was."""

    def get(_: str) -> None:
        if not is_here:
            raise ImageNotFound("it is not here")

    docker: Any = SimpleNamespace(client=SimpleNamespace(images=SimpleNamespace(get=get)))
    monkeypatch.setattr(container, "_docker", lambda: docker)
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    with container._reaped_only_by_what_is_here():
        assert testcontainers_config.ryuk_disabled is not is_here
    assert testcontainers_config.ryuk_disabled is False
