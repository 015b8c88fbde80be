"""What runs now: from the reports of Python pools, and the locks of others where the table is small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...database.connections.connection import Connection
from ...database.sql import load
from ...recovery.registry.workers import WorkerSummary
from ...values.job import instant
from ...values.schema_name import SchemaName
from ..models.tasks import RunningLine

MOST_JOBS = 30
"""Jobs that are looked up by id: those that run longest."""
LONG = 60.0
"""Seconds. A job that runs for less is not unusual."""
MUCH_LONGER = 3
"""Times the p95 of its task."""


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """The jobs that run, those that run longest first."""

    lines: list[RunningLine]
    by_task: Mapping[str, int]


async def read_running(
    connection: Connection,
    schema: SchemaName,
    workers: Sequence[WorkerSummary],
    now: datetime,
    usual: Mapping[str, float | None],
) -> RunningJobs:
    """What these workers run; `usual` has the p95 of tasks."""
    started = _started(workers)
    if not started:
        return RunningJobs([], {})
    oldest = sorted(started, key=lambda id: started[id] or now)[:MOST_JOBS]
    rows = await connection.fetch(load("admin/running_jobs", schema), oldest)
    lines = [
        _line(row["id"], row["task_identifier"], started[row["id"]] or instant(row["locked_at"]),
              row["locked_by"] or "", now, usual)
        for row in rows
    ]  # fmt: skip
    return RunningJobs(sorted(lines, key=lambda line: line.started_at), _by_task(lines, len(started)))


def _by_task(lines: Sequence[RunningLine], total: int) -> dict[str, int]:
    """How many jobs of each task run. If not all were looked up, the others are taken to be like them."""
    scale = total / len(lines) if total > MOST_JOBS and lines else 1
    return {task: round(count * scale) for task, count in Counter(line.task for line in lines).items()}


def _started(workers: Sequence[WorkerSummary]) -> dict[int, datetime | None]:
    """The ids of jobs that run, and since when; None if only the time of the lock is known."""
    found: dict[int, datetime | None] = {}
    for worker in workers:
        if worker.running is not None:
            found |= {job.id: job.started_at for job in worker.running}
        elif not worker.is_registered:  # another runtime
            found |= dict.fromkeys(worker.job_ids)
    return found


def _line(
    job_id: int,
    task: str,
    started_at: datetime,
    worker: str,
    now: datetime,
    usual: Mapping[str, float | None],
) -> RunningLine:
    p95, seconds = usual.get(task), (now - started_at).total_seconds()
    is_long = p95 is not None and seconds > max(LONG, MUCH_LONGER * p95)
    return RunningLine(
        job_id=job_id, task=task, started_at=started_at, worker=worker, usual=p95, is_long=is_long
    )
