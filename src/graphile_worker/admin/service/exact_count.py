"""Counting the jobs that match a filter, in steps, for a bounded time."""

from __future__ import annotations

import time
from dataclasses import replace

from ...database.sql import load
from ...database.statements.bulk_changes import COMPLETE, BulkReport, BulkWalk
from ...database.statements.job_filter import JobFilter
from ..database import Database

LONGEST = 10.0  # seconds


async def count_in_steps(database: Database, filter: JobFilter, *, longest: float = LONGEST) -> BulkReport:
    """A dry run of a bulk change: the same walk, so the same jobs."""
    walk = BulkWalk(
        database.schema, replace(filter, order="oldest", after=None, limit=None), COMPLETE,
        {"all": True, "dry_run": True},
    )  # fmt: skip
    async with database.read() as connection:
        await walk.begin(connection)
    deadline = time.monotonic() + longest
    while not walk.report.is_complete and time.monotonic() < deadline:
        async with database.read() as connection:
            await connection.fetchrow(load("manage/read_by_indexes", database.schema))
            await walk.step(connection)
    return walk.report
