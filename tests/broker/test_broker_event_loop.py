"""The loop that connections run on is asyncio's own, whatever the application has chosen."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from kafka_coop.broker.event_loop import run_in_own_loop
from kafka_coop.testing.proxy import Proxy

pytestmark = pytest.mark.usefixtures("foreign_loops")


async def kind_of_loop() -> type:
    return type(asyncio.get_running_loop())


def test_a_thread_of_ours_runs_on_asyncios_loop() -> None:
    found: Future[type] = Future()
    thread = threading.Thread(target=lambda: found.set_result(run_in_own_loop(kind_of_loop())))
    thread.start()
    thread.join()
    assert found.result(0) is asyncio.SelectorEventLoop


def test_what_it_runs_may_raise() -> None:
    async def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run_in_own_loop(fails())


def test_a_proxy_does_so_too() -> None:
    with Proxy("127.0.0.1", 9):
        pass
