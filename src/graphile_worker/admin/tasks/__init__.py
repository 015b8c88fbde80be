"""Tasks: what waits, runs, completes and fails of each."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from ...values.job import Pause
from ..answers import Count, PauseRequest, Points, RangeName


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


class ExpectedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a payload."""

    name: str
    type: str
    """In words."""
    is_required: bool
    default: str | None = None
    """JSON."""
    note: str = ""


class ExpectedGroup(msgspec.Struct, frozen=True):
    """A type of the payload, with its members if it is an object."""

    type: str
    members: list[ExpectedMember] = []


class TaskNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What workers say about a task."""

    runbook: str | None = None
    """The address of a page that says what to do when its jobs fail."""
    owner: str | None = None
    payload_type: str | None = None
    """The annotation in the code."""
    payload: list[ExpectedGroup] = []
    """What the task expects: the payload itself, then the types it uses."""
    payload_schema: msgspec.Raw | None = None
    """JSON Schema."""


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
