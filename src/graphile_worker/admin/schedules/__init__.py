"""Recurring jobs: when they run, what became of the last run, which workers have them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from ..answers import Listing, Period


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

    id: str
    name: str
    app_version: str | None
    task: str
    pattern: str | None
    zone: str | None
    payload: Any
    options: dict[str, Any]
    source: str | None
    differs: bool
    """From the definition of the worker that started last."""


class SchedulePause(msgspec.Struct, frozen=True, kw_only=True):
    """Until when a recurring job is paused, and why."""

    paused_at: datetime | None
    until: datetime | None
    reason: str | None


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job."""

    identifier: str
    task: str | None
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
    pause: SchedulePause | None = None
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


class SchedulePauseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pause."""

    identifier: str
    until: datetime | None = None
    """None for no end."""
    reason: str = ""


class ScheduleForm(msgspec.Struct, frozen=True, kw_only=True):
    """From a page; `until` is a local time, or `period` a number of seconds."""

    identifier: str
    until: datetime | None = None
    period: Period | None = None
    reason: str = ""
    confirmed: str = ""


class ScheduleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    identifier: str
    done: str
    """In words."""
    job_id: int | None = None
    """Of a run now."""
