"""Job: one row of the jobs table, read-only, for tasks, hooks and callers.

A `Pause` is what an operator has paused, for how long and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..errors import PayloadError
from .payload import half_surrogate_in

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_WAIT = 1e9  # seconds; more comes from a run_at of infinity

current_helpers: ContextVar[Any] = ContextVar("graphile_worker_current_helpers")
"""The JobHelpers of the job that runs in this context; here, because lower layers need the job for logs."""


TAG_FLAG = "py:tag="
"""How the flags begin that say which tags a job has."""


def tags_in(flags: Iterable[str]) -> list[str]:
    """The tags that the flags of a job say."""
    return sorted(flag.removeprefix(TAG_FLAG) for flag in flags if flag.startswith(TAG_FLAG))


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as it was when its row was read.

    To build one in a test, use `graphile_worker.testing.make_job`.

    The `raw_…` fields hold what the database sent: payload and flags as JSON text, times as seconds since
    1970. Properties decode them on access, because most tasks read only the payload and jobs pass through by
    the ten thousand. For the same reason a fetched job has no `raw_created_at` if it equals `raw_run_at`, and
    no `raw_updated_at` if it equals `raw_created_at`. The fields are in the order of the columns in the
    statements that return jobs, the task identifier last.
    """

    id: int
    raw_payload: str
    priority: int
    raw_run_at: float
    attempts: int
    max_attempts: int
    last_error: str | None
    raw_created_at: float | None
    raw_updated_at: float | None
    key: str | None
    raw_locked_at: float | None
    revision: int
    raw_flags: str | None
    task_id: int
    job_queue_id: int | None
    locked_by: str | None
    task_identifier: str

    @property
    def payload(self) -> Any:
        """The payload as plain JSON values, decoded on each access. Raises PayloadError."""
        try:
            return msgspec.json.decode(self.raw_payload)
        except msgspec.DecodeError as error:
            problem = half_surrogate_in(self.raw_payload) or error
            raise PayloadError(f"the payload of job {self.id} cannot be read: {problem}") from error

    @property
    def flags(self) -> dict[str, bool] | None:
        """The flags as the database stores them: each flag a key whose value is true."""
        return None if self.raw_flags is None else msgspec.json.decode(self.raw_flags)

    @property
    def tags(self) -> list[str]:
        """The tags, sorted."""
        return tags_in(self.flags or ())

    @property
    def run_at(self) -> datetime:
        """The earliest time at which the job may run."""
        return instant(self.raw_run_at)

    @property
    def created_at(self) -> datetime:
        """When the job was added."""
        return self.run_at if self.raw_created_at is None else instant(self.raw_created_at)

    @property
    def updated_at(self) -> datetime:
        """When the job was last replaced or changed by hand; workers do not touch it."""
        return self.created_at if self.raw_updated_at is None else instant(self.raw_updated_at)

    @property
    def locked_at(self) -> datetime | None:
        """When a worker locked the job."""
        return None if self.raw_locked_at is None else instant(self.raw_locked_at)

    @property
    def is_available(self) -> bool:
        """Whether a worker may lock the job once its `run_at` has passed."""
        return self.raw_locked_at is None and self.attempts < self.max_attempts

    @property
    def is_existing(self) -> bool:
        """Whether an add found this job instead of adding one, because the job is unique."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Plain values by column name, for printing. An unreadable payload stays text."""
        values = {name: getattr(self, name) for name in _COLUMNS if name != "payload"}
        try:
            payload = self.payload
        except PayloadError:
            payload = self.raw_payload
        return {"id": values.pop("id"), "payload": payload} | values

    def __repr__(self) -> str:
        """Every value that is not None: times readable, the payload as JSON text of bounded length."""
        shown = []
        for field in self.__struct_fields__:
            if field.startswith("_"):  # of a handle
                continue
            name = field.removeprefix("raw_")
            value = _shortened(self.raw_payload) if name == "payload" else getattr(self, name)
            if value is not None:
                text = str(value) if name == "payload" or isinstance(value, datetime) else repr(value)
                shown.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"


class ExistingJob(Job, frozen=True, gc=False):
    """A job that an add found instead of adding one."""

    @property
    def is_existing(self) -> bool:
        return True


_COLUMNS = (
    "id", "payload", "priority", "run_at", "attempts", "max_attempts", "last_error", "created_at",
    "updated_at", "key", "locked_at", "locked_by", "revision", "flags", "task_id", "job_queue_id",
    "task_identifier",
)  # fmt: skip


def instant(seconds: float) -> datetime:
    """Seconds since 1970 as a datetime. PostgreSQL's range is wider, so values are clamped to Python's."""
    try:
        return _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except OverflowError:
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC)


def optional_instant(seconds: float | None) -> datetime | None:
    """The same for what may be null."""
    return None if seconds is None else instant(seconds)


def wait_of(job: Job) -> float:
    """Seconds from the time when the job could run until a pool locked it, by the clock that locked it."""
    locked_at, since, created_at = job.raw_locked_at, job.raw_run_at, job.raw_created_at
    if locked_at is None:
        return 0.0
    if created_at is not None and created_at > since:
        since = created_at
    wait = locked_at - since
    return wait if 0.0 < wait < LONGEST_WAIT else 0.0


def waits_of(jobs: Iterable[Job]) -> list[float]:
    """The same for many jobs, without a call for those that were only fetched, as nearly all are."""
    return [
        wait_of(job)
        if job.raw_locked_at is None or job.raw_created_at is not None
        else wait
        if 0.0 < (wait := job.raw_locked_at - job.raw_run_at) < LONGEST_WAIT
        else 0.0
        for job in jobs
    ]


def _shortened(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


PAUSED_BY = "py:hold"
"""`locked_by` of a paused queue, which every runtime takes for a lock."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A paused task, named queue or recurring job; with none of them, every task is paused."""

    task_identifier: str | None = None
    queue_name: str | None = None
    schedule: str | None = None
    """The identifier of a recurring job."""
    paused_at: datetime | None = None
    """None if this role may not read the table of pauses."""
    until: datetime | None = None
    """None if it does not end by itself."""
    reason: str | None = None

    @property
    def what(self) -> str:
        """What is paused, for people: `queue emails`, `schedule nightly` or `every task`."""
        if self.schedule is not None:
            return f"schedule {self.schedule}"
        if self.queue_name is not None:
            return f"queue {self.queue_name}"
        return "every task" if self.task_identifier is None else f"task {self.task_identifier}"

    @property
    def name(self) -> str | None:
        """The name of the task, queue or recurring job; None for every task."""
        if self.schedule is not None:
            return self.schedule
        return self.queue_name if self.queue_name is not None else self.task_identifier

    @property
    def terms(self) -> str:
        """How long and why, for people: ` until 2030-01-31 12:00:00 UTC (deploy)`; may be empty."""
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return until + (f" ({self.reason})" if self.reason else "")
