from __future__ import annotations

import asyncio
import threading

import pytest
from broker_harness import on_loop

from kafka_coop.broker.blocking import run_blocking


@on_loop
async def test_it_runs_elsewhere_and_returns_the_result() -> None:
    ident = await run_blocking(threading.get_ident, name="t")
    assert ident != threading.get_ident()


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(ValueError, ValueError), (SystemExit, RuntimeError), (StopIteration, RuntimeError)],
)
@on_loop
async def test_it_raises_what_was_raised(
    raised: type[BaseException], seen: type[Exception]
) -> None:
    def fail() -> None:
        raise raised

    with pytest.raises(seen):
        await run_blocking(fail, name="t")


@on_loop
async def test_a_cancelled_call_is_abandoned_and_its_end_harms_nobody() -> None:
    go = threading.Event()
    started = threading.Event()
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        started.set()
        go.wait()

    call = asyncio.create_task(run_blocking(hang, name="t"))
    await asyncio.to_thread(started.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert threads[0].daemon
    go.set()
    await asyncio.to_thread(threads[0].join)
    await asyncio.sleep(0)  # the late result comes in, to nobody


def test_a_call_that_outlives_its_loop_harms_nobody() -> None:
    go = threading.Event()
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        go.wait()

    async def main() -> None:
        call = asyncio.create_task(run_blocking(hang, name="t"))
        await asyncio.sleep(0)
        call.cancel()

    asyncio.run(main())
    go.set()
    for thread in threads:
        thread.join()
