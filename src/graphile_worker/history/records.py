"""Reading the history: finished jobs, errors of attempts, and how jobs stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from ..database.connections.connection import Connection
from ..database.connections.statement import with_planner_settings
from ..database.sql import load
from ..database.statements.inspection import sorts_within_groups
from ..errors import InvalidArgumentError
from ..values.schema_name import SchemaName

FinishedState = Literal["completed", "failed", "cancelled", "expired"]
"""How a job ended."""
FINISHED_STATES: tuple[FinishedState, ...] = get_args(FinishedState)
MAX_LIMIT = 10_000
MAX_ERRORS = 1_000


class FinishedJob(msgspec.Struct, frozen=True):
    """A job that has ended, as the history has it."""

    job_id: int
    task_identifier: str
    state: FinishedState
    queue_name: str | None
    key: str | None
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    """When the last attempt started."""
    finished_at: datetime
    duration: float | None
    """Seconds that the last attempt took."""
    pool_id: str | None
    raw_flags: str | None
    raw_payload: str | None
    """None unless the task or the job asked to keep it."""
    raw_result: str | None
    error: str | None

    @property
    def flags(self) -> dict[str, bool]:
        """The flags of the job by name."""
        return {} if self.raw_flags is None else msgspec.json.decode(self.raw_flags)

    @property
    def payload(self) -> Any:
        """The payload as plain JSON values; None if it was not kept."""
        return None if self.raw_payload is None else msgspec.json.decode(self.raw_payload)

    @property
    def result(self) -> Any:
        """What the task returned, as plain JSON values."""
        return None if self.raw_result is None else msgspec.json.decode(self.raw_result)


class AttemptError(msgspec.Struct, frozen=True):
    """A failed attempt."""

    job_id: int
    attempt: int
    task_identifier: str
    failed_at: datetime
    duration: float | None
    is_final: bool
    """Whether the job failed permanently with it."""
    error_type: str | None
    message: str
    traceback: str | None
    fingerprint: str
    """The same for errors of one type from one place."""
    pool_id: str | None
    version: str | None
    """The version of the application, if the worker knows it."""


class CurrentState(msgspec.Struct, frozen=True):
    """How a job stands: `pending`, `gone` without a trace, or how it was finished."""

    job_id: int
    state: Literal["pending", "gone"] | FinishedState
    error: str | None
    attempts: int | None
    """Of a job that has failed permanently: how many there were, as far as that is known."""
    max_attempts: int | None
    raw_result: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """Which finished jobs to list, the latest first. All conditions must hold; None means any."""

    state: FinishedState | None = None
    task_identifier: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: FinishedJob | None = None
    """The last one of the previous page."""
    limit: int = 50

    def __post_init__(self) -> None:
        if self.state not in (None, *FINISHED_STATES):
            raise InvalidArgumentError(
                "state", f"expected one of {', '.join(FINISHED_STATES)}; got {self.state!r}"
            )
        if (
            isinstance(self.limit, bool)
            or not isinstance(self.limit, int)
            or not 1 <= self.limit <= MAX_LIMIT
        ):
            raise InvalidArgumentError("limit", f"must be from 1 to {MAX_LIMIT}, got {self.limit!r}")
        for name in ("since", "until"):
            time = getattr(self, name)
            if time is not None and time.utcoffset() is None:
                raise InvalidArgumentError(name, f"{time!r} has no time zone")


async def history_of_job(connection: Connection, schema: SchemaName, job_id: int) -> list[FinishedJob]:
    """All that the history has of a job, the latest first."""
    return [
        FinishedJob(*row) for row in await connection.fetch(load("history/history_of_job", schema), job_id)
    ]


async def list_finished_jobs(
    connection: Connection, schema: SchemaName, wanted: HistoryFilter
) -> list[FinishedJob]:
    """One page of finished jobs."""
    after = wanted.after
    arguments: list[Any] = [
        wanted.since,
        wanted.until,
        None if after is None else after.finished_at,
        None if after is None else after.job_id,
        wanted.limit,
        wanted.state,
    ]
    name = "list_finished_jobs"
    if wanted.task_identifier is not None:
        name = "list_finished_jobs_of_task"
        arguments.append(wanted.task_identifier)
    if not sorts_within_groups(connection):
        name += "@before_13"
    if wanted.state not in (None, "completed"):
        name += "@uncompleted"
    statement = load(f"history/{name}", schema)
    async with with_planner_settings(connection, load("history/read_in_order", schema)):
        return [FinishedJob(*row) for row in await connection.fetch(statement, *arguments)]


async def errors_of_job(connection: Connection, schema: SchemaName, job_id: int) -> list[AttemptError]:
    """The errors of a job's attempts, the latest first."""
    rows = await connection.fetch(load("history/errors_of_job", schema), job_id, MAX_ERRORS)
    return [AttemptError(*row) for row in rows]


async def list_errors(
    connection: Connection,
    schema: SchemaName,
    *,
    fingerprint: str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int = 50,
) -> list[AttemptError]:
    """Errors of all jobs, or of one fingerprint, the latest first."""
    name = "list_errors" if fingerprint is None else "list_errors@of_group"
    more = () if fingerprint is None else (fingerprint,)
    async with with_planner_settings(connection, load("history/read_in_order", schema)):
        rows = await connection.fetch(load(f"history/{name}", schema), since, before, limit, *more)
    return [AttemptError(*row) for row in rows]


async def current_states(
    connection: Connection, schema: SchemaName, job_ids: Sequence[int], *, has_history: bool = True
) -> list[CurrentState]:
    """How these jobs stand."""
    name = "states_of_jobs" if has_history else "states_without_history"
    rows = await connection.fetch(load(f"history/{name}", schema), job_ids)
    return [CurrentState(*row) for row in rows]
