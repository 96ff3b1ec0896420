"""A pytest plugin: a test that hangs in C ends its process, which tells where.

pytest-timeout's alarm is a signal, whose handler runs once Python goes on. A main thread that waits
inside librdkafka for ever never does, and so the run would last until somebody kills it, and say
nothing. This limit comes a minute after that one; a thread of faulthandler's own keeps it.
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
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout"))
    grace = item.config.getoption("--grace")
    faulthandler.dump_traceback_later(limit + grace, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
