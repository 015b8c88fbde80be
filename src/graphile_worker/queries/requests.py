"""What operators ask of one worker pool: to stop, to fetch no more jobs, to say where a job is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Literal

import msgspec

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..errors import InvalidArgumentError, PermissionDeniedError, SchemaMissingError, WorkerNotFoundError
from ..job import instant
from ..schema_name import SchemaName
from ..spec import check_name
from ..sql import load
from .pauses import MAX_REASON_LENGTH

RequestKind = Literal["stop", "quiet", "stack"]
UNAVAILABLE = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)
MAX_DEPLOYS = 500
ONE_DEPLOY = 15 * 60.0  # seconds: workers of one version that start so close together are one deploy


class StackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool answers when it is asked where a job is."""

    kind: Literal["coroutine", "thread", "not running"]
    stack: str = ""
    running_for: float | None = None
    """Seconds since it started the job."""
    task_identifier: str | None = None
    place: str | None = None
    """Where an executor runs the job, such as `process 4711`; None for the worker itself."""


class StateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker pool was asked to stop, or to fetch no more jobs."""

    worker_id: str
    kind: Literal["stop", "quiet"]
    reason: str | None
    asked_at: datetime


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the application was started."""

    version: str
    started_at: datetime
    """When its first worker started."""
    last_started_at: datetime
    starts: int
    """How many of its workers have started."""


async def ask_worker(
    connection: Connection,
    schema: SchemaName,
    worker_id: str,
    kind: RequestKind,
    *,
    job_id: int | None = None,
    reason: str | None = None,
) -> int:
    """Ask a pool; returns the id of the request. WorkerNotFoundError if no such Python pool is registered."""
    check_name("worker_id", worker_id, 200)
    if reason is not None:
        if not isinstance(reason, str):
            raise InvalidArgumentError("reason", f"expected text, got {reason!r}")
        if reason:
            check_name("reason", reason, MAX_REASON_LENGTH)
    with _refusals():
        row = await connection.fetchrow(
            load("requests/ask_worker", schema), worker_id, kind, job_id, reason or None
        )
    if row is None:
        raise WorkerNotFoundError(worker_id)
    found: int = row["id"]
    return found


async def resume_worker(connection: Connection, schema: SchemaName, worker_id: str) -> bool:
    """Let a quiet pool fetch jobs again; returns whether it was quiet."""
    check_name("worker_id", worker_id, 200)
    with _refusals():
        was_quiet: bool = await connection.fetchval(load("requests/resume_worker", schema), worker_id)
    return was_quiet


async def list_requests(connection: Connection, schema: SchemaName) -> list[StateRequest]:
    """Pools that were asked to stop or to be quiet."""
    rows = await connection.fetch(load("requests/list_requests", schema))
    return [
        StateRequest(
            worker_id=row["pool_id"],
            kind=row["kind"],
            reason=row["reason"],
            asked_at=instant(row["asked_at"]),
        )
        for row in rows
    ]


async def answer_stack(
    connection: Connection, schema: SchemaName, request_id: int, answer: StackAnswer
) -> None:
    """Answer for a pool."""
    text = msgspec.json.encode(answer).decode()
    await connection.execute(load("requests/answer", schema), request_id, text)


async def read_answer(
    connection: Connection, schema: SchemaName, request_id: int
) -> tuple[StackAnswer, datetime] | None:
    """The answer and the server's time; None while there is none."""
    row = await connection.fetchrow(load("requests/read_answer", schema), request_id)
    if row is None or row["answer"] is None:
        return None
    return msgspec.json.decode(row["answer"], type=StackAnswer), instant(row["now"])


async def withdraw(connection: Connection, schema: SchemaName, request_id: int) -> None:
    """Delete a request."""
    await connection.execute(load("requests/withdraw", schema), request_id)


async def list_deploys(connection: Connection, schema: SchemaName, since: datetime) -> list[Deploy]:
    """Deploys since then, the latest first."""
    rows = await connection.fetch(load("requests/deploys", schema), since, MAX_DEPLOYS)
    found = [
        Deploy(
            version=row["version"],
            started_at=instant(row["started_at"]),
            last_started_at=instant(row["last_started_at"]),
            starts=row["starts"],
        )
        for row in rows
    ]
    return _merged(found)


def _merged(deploys: list[Deploy]) -> list[Deploy]:
    """Workers that started in the same moment have each written a row: those are one deploy."""
    merged: list[Deploy] = []
    for deploy in deploys:  # the latest first
        later = next((each for each in merged if each.version == deploy.version), None)
        if later is None or (later.started_at - deploy.last_started_at).total_seconds() > ONE_DEPLOY:
            merged.append(deploy)
            continue
        merged[merged.index(later)] = Deploy(
            version=deploy.version,
            started_at=deploy.started_at,
            last_started_at=later.last_started_at,
            starts=later.starts + deploy.starts,
        )
    return sorted(merged, key=lambda deploy: deploy.started_at, reverse=True)


@contextmanager
def _refusals() -> Iterator[None]:
    """Say what to do if the table is missing, or this role may not use it."""
    try:
        yield
    except Exception as error:
        state = sqlstate_of(error)
        if state not in UNAVAILABLE:
            raise
        if state == sqlstates.UNDEFINED_TABLE:
            raise SchemaMissingError(
                "the table for requests to workers is missing; to create it, run as the owner of the schema: "
                "graphile-worker migrate",
                sqlstate=state,
            ) from error
        raise PermissionDeniedError(
            f"this role may not ask workers for anything ({error}); connect as the owner of the schema",
            sqlstate=state,
        ) from error
