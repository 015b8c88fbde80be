"""Recurring jobs: when they run, what became of the last run, which workers have them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from ...values.job import Pause
from ..answers import Listing, PauseRequest


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
