"""Overview: the state of everything, worst first."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from ...values.job import Pause
from ..answers import Count
from ..database import Cost
from ..tasks import RunningLine, TaskRow

Level = Literal["ok", "idle", "warn", "bad"]
"""`idle`: nothing is wrong, and nothing runs yet."""


class OverviewFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, or that all is well."""

    level: Level
    title: str
    since: datetime | None = None
    """When it began; follows the title."""
    detail: str = ""
    link: str = ""
    """Text of a link to more."""
    path: str = ""
    query: dict[str, str] = {}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per minute, over the last minutes; None if unknown."""

    added: float | None = None
    completed: float | None = None
    failed: float | None = None
    """Attempts."""
    completed_before: float | None = None
    """An hour ago."""
    failed_before: float | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Where the backlog is going, if nothing changes."""

    growth: float
    """Ready jobs per minute; negative if the backlog shrinks."""
    empty_in: float | None = None
    """Seconds until nothing waits."""
    missing_slots: int | None = None
    """How many more slots would keep up; None if slots are free, or run times unknown."""
    text: str = ""


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
