"""A loop that repeats one call: what it logs about failures. Pure."""

from __future__ import annotations

import asyncio

import pytest

from graphile_worker.errors import WorkerStoppedError
from graphile_worker.recovery.sweeper import Periodic
from graphile_worker.values.clock import SystemClock
from support.working import PATIENCE, until


async def test_each_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    results = iter(
        [ValueError("first"), ValueError("first"), 0.0, ValueError("second"), ValueError("second"), 0.0]
    )
    is_over = asyncio.Event()

    async def call() -> float:
        result = next(results, None)
        if isinstance(result, ValueError):
            raise result
        if result is None:
            is_over.set()
        return 0.0

    loop = Periodic("the test", call, SystemClock(), first_after=0.0)
    loop.start()
    async with asyncio.timeout(PATIENCE):
        await is_over.wait()
        await loop.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "the test failed: first; retrying",
        "the test failed: second; retrying",
    ]


async def test_a_pool_that_has_ended_by_itself_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Its connections are closed a moment before its loops are asked to stop, as at the end of `run_once`."""
    calls = 0

    async def call() -> float:
        nonlocal calls
        calls += 1
        raise WorkerStoppedError("the worker has ended")

    loop = Periodic("the test", call, SystemClock(), first_after=0.0)
    loop.start()
    await until(lambda: loop._loop.is_done)
    await loop.stop()
    assert (calls, caplog.records) == (1, [])
