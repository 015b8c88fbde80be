"""Asking a worker where one of its jobs is now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import Literal

import msgspec

from ..database.connections.connection import Connection
from ..database.statements.control import StackAnswer, ask_worker, read_answer, withdraw
from ..database.statements.inspection import get_job
from ..errors import StackUnavailableError, WorkerNotFoundError
from ..recovery.registry.workers import list_workers
from ..values.schema_name import SchemaName

DEFAULT_TIMEOUT = 6.0  # seconds; a worker that only polls looks every five
FIRST_WAIT = 0.02  # seconds
LONGEST_WAIT = 0.25  # seconds

Connect = Callable[[], AbstractAsyncContextManager[Connection]]
"""Lends a connection on which each statement is a transaction of its own."""


class JobStack(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running job is: the calls it is in, the outermost first, as in a traceback."""

    job_id: int
    task_identifier: str | None
    worker_id: str
    kind: Literal["coroutine", "thread"]
    """A coroutine waits at the last line; a thread runs it."""
    stack: str
    taken_at: datetime
    running_for: float | None
    """Seconds since the job started."""
    place: str | None = None
    """Where an executor runs the job, such as `process 4711`; None for the worker itself."""


async def job_stack(connect: Connect, schema: SchemaName, job_id: int, timeout: float) -> JobStack:
    """Ask the worker that runs the job, and wait for its answer."""
    async with connect() as connection:
        worker_id = await _worker_of(connection, schema, job_id)
        try:
            request_id = await ask_worker(connection, schema, worker_id, "stack", job_id=job_id)
        except WorkerNotFoundError:
            raise StackUnavailableError(
                job_id, f"it is locked by {worker_id}, which is not a Python worker, or is dead"
            ) from None
    try:
        found = await _answer(connect, schema, request_id, timeout)
    finally:
        with suppress(Exception):
            async with connect() as connection:
                await withdraw(connection, schema, request_id)
    if found is None:
        async with connect() as connection:
            reason = await _why_silent(connection, schema, worker_id, timeout)
        raise StackUnavailableError(job_id, reason)
    answer, taken_at = found
    if answer.kind == "not running":
        raise StackUnavailableError(
            job_id, "its worker does not run it now: it is prefetched, or has just ended"
        )
    return JobStack(
        job_id=job_id,
        task_identifier=answer.task_identifier,
        worker_id=worker_id,
        kind=answer.kind,
        stack=answer.stack,
        taken_at=taken_at,
        running_for=answer.running_for,
        place=answer.place,
    )


async def _worker_of(connection: Connection, schema: SchemaName, job_id: int) -> str:
    job = await get_job(connection, schema, job_id)
    if job is None:
        raise StackUnavailableError(job_id, "there is no such job; it has ended, or never existed")
    if job.locked_by is None:
        raise StackUnavailableError(job_id, f"it is not running, it is {job.state}")
    return job.locked_by


async def _answer(
    connect: Connect, schema: SchemaName, request_id: int, timeout: float
) -> tuple[StackAnswer, datetime] | None:
    """Look for the answer, less and less often; None if there is none in time."""
    loop = asyncio.get_running_loop()
    give_up_at, wait = loop.time() + timeout, FIRST_WAIT
    while True:
        async with connect() as connection:
            found = await read_answer(connection, schema, request_id)
        if found is not None or loop.time() >= give_up_at:
            return found
        await asyncio.sleep(min(wait, max(0.0, give_up_at - loop.time())))
        wait = min(wait * 1.5, LONGEST_WAIT)


async def _why_silent(connection: Connection, schema: SchemaName, worker_id: str, timeout: float) -> str:
    workers = await list_workers(connection, schema)
    worker = next((each for each in workers if each.id == worker_id), None)
    if worker is None or worker.is_alive is False:
        return f"its worker {worker_id} is dead; its jobs will be recovered"
    if worker.blocked is not None:
        return f"its worker cannot answer: {worker.blocked.culprit} has blocked the event loop"
    return f"its worker {worker_id} did not answer within {timeout:g} s"
