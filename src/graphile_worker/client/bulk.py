"""Runs a change to all jobs that match a filter: batch after batch, at a pace, until it is stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ..clock import Clock
from ..db.connection import Connection
from ..queries.bulk_changes import BulkOptions, BulkReport, BulkWalk

Run = Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]
"""Runs one transaction on a connection."""


async def change_in_batches(walk: BulkWalk, run: Run, options: BulkOptions, clock: Clock) -> BulkReport:
    """Make all steps of the walk; returns its report."""
    on_batch = options.get("on_batch")
    pace = None if walk.report.is_dry_run else options.get("jobs_per_second")
    await run(walk.begin)
    while not walk.report.is_complete:
        ids: list[int] = await run(walk.step)
        if on_batch is not None:
            answer = on_batch(walk.report, ids)
            if (await answer if isawaitable(answer) else answer) is False:
                break
        if pace is not None and ids and not walk.report.is_complete:
            await clock.sleep(len(ids) / pace)
    return walk.report
