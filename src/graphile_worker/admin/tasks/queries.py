"""Tasks: every one that has jobs, ran lately, or that a running worker has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from ...cron.preview import describe_pattern
from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.inspection import count_by_task
from ...history.records import HistoryFilter
from ...history.statistics import StatisticsList, TaskStatistics, read_statistics
from ...recovery.registry.workers import (
    RunningTasks,
    WorkerList,
    WorkerSummary,
    has_rust_workers,
    list_workers,
)
from ...values.job import Pause, instant
from ...values.schema_name import SchemaName
from ..answers import Count, CountKind, PauseRequest, Points, RangeName
from ..database import HISTORY, STATISTICS, WORKERS
from ..live.hub import Hub
from ..schedules.queries import FUNCTION
from ..schedules.queries import TABLE as SCHEDULES
from ..security.redact import redacted_pauses
from .expected import TaskNotes, read_notes
from .series import RANGES, Timeline, read_timeline


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds; None if nothing ran."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Rates, shares and times are of the last hour, and of Python workers."""

    name: str
    ready: Count
    scheduled: Count
    failed: Count
    """Permanently failed jobs."""
    running: int | None = None
    """None if no worker reports what it runs."""
    completed_per_minute: float = 0.0
    failed_per_minute: float = 0.0
    """Attempts."""
    failure_share: float | None = None
    """Of all attempts; None if there was none."""
    run_time: Percentiles = Percentiles()
    wait_time: Percentiles = Percentiles()
    longest: float | None = None
    workers: int = 0
    """Python pools that are alive and have the task."""
    slots: int = 0
    """Of these pools."""
    is_known: bool = True
    """False if jobs wait and no running worker has the task, as far as the database knows."""
    pause: Pause | None = None
    trend: Points = []
    """Attempts per minute in the last hour."""

    @property
    def waiting(self) -> Count:
        kind = "estimate" if "estimate" in (self.ready.kind, self.scheduled.kind) else "exact"
        return Count(self.ready.value + self.scheduled.value, kind)  # type: ignore[arg-type]


class RunningLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is running."""

    job_id: int
    task: str
    started_at: datetime
    worker: str
    usual: float | None = None
    """The p95 of its task's run times in the last hour."""
    is_long: bool = False
    """Whether it runs for much longer than usual."""


class SlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """A kept job that took long."""

    job_id: int
    seconds: float
    finished_at: datetime
    state: str
    worker: str | None


class TaskSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job of the task."""

    identifier: str
    words: str
    """When it runs."""
    zone: str


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One task, with what its page shows."""

    task: TaskRow
    worker_ids: list[str]
    run_times: list[int]
    """Attempts by run time, in the buckets of `graphile_worker.history.statistics`."""
    wait_times: list[int]
    slowest: list[SlowRun] = []
    """Of the jobs that are kept; empty if the task keeps none."""
    running: list[RunningLine] = []
    is_recorded: bool = True
    """False if no worker records statistics."""
    notes: TaskNotes | None = None
    """What workers say about it; None if they say nothing."""
    schedules: list[TaskSchedule] = []
    """Of running workers."""


TaskOrder = Literal["busiest", "name", "waiting", "running", "rate", "failing", "p95", "wait", "workers"]


class TasksQuery(msgspec.Struct, frozen=True):
    """Which tasks, in which order."""

    q: str = ""
    """Only tasks with this text in their name."""
    order: TaskOrder = "busiest"
    """The largest value first."""


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which task, and what the charts of its page show."""

    name: str
    range: RangeName = "1h"


class TaskPauseRequest(PauseRequest, frozen=True, kw_only=True):
    """What to pause, how long and why."""

    name: str = ""
    """Empty for every task."""


class TaskResumeRequest(msgspec.Struct, frozen=True):
    """What to resume."""

    name: str = ""
    """Empty for what a pause of every task began."""


class Resumed(msgspec.Struct, frozen=True):
    """Whether there was a pause."""

    was_paused: bool


HOUR = timedelta(hours=1)
COUNTED_PAGES = 200
"""Of the jobs table: jobs are counted in a table of this size, and estimated in a larger one."""
MOST_TASKS = 500
RUST_FOR = 300.0
"""Seconds for which it is not looked up again whether Rust workers use the schema."""
FAILING = 0.1
"""Share of failed attempts from which on a task is listed first."""
SLOWEST = 10
SLOW_FOR = 60.0
"""Seconds for which kept runs, notes and schedules of a task are not read again."""
SCHEDULES_SHOWN = 20
SEARCHED_RUNS = 200
"""Kept jobs among which the slowest are searched."""


@dataclass(slots=True)
class TaskFacts:
    """What the database knows about tasks now."""

    rows: list[TaskRow]
    workers: WorkerList
    running: RunningJobs
    pauses: list[Pause]
    hour: Timeline
    statistics: StatisticsList | None = None
    by_task: dict[str, TaskStatistics] = field(default_factory=dict)


async def read_tasks(connection: Connection, hub: Hub, now: datetime) -> TaskFacts:
    """All tasks, the busiest first."""
    schema, tables = hub.database.schema, hub.sampler.tables
    workers = await _workers(connection, schema, tables)
    known = await _known_tasks(connection, hub, workers)
    hour = await read_timeline(
        connection, schema, RANGES["1h"], now, tables=tables, samples=hub.sampler.samples
    )
    statistics = await _statistics(connection, schema, tables, now)
    by_task = {each.task_identifier or "": each for each in statistics or ()}
    usual = {name: each.run_percentile(0.95) for name, each in by_task.items()}
    running = await read_running(connection, schema, workers, now, usual)
    pauses = redacted_pauses(await hub.database.pauses(connection))
    counts, is_estimate = await count_by_task(connection, schema, COUNTED_PAGES)
    facts = TaskFacts([], workers, running, pauses, hour, statistics, by_task)
    names = {*counts, *by_task, *known.tasks} - {""}
    kind: CountKind = "estimate" if is_estimate else "exact"
    reports = WORKERS in tables
    rows = [_row(facts, name, known, counts.get(name, {}), kind, reports=reports) for name in names]
    facts.rows = sorted(rows, key=_busiest)[:MOST_TASKS]
    return facts


async def read_task(hub: Hub, facts: TaskFacts, name: str) -> TaskDetails | None:
    """One task; None if nothing is known about it."""
    row = next((row for row in facts.rows if row.name == name), None)
    pools = hash(frozenset(pool.id for pool in facts.workers))  # a deploy may change what they say
    is_task, slow = await hub.shared(
        f"about task {name} {pools}", lambda: _slow_facts(hub, name), max_age=SLOW_FOR
    )
    if row is None and not is_task:
        return None
    statistics = facts.by_task.get(name)
    return TaskDetails(
        task=row or TaskRow(name=name, ready=Count(0), scheduled=Count(0), failed=Count(0)),
        worker_ids=[pool.id for pool in facts.workers if pool.can_run(name)],
        run_times=list(statistics.run_times) if statistics else [],
        wait_times=list(statistics.wait_times) if statistics else [],
        running=[line for line in facts.running.lines if line.task == name][:SLOWEST],
        is_recorded=facts.hour.is_recorded,
        **slow,
    )


async def _slow_facts(hub: Hub, name: str) -> tuple[bool, dict[str, Any]]:
    """Whether jobs of a task were ever added, and what hardly changes about it."""
    schema = hub.database.schema
    async with hub.database.read() as connection:
        is_task = bool(await connection.fetchval(load("admin/is_task", schema), name))
        return is_task, {
            "slowest": await _slowest(connection, hub, name),
            "notes": await read_notes(connection, schema, name, hub.redactor),
            "schedules": await _schedules(connection, hub, name),
        }


def _row(
    facts: TaskFacts,
    name: str,
    known: RunningTasks,
    counts: Mapping[str, int],
    kind: CountKind,
    *,
    reports: bool,
) -> TaskRow:
    """One task; `reports` is whether pools report what they run."""
    pools = [pool for pool in known.pools if name in (pool.tasks or ())]
    trend = facts.hour.tasks.get(name)
    has_jobs = bool(counts.get("ready") or counts.get("scheduled"))
    return TaskRow(
        name=name,
        ready=Count(counts.get("ready", 0), kind),
        scheduled=Count(counts.get("scheduled", 0), kind),
        failed=Count(counts.get("failed", 0), kind),
        running=facts.running.by_task.get(name, 0) if reports else counts.get("running", 0),
        workers=len(pools),
        slots=sum(pool.concurrency or 0 for pool in pools),
        is_known=bool(pools) or not has_jobs or known.has_others,
        pause=next((each for each in facts.pauses if each.task_identifier == name), None),
        trend=[a + b for a, b in zip(trend.completed, trend.failed, strict=True)] if trend else [],
        **_of_statistics(facts.by_task.get(name)),
    )


def _of_statistics(statistics: TaskStatistics | None) -> dict[str, Any]:
    if statistics is None or not statistics.attempts:
        return {}
    failed = statistics.failed + statistics.permanently_failed
    return {
        "completed_per_minute": statistics.completed / 60,
        "failed_per_minute": failed / 60,
        "failure_share": failed / statistics.attempts,
        "run_time": Percentiles(*(statistics.run_percentile(share) for share in (0.5, 0.95, 0.99))),
        "wait_time": Percentiles(*(statistics.wait_percentile(share) for share in (0.5, 0.95, 0.99))),
        "longest": statistics.longest,
    }


def _busiest(row: TaskRow) -> tuple[object, ...]:
    is_failing = (row.failure_share or 0.0) >= FAILING
    return row.is_known, not is_failing, -row.ready.value, -row.completed_per_minute, row.name


async def _workers(connection: Connection, schema: SchemaName, tables: frozenset[str]) -> WorkerList:
    if WORKERS not in tables:
        return WorkerList([], is_complete=False)
    return await list_workers(connection, schema, heartbeats=False)


async def _known_tasks(connection: Connection, hub: Hub, workers: WorkerList) -> RunningTasks:
    """The tasks of running workers. Whether Rust is used at all is not looked up every time."""
    has_rust = await hub.database.remembered(
        "Rust", lambda: has_rust_workers(connection, hub.database.schema), RUST_FOR
    )
    has_others = has_rust or not workers.is_complete or not all(each.is_registered for each in workers)
    pools = [worker for worker in workers if worker.is_alive]
    return RunningTasks(pools, frozenset(task for pool in pools for task in pool.tasks or ()), has_others)


async def _statistics(
    connection: Connection, schema: SchemaName, tables: frozenset[str], now: datetime
) -> StatisticsList | None:
    """Of the last hour, by task."""
    if not tables >= STATISTICS:
        return None
    return await read_statistics(
        connection, schema, since=now - HOUR, until=None, now=now, by="task", is_recorded=True
    )


async def _schedules(connection: Connection, hub: Hub, name: str) -> list[TaskSchedule]:
    """The recurring jobs of the task."""
    if not {WORKERS, SCHEDULES} <= hub.sampler.tables:
        return []
    rows = await connection.fetch(load("schedules/list_of_task", hub.database.schema), name, SCHEDULES_SHOWN)
    return [
        TaskSchedule(
            identifier=row["identifier"],
            words=FUNCTION if row["pattern"] is None else describe_pattern(row["pattern"]),
            zone=row["zone"] or "UTC",
        )
        for row in rows
    ]


async def _slowest(connection: Connection, hub: Hub, name: str) -> list[SlowRun]:
    """The slowest of the latest kept jobs."""
    if not hub.sampler.tables >= HISTORY:
        return []
    finished = await hub.database.utils.history.list_finished(
        HistoryFilter(task_identifier=name, limit=SEARCHED_RUNS), connection=connection
    )
    runs = [
        SlowRun(
            job_id=each.job_id, seconds=each.duration, finished_at=each.finished_at, state=each.state,
            worker=each.pool_id,
        )
        for each in finished
        if each.duration is not None
    ]  # fmt: skip
    return sorted(runs, key=lambda run: -run.seconds)[:SLOWEST]


# -- running jobs -------------------------------------------------------------------------------------------

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
