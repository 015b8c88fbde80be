"""Job: one row of the jobs table, read only, as tasks, hooks and callers see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from .errors import PayloadError
from .surrogates import half_surrogate_in

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as it was when the row was read.

    The `raw_…` fields hold what the database sent: the JSON text of payload and flags, and instants as
    seconds since 1970. They are turned into Python values only when asked for, because most tasks look at
    the payload alone and jobs pass through by the ten thousand. For the same reason a job that was fetched to
    be run has no `raw_created_at` if that is the same as `raw_run_at`, and no `raw_updated_at` if that is the
    same as `raw_created_at`. The order of the fields is that of the columns in the statements that return
    jobs, with the task's name last.
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
        """The payload as plain JSON values, decoded at each call; PayloadError if it cannot be."""
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
    def run_at(self) -> datetime:
        """When the job may run at the soonest."""
        return instant(self.raw_run_at)

    @property
    def created_at(self) -> datetime:
        """When the job was added."""
        return self.run_at if self.raw_created_at is None else instant(self.raw_created_at)

    @property
    def updated_at(self) -> datetime:
        """When the job was last added again or managed; workers do not touch it."""
        return self.created_at if self.raw_updated_at is None else instant(self.raw_updated_at)

    @property
    def locked_at(self) -> datetime | None:
        """Since when a worker holds the job."""
        return None if self.raw_locked_at is None else instant(self.raw_locked_at)

    @property
    def is_available(self) -> bool:
        """Whether a worker could lock the job once its time has come."""
        return self.raw_locked_at is None and self.attempts < self.max_attempts

    def to_dict(self) -> dict[str, Any]:
        """Plain values by column name, for printing; a payload that cannot be decoded as its text."""
        values = {name: getattr(self, name) for name in _COLUMNS if name != "payload"}
        try:
            payload = self.payload
        except PayloadError:
            payload = self.raw_payload
        return {"id": values.pop("id"), "payload": payload} | values


_COLUMNS = (
    "id", "payload", "priority", "run_at", "attempts", "max_attempts", "last_error", "created_at",
    "updated_at", "key", "locked_at", "locked_by", "revision", "flags", "task_id", "job_queue_id",
    "task_identifier",
)  # fmt: skip


def instant(seconds: float) -> datetime:
    """PostgreSQL's instants reach beyond Python's; those, and infinity, become the nearest there is."""
    try:
        return _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except OverflowError:
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC)
