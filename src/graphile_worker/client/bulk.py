"""Runs a change to all jobs that match a filter: step after step, at a pace, until it is stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ..clock import Clock
from ..db.connection import Connection
from ..queries.bulk_changes import BulkOptions, BulkReport, BulkWalk

Run = Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]
"""Runs one transaction on a connection."""
CHECK_INTERVAL = 0.1  # seconds; an event of another thread wakes no event loop


async def change_in_steps(walk: BulkWalk, run: Run, options: BulkOptions, clock: Clock) -> BulkReport:
    """Make all steps of the walk; returns its report."""
    on_step, stop = options.get("on_step"), options.get("stop")
    pace = None if walk.report.is_dry_run else options.get("jobs_per_second")
    await run(walk.begin)
    while not (walk.report.is_complete or (stop is not None and stop.is_set())):
        ids: list[int] = await run(walk.step)
        if on_step is not None:
            answer = on_step(walk.report, ids)
            if isawaitable(answer):
                await answer
        if pace is not None and ids and not walk.report.is_complete:
            await _sleep(len(ids) / pace, clock, stop)
    return walk.report


async def _sleep(seconds: float, clock: Clock, stop: asyncio.Event | threading.Event | None) -> None:
    """Sleep until the time is over or the change is stopped."""
    if stop is None:
        await clock.sleep(seconds)
        return
    if isinstance(stop, threading.Event):
        end = clock.monotonic() + seconds
        while not stop.is_set() and (left := end - clock.monotonic()) > 0:
            await clock.sleep(min(left, CHECK_INTERVAL))
        return
    waiting = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
