"""A pytest plugin: a test that hangs in C ends its process, which tells where.

pytest-timeout's alarm is a signal, whose handler runs once Python goes on. A main thread that waits
inside librdkafka for ever never does, and so the run would last until somebody kills it, and say
nothing. This limit comes a minute after that one; a thread of faulthandler's own keeps it. A child
that a test forks has no such thread, and ends by `os._exit`: else it would wait for it.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

_GRACE = 60.0
"""Seconds in which the alarm may be heard after all, and what it interrupts ends."""

_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--grace", type=float, default=_GRACE, help="seconds from time-out to exit")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # while it is nobody's but the terminal's


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _arm(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """After a failure its teardown may hang, and pytest itself has just called the limit off."""
    if isinstance(node, pytest.Item):
        _arm(node)


def _arm(item: pytest.Item) -> None:
    marker = item.get_closest_marker("timeout")
    limit: float | None = marker.args[0] if marker else item.config._env_timeout  # type: ignore[attr-defined]  # pytest-timeout's
    if limit:
        later = limit + item.config.getoption("--grace")
        stderr = item.config.stash[_STDERR]
        faulthandler.dump_traceback_later(later, exit=True, file=stderr)
