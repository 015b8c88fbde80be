"""Finds the jobs of a list: by the index that serves the filter, or by a walk of bounded time.

A walk reads the table in steps of 20,000 jobs, for about a second, and says how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.job_filter import (
    BEGINNING,
    FIRST_ID,
    JobFilter,
    JobState,
    RunPosition,
    ids_to_walk,
    index_variant,
)
from ...database.statements.limits import track_names
from ...database.statements.manage_jobs import attempts_made
from ...history.records import FinishedState
from ...values.job import optional_instant
from ...values.schema_name import SchemaName
from ...values.text import how_it_failed
from ..answers import as_raw
from ..security.redact import Redactor
from .filters import FinishedFilter

ListOrder = Literal["newest", "oldest", "run_order"]
"""By descending or ascending id, or as workers take them. The newest of finished jobs is the last to end."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list, in the queue or finished. Secrets in error and payload are redacted."""

    id: int
    task_identifier: str
    state: JobState | FinishedState
    queue_name: str | None
    priority: int
    run_at: datetime
    attempts: int
    max_attempts: int
    last_error: str | None
    """The first 4,000 characters."""
    created_at: datetime
    key: str | None
    flags: list[str]
    updated_at: datetime | None = None
    revision: int | None = None
    """None for a finished job, which is no longer in the queue."""
    locked_by: str | None = None
    locked_at: datetime | None = None
    failed_at: datetime | None = None
    """When it failed permanently."""
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""
    queue_locked_by: str | None = None
    """The pool that has locked the queue of the job; `py:hold` if the queue is paused."""
    payload: msgspec.Raw | None = None
    """None if it was not asked for, or is longer than 64 KB."""
    started_at: datetime | None = None
    """Of a finished job: the begin of its last attempt."""
    finished_at: datetime | None = None
    duration: float | None = None
    """Of a finished job: the seconds that its last attempt took."""
    pool_id: str | None = None
    """Of a finished job: the pool that ran it last."""

    @property
    def situation(self) -> str:
        """The state in more detail: a word for the chip."""
        if self.state == "scheduled" and self.attempts:
            return "retry"
        return "permanently_failed" if self.state == "failed" else self.state

    @property
    def at(self) -> datetime | None:
        """The time that a list shows: when it runs, has been running since, failed or ended."""
        if self.finished_at is not None:
            return self.finished_at
        if self.state == "failed":
            return self.failed_at
        return self.locked_at if self.state == "running" else self.run_at

    @property
    def tried(self) -> str:
        """How many attempts there were, of how many."""
        made = self.attempts_made if self.state == "failed" else self.attempts
        return f"{'?' if made is None else made}/{self.max_attempts}"

    @property
    def note(self) -> str:
        """What a list says about the state, if there is more to say."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts)
        if self.queue_locked_by == "py:hold":
            return "queue paused"
        return "queue busy" if self.state == "ready" and self.queue_locked_by is not None else ""


STEP = 20_000
"""Jobs that one statement reads at most."""
BUDGET = 1.0
"""Seconds that a search may take before it answers with what it has."""
OF_PRIORITY = 200
"""Jobs of each priority that are read for a page in run order, at least."""

Position = tuple[Any, ...]
"""The position after which a search continues: the id, the place in run order, or the end and the id."""


class FoundJobs(msgspec.Struct):
    """What a search has found."""

    key: tuple[str, ...]
    """The columns of a position."""
    rows: list[Row] = []
    read: int = 0
    """Jobs that were read, as far as that is known."""
    position: Position | None = None
    """Where to go on; None if the end was reached."""

    def page(self, limit: int) -> tuple[list[Row], Position | None]:
        """The rows of one page, and where the next one begins; None on the last."""
        rows = self.rows[:limit]
        if len(self.rows) > limit:
            return rows, tuple(rows[-1][name] for name in self.key)
        return rows, self.position


async def _walk(
    key: tuple[str, ...],
    position: Position,
    read: Callable[[int, Position, int], Awaitable[Sequence[Row]]],
    *,
    limit: int,
    step: int,
    is_end: Callable[[Position], bool] = lambda _: False,
    shows: Callable[[Row], bool] = lambda _: True,
) -> FoundJobs:
    """Read in steps until there are enough jobs, nothing is left, or the time is over.

    `read` gets how many jobs are wanted, where to begin, and how many to look at. Its first row says in the
    columns `last_...` where the next step begins: nulls at the end of the table.
    """
    found, deadline = FoundJobs(key), time.monotonic() + BUDGET
    while True:
        wanted = limit - len(found.rows)
        rows = await read(wanted, position, step)
        new = [row for row in rows if row["id"] is not None]
        found.rows += [row for row in new if shows(row)]
        position = tuple(rows[0][f"last_{name}"] for name in key)
        is_last = position[-1] is None
        found.read += len(new) if is_last or len(new) >= wanted else step
        if is_last or is_end(position):
            return found
        if len(found.rows) >= limit or time.monotonic() > deadline:
            found.position = position
            return found
        step = min(STEP, 4 * step)


def is_served(filter: JobFilter, order: ListOrder, *, has_failed_index: bool) -> bool:
    """Whether an index leads to the jobs, so that a page reads little more than it shows."""
    plain = replace(filter, state=None, id_from=None, id_to=None)
    if filter.job_key is not None:
        return True
    if order == "run_order" and has_failed_index:
        plain = replace(plain, queue_name=None)
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        return True
    if plain.has_conditions:
        return False
    if filter.state == "failed":
        return has_failed_index
    return filter.state != "retrying" and (filter.state is None or order == "run_order")


async def find_by_id(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    order: ListOrder,
    *,
    after: int | None,
    limit: int,
    has_failed_index: bool,
    payload: int = 0,
) -> FoundJobs:
    """Up to `limit` jobs by id, downwards or upwards."""
    is_down = order == "newest"
    start, end = ids_to_walk(filter, is_down=is_down)
    if after is not None:
        start = min(after, start) if is_down else max(after, start)
    name = "admin/find_by_id" if is_down else "admin/find_by_id@upwards"
    statement = load(name + index_variant(filter, has_failed_index=has_failed_index), schema)
    conditions = (*filter.values, filter.required_state)
    return await _walk(
        ("id",), (start,),
        lambda wanted, position, step: connection.fetch(
            statement, wanted, *conditions, *position, step, payload
        ),
        limit=limit, step=STEP,
        is_end=lambda position: position[0] <= end if is_down else position[0] >= end,
    )  # fmt: skip


async def find_in_run_order(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    *,
    after: RunPosition | None,
    limit: int,
    has_queue_index: bool,
    payload: int = 0,
) -> FoundJobs:
    """Up to `limit` waiting jobs, in the order in which workers take them."""
    state = filter.required_state
    more: tuple[object, ...] = ()
    is_read = replace(filter, state=None).has_conditions or filter.state == "retrying"
    name = f"admin/find_in_run_order@{state}" if state else "admin/find_in_run_order"
    if filter.queue_name is not None and has_queue_index:
        ids = await queue_ids(connection, schema, filter.queue_name)
        filter, more, name = replace(filter, queue_name=None), (ids,), "admin/find_in_run_order@queued"
        is_read = replace(filter, state=None).has_conditions
    statement, conditions = load(name, schema), (*filter.values, state)
    return await _walk(
        ("priority", "run_at", "id"), BEGINNING if after is None else after,
        lambda wanted, position, step: connection.fetch(
            statement, wanted, *conditions, *position, step, payload, *more
        ),
        limit=limit, step=STEP if is_read else max(limit, OF_PRIORITY),
    )  # fmt: skip


async def queue_ids(connection: Connection, schema: SchemaName, name: str) -> list[int]:
    """The rows of a queue: its own, and its tracks."""
    tracks = await if_readable(connection, lambda: track_names(connection, schema, name))
    rows = await connection.fetch(load("names/queue_ids", schema), [name, *(tracks or ())])
    return [row["id"] for row in rows]


async def find_finished(
    connection: Connection,
    schema: SchemaName,
    filter: FinishedFilter,
    *,
    after: tuple[datetime, int] | None,
    limit: int,
    payload: int = 0,
) -> FoundJobs:
    """Up to `limit` finished jobs, the last to end first."""
    variant = "@task" if filter.task_identifier is not None else ""
    variant += "@outcome" if filter.outcome not in (None, "completed") else ""
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        variant = "@ids"
    has_ids = filter.id_from is not None or filter.id_to is not None
    is_walk = filter.has_unserved or filter.outcome == "completed" or has_ids
    statement = load(f"admin/find_finished{variant}", schema)
    conditions = (
        filter.outcome, filter.id_from, filter.id_to, filter.task_identifier, filter.queue_name,
        filter.job_key, filter.key_prefix, filter.locked_by, filter.duration_from, filter.duration_to,
        filter.error, filter.text,
    )  # fmt: skip
    await connection.fetchrow(load("history/read_in_order", schema))
    return await _walk(
        ("finished_at", "id"), (None, FIRST_ID) if after is None else after,
        lambda wanted, position, step: connection.fetch(
            statement, wanted, filter.finished_since, filter.finished_until, step, *position, *conditions,
            payload,
        ),
        limit=limit, step=STEP if is_walk else limit, shows=lambda row: _shows(row, filter),
    )  # fmt: skip


def _shows(row: Row, filter: FinishedFilter) -> bool:
    """Whether a job that matches also matches without its secrets."""
    if filter.redactor is None or (filter.error is None and filter.text is None):
        return True
    error = filter.redactor.text(row["last_error"] or "").lower()
    if filter.error is not None and filter.error.lower() not in error:
        return False
    texts = (row["task_identifier"].lower(), (row["key"] or "").lower(), error)
    return filter.text is None or any(filter.text.lower() in text for text in texts)


async def find_these(
    connection: Connection, schema: SchemaName, ids: Sequence[int], *, payload: int = 0
) -> list[Row]:
    """Jobs by their ids, the newest first."""
    return list(await connection.fetch(load("admin/find_these", schema), list(ids), payload))


async def rows_from(
    connection: Connection, schema: SchemaName, rows: Sequence[Row], redactor: Redactor
) -> list[JobRow]:
    """Jobs of a list, redacted; permanently failed ones know how many attempts they had."""
    failed = [row["id"] for row in rows if row["state"] == "failed"]
    made = await attempts_made(connection, schema, failed)
    return [_row(row, redactor, made.get(row["id"])) for row in rows]


def _row(row: Row, redactor: Redactor, made: int | None) -> JobRow:
    times = ("run_at", "created_at", "updated_at", "locked_at", "failed_at")
    columns = ("revision", "locked_by", "queue_locked_by")
    return _job_row(
        row, redactor, row["task"], row["queue"],
        attempts_made=made,
        **{name: row[name] for name in columns},
        **{name: optional_instant(row[name]) for name in times},
    )  # fmt: skip


def finished_row(row: Row, redactor: Redactor) -> JobRow:
    """A finished job of a list, redacted."""
    columns = ("run_at", "created_at", "started_at", "finished_at", "duration", "pool_id")
    failed = {"failed_at": row["finished_at"], "attempts_made": row["attempts"]}
    return _job_row(
        row, redactor, row["task_identifier"], row["queue_name"],
        **{name: row[name] for name in columns},
        **(failed if row["state"] == "failed" else {}),
    )  # fmt: skip


def _job_row(row: Row, redactor: Redactor, task: str, queue: str | None, **more: Any) -> JobRow:
    """What jobs in the queue and finished ones have in common, and `more`."""
    flags, payload = row["flags"], row["payload"]
    return JobRow(
        id=row["id"],
        task_identifier=task,
        state=row["state"],
        queue_name=queue,
        priority=row["priority"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        last_error=redactor.optional_text(row["last_error"]),
        key=row["key"],
        flags=[] if flags is None else sorted(msgspec.json.decode(flags)),
        payload=None if payload is None else as_raw(redactor.payload(payload, task)),
        **more,
    )
