"""Recurring jobs: what they are, when they run next, what became of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from ...cron.fields import FieldError, parse_pattern
from ...cron.matcher import PatternMatcher, find_zone
from ...cron.preview import clock_changes, describe_pattern
from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.schedules import MAX_SCHEDULES, RegisteredSchedule, Schedule, ScheduleRun
from ...errors import CrontabError
from ...values.job import Pause, optional_instant
from ..answers import Listing, PauseRequest, Problem, not_found, shared_with
from ..database import HISTORY, Database
from ..security.redact import Redactor, redacted_pauses


class ScheduledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a recurring job has added."""

    job_id: int
    due_at: datetime
    state: str
    """As of a job, or as the history says; `gone` if it was not kept."""
    finished_at: datetime | None = None
    duration: float | None = None
    """Seconds that the last attempt took."""
    error: str | None = None


class ScheduleWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that has the recurring job."""

    worker_id: str
    host: str | None
    pid: int | None
    app_version: str | None
    task_identifier: str
    pattern: str | None
    zone: str | None
    payload: Any
    options: dict[str, Any]
    source: str | None
    differs: bool
    """From the definition of the worker that started last."""

    @property
    def name(self) -> str:
        """Host and process, or the id."""
        return self.worker_id if self.host is None else f"{self.host} · {self.pid}"


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job: what `schedule_as_json` has, and what follows from it."""

    identifier: str
    task_identifier: str | None
    """None if no running Python worker has it."""
    pattern: str | None
    words: str
    """The pattern in words."""
    zone: str | None
    payload: Any = None
    options: dict[str, Any] = {}
    source: str | None = None
    known_since: datetime | None = None
    last_execution: datetime | None = None
    next_runs: list[datetime] = []
    runs: list[ScheduledRun] = []
    """The latest first."""
    pause: Pause | None = None
    late: datetime | None = None
    """The first run that was due and was not added; None if there is none."""
    workers: list[ScheduleWorker] = []
    differs: bool = False
    """Whether workers define it in different ways."""
    warnings: list[str] = []
    """Runs that a change of the clock moves."""

    @property
    def last(self) -> ScheduledRun | None:
        return self.runs[0] if self.runs else None

    @property
    def state(self) -> Literal["paused", "late", "no worker", "active"]:
        if self.pause is not None:
            return "paused"
        if not self.workers:
            return "no worker"
        return "late" if self.late is not None else "active"


class ScheduleListing(Listing[ScheduleView], frozen=True, kw_only=True):
    """One page of recurring jobs."""

    missing: str | None = None
    """What is not known here, and why."""


class ScheduleListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which page."""

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 25


class ScheduleQuery(msgspec.Struct, frozen=True):
    """Which recurring job."""

    identifier: str


class SchedulePauseRequest(PauseRequest, frozen=True, kw_only=True):
    """A pause."""

    identifier: str


class ScheduleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    identifier: str
    done: str
    """In words."""
    job_id: int | None = None
    """Of a run now."""


PAGE = 25
RUNS_IN_LIST = 50
"""Runs whose outcomes a list looks up, of all its schedules together: at least one of each."""
RUNS = 20
"""Runs of one schedule that are known."""
NEXT_RUNS = 3
LATE_AFTER = timedelta(seconds=90)
"""Workers add jobs at the beginning of a minute, a little late at most."""
HORIZON = timedelta(days=366 * 9)
"""How far ahead runs are looked for: 29 February may be eight years away."""
TABLE = "_private_py_schedules"
MISSING = (
    "Workers register their recurring jobs in tables that this schema lacks, or that this role may not read. "
    "What is known is when a job was last added."
)
FUNCTION = "when a function in the code says so"
UNKNOWN = "not known: no running Python worker has it"


@dataclass(frozen=True, slots=True)
class ScheduleTurn:
    """When a recurring job runs next, and the first run that is overdue."""

    schedule: Schedule
    next_at: datetime | None
    late: datetime | None


async def list_schedules(
    database: Database, redactor: Redactor, after: str | None = None, limit: int = PAGE
) -> ScheduleListing:
    """One page of recurring jobs, those that run next first; of the first `MAX_SCHEDULES` by identifier."""
    now = database.clock.now()
    async with database.read() as connection:
        found = await database.utils.schedules.list(limit=MAX_SCHEDULES, connection=connection)
        found.sort(key=lambda schedule: _turn(schedule, now))
        first = 1 + next((place for place, each in enumerate(found) if each.identifier == after), -1)
        page = found[first : first + limit]
        tables = await database.own_tables(connection)
        each = max(1, min(RUNS, RUNS_IN_LIST // max(1, len(page))))
        ids = [run.job_id for schedule in page for run in schedule.runs[:each]]
        outcomes = await _outcomes(database, connection, ids, has_history=tables >= HISTORY)
    return ScheduleListing(
        items=[_view(schedule, outcomes, now, redactor) for schedule in page],
        next=page[-1].identifier if first + limit < len(found) else None,
        missing=None if TABLE in tables else MISSING,
    )


def _turn(schedule: Schedule, now: datetime) -> tuple[bool, datetime, str]:
    """By the next run; those that are paused, or of which it is not known, come last."""
    runs = [] if schedule.pause is not None else _next_runs(_matcher(schedule.current), now, 1)
    return not runs, runs[0] if runs else now, schedule.identifier


async def list_turns(database: Database) -> list[ScheduleTurn]:
    """When each of the recurring jobs runs next, or should have run; those that run next come first."""
    now = database.clock.now()
    async with database.read() as connection:
        found = await database.utils.schedules.list(limit=MAX_SCHEDULES, connection=connection)
    found.sort(key=lambda schedule: _turn(schedule, now))
    return [
        ScheduleTurn(
            schedule,
            next(iter(_next_runs(matcher, now, 1)), None) if schedule.pause is None else None,
            _late(schedule, matcher, now),
        )
        for schedule in found
        for matcher in (_matcher(schedule.current),)
    ]


async def get_schedule(database: Database, redactor: Redactor, identifier: str) -> ScheduleView:
    """One recurring job, with its last runs."""
    async with database.read() as connection:
        found = await database.utils.schedules.list(identifier, connection=connection)
        if not found:
            raise unknown(identifier)
        tables = await database.own_tables(connection)
        ids = [run.job_id for run in found[0].runs]
        outcomes = await _outcomes(database, connection, ids, has_history=tables >= HISTORY)
    return _view(found[0], outcomes, database.clock.now(), redactor)


def unknown(identifier: str) -> Problem:
    return not_found(f"recurring job {identifier[:200]}")


# -- reading -----------------------------------------------------------------------------------------------


async def _outcomes(
    database: Database, connection: Connection, ids: Sequence[int], *, has_history: bool
) -> Mapping[int, Row]:
    """What became of these jobs, by id."""
    if not ids:
        return {}
    name = "admin/run_outcomes" if has_history else "admin/run_outcomes@unkept"
    rows = await connection.fetch(load(name, database.schema), list(ids))
    return {row["job_id"]: row for row in rows}


def _view(schedule: Schedule, outcomes: Mapping[int, Row], now: datetime, redactor: Redactor) -> ScheduleView:
    current = schedule.current
    matcher = _matcher(current)
    found: dict[str, Any] = {"task_identifier": None, "pattern": None, "zone": None}
    if current is not None:
        found = {
            "task_identifier": current.task_identifier, "pattern": current.pattern,
            "zone": current.zone or "UTC", "payload": _redacted(redactor, current),
            "options": current.options, "source": current.source,
        }  # fmt: skip
        if current.pattern is not None and matcher is not None:
            changes = clock_changes(current.pattern, matcher.zone, now.date())
            found["warnings"] = [change.text for change in changes]
    return shared_with(
        schedule, ScheduleView,
        words=_words(current),
        next_runs=_next_runs(matcher, now),
        runs=[_run(run, outcomes[run.job_id], redactor) for run in schedule.runs if run.job_id in outcomes],
        pause=next(iter(redacted_pauses([schedule.pause] if schedule.pause else [])), None),
        late=_late(schedule, matcher, now),
        workers=[
            shared_with(
                worker, ScheduleWorker, worker_id=worker.pool_id, payload=_redacted(redactor, worker),
                differs=current is not None and worker.definition != current.definition,
            )
            for worker in schedule.workers
        ],
        **found,
    )  # fmt: skip


def _redacted(redactor: Redactor, worker: RegisteredSchedule) -> Any:
    if worker.payload is None:
        return None
    raw = msgspec.json.encode(worker.payload).decode()
    return msgspec.json.decode(redactor.payload(raw, worker.task_identifier))


def _run(run: ScheduleRun, outcome: Row, redactor: Redactor) -> ScheduledRun:
    finished_at = outcome["finished_at"]
    return ScheduledRun(
        job_id=run.job_id,
        due_at=run.due_at,
        state=outcome["state"],
        finished_at=optional_instant(finished_at),
        duration=outcome["duration"],
        error=redactor.optional_text(outcome["error"]),
    )


def _words(current: RegisteredSchedule | None) -> str:
    if current is None:
        return UNKNOWN
    if current.pattern is None:
        return FUNCTION
    return describe_pattern(current.pattern)


def _matcher(current: RegisteredSchedule | None) -> PatternMatcher | None:
    """None if nothing is known, or if the database holds what our parser refuses."""
    if current is None or current.pattern is None:
        return None
    try:
        zone: ZoneInfo | None = None if current.zone is None else find_zone(current.zone)
        return PatternMatcher(parse_pattern(current.pattern), zone)
    except (FieldError, CrontabError):
        return None


def _next_runs(matcher: PatternMatcher | None, now: datetime, count: int = NEXT_RUNS) -> list[datetime]:
    if matcher is None:
        return []
    start = now.astimezone(UTC) + timedelta(seconds=1)
    return list(islice(matcher.minutes_between(start, start + HORIZON), count))


def _late(schedule: Schedule, matcher: PatternMatcher | None, now: datetime) -> datetime | None:
    """The first run since the last one that should have been added by now."""
    last = schedule.last_execution or schedule.known_since
    if matcher is None or last is None or schedule.pause is not None:
        return None
    due = next(matcher.minutes_between(last + timedelta(seconds=1), now), None)
    return due if due is not None and now - due > LATE_AFTER else None
