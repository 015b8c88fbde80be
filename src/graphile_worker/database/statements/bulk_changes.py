"""Changes to all jobs that match a filter: their steps, and the loop that runs them.

Each step is one statement in a short transaction of its own. A statement reads a bounded number of jobs by
ascending id: along the index of failed jobs if only those match, else along the primary key. Jobs that are
locked are skipped, unless they are cancelled, and jobs that are added after the start are not touched. Rows
that another transaction has locked are skipped, too; a cancel comes back for them, see `cancel_left`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from inspect import isawaitable
from typing import Any, TypedDict

import msgspec

from ...errors import InvalidArgumentError
from ...values.clock import Clock
from ...values.job import Job
from ...values.schema_name import SchemaName
from ..connections.connection import Connection, Row
from ..connections.statement import with_planner_settings
from ..sql import load
from .job_filter import JobFilter, index_variant
from .manage_jobs import cancel_left, failure_values, schedule_values, why_workers_cannot_be_asked

STEP = 1_000
"""Jobs that one statement changes at most."""
READ = 20_000
"""Jobs that one statement reads at most, however few of them match."""
TIMES = ("run_at", "created_at", "updated_at", "locked_at")
FAILED_INDEX = "_private_py_jobs_failed_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkReport:
    """What a change to all jobs that match a filter has done."""

    changed: int = 0
    """Jobs that were changed or deleted; in a dry run, those that would be."""
    asked: int = 0
    """How many of `changed` are running jobs that were cancelled: their workers were asked to end them."""
    skipped: int = 0
    """Jobs that match, but were locked by a worker or by another transaction."""
    failed: int = 0
    """How many of `changed` are permanently failed: after the change, or in a dry run before it."""
    tasks: dict[str, int] = field(default_factory=dict)
    """`changed` by task identifier."""
    last_id: int = 0
    """All matching jobs up to this id have been processed: `JobFilter(after=last_id)` continues."""
    up_to: int = 0
    """The highest id that is processed; later jobs are not touched."""
    is_complete: bool = False
    """Whether the end was reached: all jobs, or the limit of the filter. False if it was stopped."""
    is_dry_run: bool = False
    problem: str | None = None
    """Why running jobs were skipped instead of cancelled."""


class BulkOptions(TypedDict, total=False):
    """How to change all jobs that match a filter, as keyword arguments."""

    all: bool
    """Needed with a filter that has no conditions, which matches every job."""
    dry_run: bool
    """Only count."""
    step_size: int
    """Jobs that are changed in one transaction, 1,000 by default."""
    jobs_per_second: float
    """How many jobs to change per second at most."""
    up_to: int
    """The highest id to process, such as `up_to` of a dry run."""
    on_step: Callable[[BulkReport, list[int]], Awaitable[object] | object]
    """Called after each step with the report so far and the ids of the jobs that it changed."""
    stop: asyncio.Event | threading.Event
    """Set it to stop after the current step. A blocking client takes a `threading.Event`."""


@dataclass(frozen=True, slots=True)
class BulkChange:
    """A statement in `database/sql/manage` and its own parameters."""

    statement: str
    values: tuple[object, ...] = ()
    changes_locked: bool = False
    """Whether it changes jobs that are locked by a worker too."""
    otherwise: BulkChange | None = None
    """What to do where the workers of locked jobs cannot be asked."""


OnKept = Callable[[Connection, list[Job]], Awaitable[None]]
"""Called in the transaction of a step with the jobs in it that ask to be kept."""

COMPLETE = BulkChange("bulk_complete")
LOOK = BulkChange("bulk_look")


def cancellation(reason: str | None, schema: SchemaName) -> BulkChange:
    """Cancel the jobs."""
    values = (*failure_values(reason), schema.name)
    return BulkChange("bulk_cancel", values, changes_locked=True, otherwise=COMPLETE)


def failure(reason: str | None) -> BulkChange:
    """Fail the jobs permanently."""
    return BulkChange("bulk_fail", failure_values(reason))


def new_schedule(
    *,
    run_at: datetime | timedelta | None,
    priority: int | None,
    attempts: int | None,
    max_attempts: int | None,
) -> BulkChange:
    """Change the values that are not None."""
    return BulkChange("bulk_reschedule", schedule_values(run_at, priority, attempts, max_attempts))


class BulkWalk:
    """One walk over the jobs that match: `begin`, then `step` until the report is complete.

    Both leave the walk as it was if they fail, and can then be called again.
    """

    def __init__(
        self,
        schema: SchemaName,
        filter: JobFilter,
        change: BulkChange,
        options: BulkOptions,
        on_kept: OnKept | None = None,
    ) -> None:
        _check_filter(filter, everything=options.get("all", False))
        is_dry_run = options.get("dry_run", False)
        self._schema = schema
        self._filter = filter
        self._change = BulkChange("bulk_count", (change.changes_locked,)) if is_dry_run else change
        self._step = READ if is_dry_run else step_size(options)
        self._up_to = options.get("up_to")
        self._on_kept = on_kept
        self._has_failed_index = False
        self._conditions = (*filter.values, filter.required_state)
        # A filter by state may be about waiting jobs only, and a held one that looks ready may be running.
        self._comes_back = self._change.changes_locked and filter.state is None
        after = filter.after.id if isinstance(filter.after, Job) else filter.after
        start = max(after or 0, (filter.id_from or 1) - 1)
        self.report = BulkReport(last_id=start, is_dry_run=is_dry_run)

    async def begin(self, connection: Connection) -> None:
        """Find the last job to process."""
        index = f"{self._schema.quoted}.{FAILED_INDEX}"
        row: Any = await connection.fetchrow(load("manage/bulk_bounds", self._schema), index)
        bounds = [bound for bound in (self._up_to, self._filter.id_to) if bound is not None]
        up_to = min([row["last_id"] or 0, *bounds])
        self._has_failed_index = row["has_failed_index"]
        self.report = replace(self.report, up_to=up_to, is_complete=self.report.last_id >= up_to)

    async def step(self, connection: Connection) -> list[int]:
        """Make the next step; returns the ids that were changed."""
        report, limit = self.report, self._filter.limit
        size = self._step if limit is None else min(self._step, limit - report.changed)
        position = (report.last_id, report.up_to, READ)
        try:
            rows = await self._run(connection, size, position)
        except Exception as error:
            problem = why_workers_cannot_be_asked(error)
            if problem is None or self._change.otherwise is None:
                raise
            self._change, self._comes_back = self._change.otherwise, False
            self.report = replace(report, problem=problem)
            return await self.step(connection)
        found = Counter(report.tasks)
        for row in rows:
            if row["jobs"]:
                found[row["task_identifier"]] += row["jobs"]
        changed = found.total()
        last_id = rows[0]["last_id"]
        self.report = replace(
            report,
            changed=changed,
            asked=report.asked + sum(row["asked"] for row in rows),
            skipped=report.skipped + rows[0]["seen"] - (changed - report.changed),
            failed=report.failed + sum(row["failed"] for row in rows),
            tasks=dict(found),
            last_id=last_id,
            is_complete=last_id >= report.up_to or changed == limit,
        )
        ids = _ids(rows)
        if self.report.skipped > report.skipped and self._comes_back and not connection.is_in_transaction():
            ids += await self._cancel_left(connection, report.last_id, ids)
        return sorted(ids)

    async def _cancel_left(self, connection: Connection, after: int, changed: list[int]) -> list[int]:
        """Cancel the jobs of this step whose rows were locked; returns the ids of those that it changed."""
        position = (after, self.report.last_id, READ)
        async with _by_indexes(connection, self._schema):
            rows = await connection.fetch(self._statement_of(LOOK), READ, *self._conditions, *position)
        left = sorted(set(_ids(rows)) - set(changed))
        if self._filter.limit is not None:
            left = left[: self._filter.limit - self.report.changed]
        if not left:
            return []
        reason: Any = self._change.values[0]
        found = await cancel_left(connection, self._schema, left, reason, self._on_kept)
        if found is None:
            self._comes_back = False  # a worker is blocked; the other steps need not wait for it
            return []
        report, ended = self.report, [*found.removed, *found.asked]
        changed_now = report.changed + len(ended)
        self.report = replace(
            report,
            changed=changed_now,
            asked=report.asked + len(found.asked),
            skipped=report.skipped - len(left) + len(found.running),
            tasks=dict(Counter(report.tasks) + Counter(job.task_identifier for job in ended)),
            is_complete=report.is_complete or changed_now == self._filter.limit,
        )
        return [job.id for job in ended]

    async def _run(self, connection: Connection, size: int, position: tuple[int, int, int]) -> Sequence[Row]:
        async with _by_indexes(connection, self._schema):
            rows = await connection.fetch(
                self._statement_of(self._change), size, *self._conditions, *position, *self._change.values
            )
            if self._on_kept is not None and (kept := _kept_jobs(rows)):
                await self._on_kept(connection, kept)
        return rows

    def _statement_of(self, change: BulkChange) -> str:
        variant = index_variant(self._filter, has_failed_index=self._has_failed_index)
        return load(f"manage/{change.statement}{variant}", self._schema)


def _ids(rows: Sequence[Row]) -> list[int]:
    return [int(job_id) for row in rows for job_id in row["ids"] or ()]


def _kept_jobs(rows: Sequence[Row]) -> list[Job]:
    """The jobs of a step that ask to be kept. JSON has no infinite numbers, so these come as texts."""
    found = [columns for row in rows if row["kept"] for columns in msgspec.json.decode(row["kept"])]
    for columns in found:
        for name in TIMES:
            columns[name] = None if columns[name] is None else float(columns[name])
    return [Job(*columns.values()) for columns in found]


def step_size(options: BulkOptions) -> int:
    """Jobs per step; with a pace, about one step per second."""
    size = options.get("step_size", STEP)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= READ:
        raise InvalidArgumentError("step_size", f"expected a number from 1 to {READ}, got {size!r}")
    pace = options.get("jobs_per_second")
    if pace is None:
        return size
    if isinstance(pace, bool) or not isinstance(pace, int | float) or not pace > 0:
        raise InvalidArgumentError("jobs_per_second", f"expected a number above 0, got {pace!r}")
    return max(1, min(size, int(min(pace, READ))))


@asynccontextmanager
async def _by_indexes(connection: Connection, schema: SchemaName) -> AsyncIterator[None]:
    """A transaction in which tables are read by their indexes; the caller's own is left as it is."""
    if connection.is_in_transaction():
        async with connection.transaction():  # a savepoint; what belongs together is undone together
            yield
        return
    async with with_planner_settings(connection, load("manage/read_by_indexes", schema)):
        yield


def _check_filter(filter: JobFilter, *, everything: bool) -> None:
    if not isinstance(filter, JobFilter):
        raise InvalidArgumentError("filter", f"expected a JobFilter, got {filter!r}")
    if filter.order != "oldest":
        raise InvalidArgumentError(
            "filter", f"jobs are changed from the oldest on; got the order {filter.order}"
        )
    if not filter.has_conditions and not everything:
        raise InvalidArgumentError(
            "filter", "has no conditions and matches every job; to change all jobs, pass all=True"
        )


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
