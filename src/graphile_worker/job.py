"""Job: one row of the jobs table, read only, as tasks, hooks and callers see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was when the row was read.

    The payload is kept as the JSON text the database holds, so that it is decoded once and only to the
    type that is wanted; `payload` decodes it to plain Python values each time it is asked for.
    """

    id: int
    task_identifier: str
    raw_payload: str
    priority: int
    run_at: datetime
    attempts: int
    max_attempts: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    key: str | None
    locked_at: datetime | None
    locked_by: str | None
    revision: int
    raw_flags: str | None
    task_id: int
    job_queue_id: int | None

    @property
    def payload(self) -> Any:
        """The payload as plain JSON values."""
        return msgspec.json.decode(self.raw_payload)

    @property
    def flags(self) -> dict[str, bool] | None:
        """The flags as the database stores them: each flag a key whose value is true."""
        return None if self.raw_flags is None else msgspec.json.decode(self.raw_flags)

    @property
    def is_available(self) -> bool:
        """Whether a worker could lock the job once its time has come."""
        return self.locked_at is None and self.attempts < self.max_attempts

    def to_dict(self) -> dict[str, Any]:
        """Plain values for printing: payload and flags decoded, the rest as columns."""
        values: dict[str, Any] = {
            field: getattr(self, field) for field in self.__struct_fields__ if not field.startswith("raw_")
        }
        return values | {"payload": self.payload, "flags": self.flags}
