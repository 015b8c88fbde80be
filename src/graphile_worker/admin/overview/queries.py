"""Overview: the state of everything, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...history.error_groups import ErrorGroup, list_error_groups
from ...recovery.registry.workers import WorkerSummary
from ...values.job import Pause
from ..answers import Count, Marker, RangeName, shared_with
from ..database import ERRORS, PAUSES, STATISTICS, WORKERS, Cost
from ..failures.counts import GroupCount, count_errors
from ..live.hub import Hub
from ..live.sampler import Sample
from ..schedules.queries import ScheduleTurn, list_turns
from ..security.redact import Redactor
from ..tasks.queries import RunningLine, TaskFacts, TaskRow, read_tasks
from ..tasks.series import RANGES, TaskSeries, Timeline, read_deploys, read_markers, read_timeline
from ..web.show import error_title
from .findings import Forecast, Level, OverviewFacts, OverviewFinding, Rates, find, forecast


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True):
    """A group of errors."""

    fingerprint: str
    task: str
    title: str
    errors: int
    """Failed attempts."""
    failed: Count
    """Jobs that are permanently failed now."""
    retrying: Count
    """Jobs that wait for their next attempt."""
    first_at: datetime
    last_at: datetime
    is_new: bool
    """Whether it was first seen in the last day."""
    version: str | None = None
    """Of the application, when it was first seen."""


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A Python worker pool, or one of another runtime that has jobs."""

    id: str
    name: str
    version: str | None
    slots: int | None
    busy: int
    long: int = 0
    """Slots whose job runs unusually long."""
    is_alive: bool | None = None


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job and its next run."""

    identifier: str
    task: str
    next_at: datetime


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of everything."""

    at: datetime
    level: Level
    findings: list[OverviewFinding]
    """The worst first; one that says that all is well if there is none."""
    ready: Count
    scheduled: Count
    running: Count
    failed: Count
    """Permanently failed jobs."""
    slots: int | None
    oldest_wait: float
    usual_wait: float | None
    """Seconds that nine of ten samples of the last day do not exceed."""
    rates: Rates
    forecast: Forecast | None
    workers: list[WorkerLine]
    """Some of them: those that do not answer, then the busiest."""
    workers_alive: int | None
    """All Python pools that are alive; None if that is not known."""
    errors: list[ErrorLine]
    tasks: list[TaskRow]
    """The busiest."""
    task_count: int
    longest: list[RunningLine]
    """What has been running longest."""
    schedules: list[ScheduleLine]
    """What runs next."""
    pauses: list[Pause]
    missing: list[str]
    """What is not recorded in this database, in words."""
    cost: Cost
    """What the dashboard itself costs."""
    down_since: datetime | None = None
    """Since when the database has not answered; values are older then."""


ERROR_GROUPS = 5
TASKS = 10
WORKERS_SHOWN = 8
LONGEST = 6
RECENT = 5
"""Minutes that give the rates."""
SCHEDULES_FOR = 30.0
"""Seconds for which recurring jobs are not read again."""
USUAL_FOR = 300.0
"""Seconds for which the usual wait is not worked out again."""
HOURS_FOR = 60.0
"""Seconds for which a range in hours or days is not read again: it reads many rows, of which one changes."""
DAY = timedelta(days=1)
MOST_GROUPS = 20
NEXT_SCHEDULES = 5


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The overview, and values over time for its charts."""

    overview: Overview
    hour: Timeline
    failed: list[float]
    """Failed attempts in each minute of the hour, and since its last whole one."""
    timeline: Timeline
    markers: list[Marker]


async def read_overview(hub: Hub, range: RangeName = "1h") -> OverviewPage:
    """The overview now; those who ask at once share it."""
    return await hub.shared(
        f"overview {range}", lambda: _read(hub, range), max_age=hub.pause * 0.9, topic="overview"
    )


async def _read(hub: Hub, range: RangeName) -> OverviewPage:
    sample = await hub.current()
    now, wanted = datetime.now(UTC), RANGES[range]
    schema, tables = hub.database.schema, hub.sampler.tables
    async with hub.database.read() as connection:
        usual = await hub.shared("usual wait", lambda: _usual_wait(connection, hub), max_age=USUAL_FOR)
        tasks = await read_tasks(connection, hub, now)
        timeline = tasks.hour
        if range != "1h":
            timeline = await hub.shared(
                f"timeline {range}",
                lambda: read_timeline(
                    connection, schema, wanted, now, tables=tables, samples=hub.sampler.samples
                ),
                max_age=0.0 if wanted.is_fine else HOURS_FOR,
            )
        groups: list[ErrorGroup] = []
        if tables >= ERRORS:
            groups = await list_error_groups(connection, schema, since=now - DAY, limit=MOST_GROUPS)
        counts = await count_errors(hub, connection) if groups else None
        current = await _until_now(connection, hub, tasks.hour)
        last_work = await _last_work(connection, hub)
        markers = await read_markers(connection, schema, timeline.start, tables=tables, pauses=tasks.pauses)
        deploys = await read_deploys(connection, schema, tasks.hour.start - DAY, tables=tables)
    schedules = await hub.shared(
        "next schedules", lambda: list_turns(hub.database), max_age=SCHEDULES_FOR, topic="schedules"
    )
    rates = _rates(sample, tasks.hour, current)
    late = [(turn.schedule.identifier, turn.late) for turn in schedules if turn.late]
    last = (turn.schedule.last_execution for turn in schedules)
    facts = OverviewFacts(
        sample, current, rates, usual_wait=usual, forecast=_forecast(sample, rates, tasks), groups=groups,
        pauses=tasks.pauses, tasks=tasks.rows, running=tasks.running.lines, deploys=deploys,
        last_work=last_work, late=sorted(late, key=lambda pair: pair[1]), schedules=len(schedules),
        last_scheduled=max(filter(None, last), default=None),
    )  # fmt: skip
    errors = [_error(group, counts.of(group), hub.redactor, now) for group in groups[:ERROR_GROUPS] if counts]
    found = _overview(hub, facts, tasks, errors, _upcoming(schedules))
    return OverviewPage(found, tasks.hour, current.failed, timeline, markers)


def _overview(
    hub: Hub, facts: OverviewFacts, tasks: TaskFacts, errors: list[ErrorLine], schedules: list[ScheduleLine]
) -> Overview:
    sample, findings = facts.sample, find(facts)
    return shared_with(
        sample, Overview,
        level=findings[0].level,
        findings=findings,
        usual_wait=facts.usual_wait,
        rates=facts.rates,
        forecast=facts.forecast,
        workers=_workers(tasks.workers, tasks.running.lines),
        workers_alive=sample.workers,
        errors=errors,
        tasks=tasks.rows[:TASKS],
        task_count=len(tasks.rows),
        longest=tasks.running.lines[:LONGEST],
        schedules=schedules,
        pauses=tasks.pauses,
        missing=missing_parts(hub.sampler.tables),
        cost=hub.database.meter.cost,
        down_since=None if hub.down_since is None else datetime.fromtimestamp(hub.down_since, UTC),
    )  # fmt: skip


def missing_parts(tables: frozenset[str]) -> list[str]:
    """What this database does not record, because only other runtimes use it or this role may not read it."""
    parts = [
        (frozenset({WORKERS}), "which Python workers are alive, and what they run"),
        (STATISTICS, "statistics: rates by task, run times and the backlog over time"),
        (ERRORS, "errors of attempts, and their groups"),
        (PAUSES, "pauses of tasks"),
    ]
    return [words for needed, words in parts if not tables >= needed]


def _rates(sample: Sample, hour: Timeline, current: Timeline) -> Rates:
    """Completed jobs of all runtimes from the samples, failed attempts from the statistics, if any."""
    backlog = hour.backlog
    added = deleted = before = None
    if backlog is not None:
        added, deleted = _mean(backlog.added[-RECENT:]), _mean(backlog.deleted[-RECENT:])
        before = _mean(backlog.deleted[:10])
    has_statistics = hour.is_recorded and bool(hour.tasks)
    failed = hour.failed
    return Rates(
        added=sample.added_per_minute if added is None else added,
        completed=_first(deleted, sample.deleted_per_minute, _mean(hour.completed[-RECENT:])),
        failed=_failing(hour, current) if current.tasks else sample.failed_per_minute,
        completed_before=before,
        failed_before=_mean(failed[:10]) if has_statistics else None,
    )


def _failing(hour: Timeline, current: Timeline) -> float:
    """Failed attempts per minute. What has just begun to fail counts at once, before its minute is over."""
    since = current.failed[-RECENT - 1 :]
    minutes = RECENT + max((hour.now - hour.end).total_seconds(), 0.0) / 60
    return max(sum(hour.failed[-RECENT:]) / RECENT, sum(since) / minutes)


def _forecast(sample: Sample, rates: Rates, tasks: TaskFacts) -> Forecast | None:
    attempts = sum(each.attempts for each in tasks.statistics or ())
    seconds = sum(each.run_seconds for each in tasks.statistics or ())
    return forecast(
        ready=sample.ready.value,
        added=rates.added,
        completed=rates.completed,
        run_time=seconds / attempts if attempts else None,
        busy=float(sample.running.value),
        slots=sample.slots,
    )


async def _usual_wait(connection: Connection, hub: Hub) -> float | None:
    if not hub.sampler.tables >= STATISTICS:
        return None
    found: float | None = await connection.fetchval(load("admin/usual_wait", hub.database.schema))
    return found


async def _until_now(connection: Connection, hub: Hub, hour: Timeline) -> Timeline:
    """The hour with one more step: what has been counted since its last whole minute."""
    if not hub.sampler.tables >= STATISTICS:
        return hour
    rows = await connection.fetch(load("admin/attempts_since", hub.database.schema), hour.end)
    now = {row["task"]: row for row in rows}
    empty = [0.0] * hour.range.count
    tasks = {
        name: TaskSeries(
            [*(known.completed if known else empty), now[name]["completed"] if name in now else 0.0],
            [*(known.failed if known else empty), now[name]["failed"] if name in now else 0.0],
            [*(known.busy if known else empty), 0.0],
        )
        for name in dict.fromkeys([*hour.tasks, *now])
        for known in (hour.tasks.get(name),)
    }
    return replace(hour, tasks=tasks)


async def _last_work(connection: Connection, hub: Hub) -> datetime | None:
    if not hub.sampler.tables >= STATISTICS:
        return None
    found: datetime | None = await connection.fetchval(load("inspect/last_work", hub.database.schema))
    return found


def _error(group: ErrorGroup, jobs: GroupCount, redactor: Redactor, now: datetime) -> ErrorLine:
    return shared_with(
        group, ErrorLine,
        task=group.task_identifier, title=error_title(group, redactor), failed=jobs.failed,
        retrying=jobs.retrying, is_new=group.first_at >= now - DAY, version=group.first_version,
    )  # fmt: skip


def _workers(workers: Sequence[WorkerSummary], running: Sequence[RunningLine]) -> list[WorkerLine]:
    """Those that do not answer first, then the busiest."""
    long = [line.worker for line in running if line.is_long]
    lines = [
        WorkerLine(
            id=worker.id,
            name=f"{worker.host} · {worker.pid}" if worker.host else worker.id,
            version=getattr(worker, "app_version", None) or worker.version,
            slots=worker.concurrency,
            busy=len(worker.running or ()) if worker.running is not None else worker.jobs_held or 0,
            long=long.count(worker.id),
            is_alive=worker.is_alive,
        )
        for worker in workers
    ]
    lines.sort(key=lambda line: (line.is_alive is not False, -line.busy, line.name))
    return lines[:WORKERS_SHOWN]


def _upcoming(turns: Sequence[ScheduleTurn]) -> list[ScheduleLine]:
    """Those that run next."""
    return [
        ScheduleLine(
            identifier=turn.schedule.identifier,
            task=turn.schedule.current.task_identifier if turn.schedule.current else "",
            next_at=turn.next_at,
        )
        for turn in turns
        if turn.next_at is not None
    ][:NEXT_SCHEDULES]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
