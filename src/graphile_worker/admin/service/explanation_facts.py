"""The facts for an explanation: a few cheap statements, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...database.statements.control import list_requests
from ...database.statements.inspection import JobDetails, get_job
from ...database.statements.limits import list_limits
from ...database.statements.manage_jobs import cancel_reasons
from ...database.statements.pauses import pauses_if_readable
from ...history.statistics import read_statistics
from ...recovery.registry.workers import WorkerList, list_workers, running_tasks
from ...values.schema_name import SchemaName
from ..database import Database
from ..models.common import Count
from ..models.explanation import Explanation
from .explanation import JobFacts, QueueFacts, decide
from .search import find_these

COUNTED = 1_000
"""Jobs in line that are counted."""
LATELY = timedelta(minutes=15)
UNAVAILABLE = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.UNDEFINED_FUNCTION,
)

T = TypeVar("T")


async def explanation_of(database: Database, job_id: int) -> Explanation:
    """The explanation of a job."""
    async with database.read() as connection:
        job = await get_job(connection, database.schema, job_id)
        if job is None:
            return GONE
        return decide(await gather(connection, database.schema, job))


GONE = Explanation(
    kind="gone", tone="idle", headline="It is not in the queue: it has completed, or was deleted.",
)  # fmt: skip


async def gather(connection: Connection, schema: SchemaName, job: JobDetails) -> JobFacts:
    """Everything that a decision about this job may need, and no more."""
    now = datetime.now(UTC)
    is_locked, is_ready = job.state == "locked", job.state == "ready"
    workers: WorkerList | None = None
    has_others, quiet = False, frozenset[str]()
    if is_locked or is_ready:
        workers = await if_readable(connection, lambda: list_workers(connection, schema))
        if workers is not None:
            found = workers
            has_others = (
                await if_readable(connection, lambda: _has_others(connection, schema, found)) or False
            )
            requests = await if_readable(connection, lambda: list_requests(connection, schema)) or []
            quiet = frozenset(request.worker_id for request in requests)
    is_cancelled = False
    if job.state in ("locked", "failed"):
        reasons = await if_readable(connection, lambda: cancel_reasons(connection, schema, [job.id]))
        is_cancelled = job.id in (reasons or {})
    pauses = await pauses_if_readable(connection, schema) if not is_locked else []
    queue, limits, ahead = None, [], None
    if is_ready:
        queue = await _queue(connection, schema, job, workers, now)
        found_limits = await if_readable(connection, lambda: list_limits(connection, schema)) or []
        limits = [limit for limit in found_limits if job.task_identifier in limit.tasks]
        ahead = await _ahead(connection, schema, job)
    rate, usual = await _pace(connection, schema, job, now) if is_locked or is_ready else (None, None)
    return JobFacts(
        job=job, now=now,
        workers=None if workers is None else [pool for pool in workers if pool.host is not None],
        has_others=has_others, quiet=quiet, pauses=pauses, limits=limits, queue=queue, ahead=ahead, rate=rate,
        usual=usual, is_cancelled=is_cancelled,
    )  # fmt: skip


async def _has_others(connection: Connection, schema: SchemaName, workers: WorkerList) -> bool:
    return (await running_tasks(connection, schema, workers)).has_others


async def _queue(
    connection: Connection, schema: SchemaName, job: JobDetails, workers: WorkerList | None, now: datetime
) -> QueueFacts | None:
    if job.job_queue_id is None:
        return None
    rows = await connection.fetch(load("admin/queue_of_job", schema), job.job_queue_id)
    if not rows:
        return None
    holders = [
        (row["locked_by"], max(0.0, now.timestamp() - row["locked_at"]))
        for row in rows
        if row["locked_at"] is not None
    ]
    running: list[tuple[int, str]] = []
    held_by = {holder for holder, _ in holders}
    ids = [one for pool in workers or () if pool.id in held_by for one in pool.job_ids]
    if ids:
        name = rows[0]["name"]
        found = await find_these(connection, schema, ids)
        running = [
            (row["id"], row["locked_by"])
            for row in reversed(found)
            if row["queue"] == name and row["locked_by"] in held_by
        ]
    return QueueFacts(rows[0]["name"], holders, len(rows), running)


async def _ahead(connection: Connection, schema: SchemaName, job: JobDetails) -> Count:
    row: Any = await connection.fetchrow(
        load("admin/jobs_ahead", schema), job.priority, job.raw_run_at, job.id, COUNTED, job.task_id
    )
    return Count(row["jobs"], "exact" if row["jobs"] < COUNTED else "at_least")


async def _pace(
    connection: Connection, schema: SchemaName, job: JobDetails, now: datetime
) -> tuple[float | None, float | None]:
    """Jobs per second lately, and what 95 % of the runs of this task do not exceed."""

    async def read() -> tuple[float | None, float | None]:
        since = now - LATELY
        everything = await read_statistics(connection, schema, since=since, until=None, now=now)
        day = await read_statistics(
            connection, schema, since=now - timedelta(days=1), until=None, now=now,
            task_identifier=job.task_identifier,
        )  # fmt: skip
        finished = sum(one.attempts for one in everything)
        rate = finished / LATELY.total_seconds() if finished else None
        return rate, day[0].run_percentile(0.95) if day and day[0].attempts >= 20 else None

    return await if_readable(connection, read) or (None, None)


async def if_readable(connection: Connection, read: Callable[[], Awaitable[T]]) -> T | None:
    """What a statement finds; None where its table is missing or may not be read."""
    try:
        async with connection.transaction():  # a savepoint: the transaction goes on
            return await read()
    except Exception as error:
        if sqlstate_of(error) not in UNAVAILABLE:
            raise
        return None
