"""Following jobs that were added: status, result, progress, and where a running one is.

For the last, `job_stack` asks the worker that runs the job. `changed_concurrency` asks in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

import msgspec

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import is_schema_missing, sqlstate_of
from ..database.statements.control import (
    AnswerT,
    ConcurrencyAnswer,
    StackAnswer,
    ask_for_concurrency,
    ask_worker,
    read_answer,
    withdraw,
)
from ..database.statements.inspection import JobDetails, JobState, get_job
from ..database.statements.manage_jobs import attempts_made, cancel_reasons
from ..errors import (
    InvalidArgumentError,
    JobCancelledError,
    JobFailedError,
    JobGoneError,
    PayloadError,
    ResultError,
    StackUnavailableError,
    WorkerNotFoundError,
    WorkerRequestError,
)
from ..errors.text import message_of, without_places
from ..history.records import (
    AttemptError,
    CurrentState,
    FinishedJob,
    FinishedState,
    current_states,
    errors_of_job,
    history_of_job,
)
from ..history.task_reports import Progress, get_progress
from ..recovery.registry.workers import list_workers
from ..values.job import Job
from ..values.schema_name import SchemaName
from ..values.text import how_it_failed
from .job_waiter import JobWaiter

WATCH_INTERVAL = 1.0  # seconds; workers store progress as often
CANNOT_READ = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)
"""There is no history, or this role may not read it."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a job stands."""

    job_id: int
    state: JobState | FinishedState | Literal["gone"]
    """As in `JobDetails` while its row exists, then as in `FinishedJob`; `gone` if it was not kept."""
    attempts: int | None = None
    """How many there were; None if that is not known."""
    error: str | None = None
    """The message of its last error, without the place in the code; or why it was cancelled."""
    result: Any = None
    """What the task returned, as plain JSON values, if the job has completed and was kept."""
    progress: Progress | None = None
    run_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again by itself."""
        return self.state not in ("ready", "scheduled", "running")


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a job: its row while it is in the queue, and what the history has."""

    job_id: int
    job: JobDetails | None = None
    """None if it has left the queue, or never existed."""
    history: list[FinishedJob] = []
    """The latest first; empty if none was kept."""
    errors: list[AttemptError] = []
    """Of its attempts, the latest first."""
    progress: Progress | None = None
    is_cancelled: bool = False
    """Whether it was cancelled while it ran: its worker was asked to end it."""
    cancel_reason: str | None = None
    problem: str | None = None
    """Why the history could not be read."""

    @property
    def state(self) -> JobState | FinishedState | Literal["gone"]:
        """As in `JobStatus`."""
        if self.job is not None:
            return "cancelled" if self.is_cancelled and self.job.state == "failed" else self.job.state
        return self.history[0].state if self.history else "gone"

    @property
    def is_known(self) -> bool:
        """Whether there is anything about this job."""
        return self.job is not None or bool(self.history or self.errors)


def id_of(job: Any) -> int:
    """The id of a job or of its handle, or the id itself."""
    job_id: int = getattr(job, "id", job)
    return job_id


def seconds_of(timeout: float | timedelta | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def result_of(current: CurrentState, job: object = None) -> Any:
    """What the task returned; raises the error that belongs to any other state.

    The handle of a job that was added by its task knows the type of the result.
    """
    if current.state == "completed":
        if current.raw_result is None:
            return None
        decode = getattr(getattr(job, "_task", None), "decode_result", msgspec.json.decode)
        try:
            return decode(current.raw_result)
        except PayloadError as error:
            problem = str(error).removeprefix("payload ")
            raise ResultError(f"the result of job {current.job_id} {problem}") from error
    if current.state == "failed":
        how = how_it_failed(current.attempts, current.max_attempts)
        raise JobFailedError(current.job_id, current.error, current.attempts, how)
    if current.state == "gone":
        raise JobGoneError(current.job_id)
    raise JobCancelledError(current.job_id, current.error, has_expired=current.state == "expired")


async def read_current_states(
    connection: Connection, schema: SchemaName, job_ids: list[int]
) -> list[CurrentState]:
    """How these jobs stand, also where there is no history."""
    found = await _current_states(connection, schema, job_ids)
    failed = [current.job_id for current in found if current.state == "failed"]
    if not failed:
        return found
    # A job that was cancelled, and failed before its worker knew, is cancelled. Its row says failed until the
    # worker, or another one, deletes it. That may be between two statements, so look once more.
    reasons = await cancel_reasons(connection, schema, failed)
    doubtful = [job_id for job_id in failed if job_id not in reasons]
    again = {current.job_id: current for current in await _current_states(connection, schema, doubtful)}
    made = await attempts_made(connection, schema, doubtful)
    ended = [again.get(current.job_id, current) for current in found]
    counted = [
        msgspec.structs.replace(each, attempts=made[each.job_id]) if each.job_id in made else each
        for each in ended
    ]
    return [_as_cancelled(current, reasons) for current in counted]


async def _current_states(
    connection: Connection, schema: SchemaName, job_ids: list[int]
) -> list[CurrentState]:
    savepoint = connection.transaction() if connection.is_in_transaction() else nullcontext()
    try:
        async with savepoint:
            return await current_states(connection, schema, job_ids)
    except Exception as error:
        if not is_schema_missing(error):
            raise
        return await current_states(connection, schema, job_ids, has_history=False)


def _as_cancelled(current: CurrentState, reasons: Mapping[int, str | None]) -> CurrentState:
    if current.job_id not in reasons:
        return current
    return msgspec.structs.replace(current, state="cancelled", error=reasons[current.job_id])


async def read_record(
    connection: Connection, schema: SchemaName, job_id: int, *, with_errors: bool = True
) -> JobRecord:
    """All that is known of a job."""
    job = await get_job(connection, schema, job_id)
    reasons: Mapping[int, str | None] = {}
    if job is not None and (job.state == "failed" or (with_errors and job.state == "running")):
        reasons = await cancel_reasons(connection, schema, [job_id])
    row = JobRecord(job_id=job_id, job=job, is_cancelled=job_id in reasons, cancel_reason=reasons.get(job_id))
    if job is not None and job.state != "running" and not with_errors:
        return row
    progress = None
    try:
        async with connection.transaction():  # a savepoint, if the transaction is the caller's
            if job is not None and job.state == "running":
                progress = await get_progress(connection, schema, job_id)
            history = await history_of_job(connection, schema, job_id) if job is None or with_errors else []
            errors = await errors_of_job(connection, schema, job_id) if with_errors else []
    except Exception as error:
        if sqlstate_of(error) not in CANNOT_READ:
            raise
        return msgspec.structs.replace(row, problem=message_of(error))
    return msgspec.structs.replace(row, history=history, errors=errors, progress=progress)


async def read_status(connection: Connection, schema: SchemaName, job_id: int) -> JobStatus:
    """How a job stands now."""
    record = await read_record(connection, schema, job_id, with_errors=False)
    job = record.job
    if job is not None:
        return JobStatus(
            job_id=job_id, state=record.state,
            attempts=job.attempts_made if job.state == "failed" else job.attempts,
            error=record.cancel_reason if record.is_cancelled else without_places(job.last_error),
            progress=record.progress, run_at=job.run_at,
        )  # fmt: skip
    if not record.history:
        return JobStatus(job_id=job_id, state="gone")
    finished = record.history[0]
    return JobStatus(
        job_id=job_id, state=finished.state, attempts=finished.attempts,
        error=without_places(finished.error), result=finished.result,
        run_at=finished.run_at, finished_at=finished.finished_at,
    )  # fmt: skip


class Reader(Protocol):
    """The part of a client that reads a job's status."""

    async def get_status(self, job: Job | int) -> JobStatus: ...


async def watch_progress(client: Reader, job_waiter: JobWaiter, job_id: int) -> AsyncGenerator[Progress]:
    """The reports of a job, each once, until it has ended."""
    ended = asyncio.ensure_future(job_waiter.wait(job_id))
    last: Progress | None = None
    try:
        while not ended.done():
            status = await client.get_status(job_id)
            if status.progress is not None and status.progress != last:
                last = status.progress
                yield last
            await asyncio.wait((ended,), timeout=WATCH_INTERVAL)
        ended.result()  # raises if the client was released
    finally:
        ended.cancel()


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


class ConcurrencyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A lane of a worker runs another number of jobs at once, until the worker restarts."""

    worker_id: str
    lane: str
    before: int
    concurrency: int


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
        answer, taken_at = await answer_of(connect, schema, worker_id, request_id, StackAnswer, timeout)
    except WorkerRequestError as error:
        raise StackUnavailableError(job_id, f"its {error}") from None
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


async def changed_concurrency(
    connect: Connect, schema: SchemaName, worker_id: str, lane: str, concurrency: int, timeout: float
) -> ConcurrencyChange:
    """Ask a worker to run so many jobs of a lane at once, and wait until it does."""
    async with connect() as connection:
        request_id = await ask_for_concurrency(connection, schema, worker_id, lane, concurrency)
    answer, _ = await answer_of(connect, schema, worker_id, request_id, ConcurrencyAnswer, timeout)
    if answer.before is None:
        if lane in answer.lanes:
            raise WorkerRequestError(worker_id, "is stopping")
        lanes = ", ".join(map(repr, answer.lanes))
        raise InvalidArgumentError("lane", f"worker {worker_id} has no lane {lane!r}; it has {lanes}")
    return ConcurrencyChange(worker_id=worker_id, lane=lane, before=answer.before, concurrency=concurrency)


async def answer_of(
    connect: Connect,
    schema: SchemaName,
    worker_id: str,
    request_id: int,
    answer: type[AnswerT],
    timeout: float,
) -> tuple[AnswerT, datetime]:
    """What a worker answers, and when; withdraws the request. WorkerRequestError if it does not in time."""
    try:
        found = await _answer(connect, schema, request_id, answer, timeout)
    finally:
        with suppress(Exception):
            async with connect() as connection:
                await withdraw(connection, schema, request_id)
    if found is None:
        async with connect() as connection:
            reason = await _why_silent(connection, schema, worker_id, timeout)
        raise WorkerRequestError(worker_id, reason)
    return found


async def _answer(
    connect: Connect, schema: SchemaName, request_id: int, answer: type[AnswerT], timeout: float
) -> tuple[AnswerT, datetime] | None:
    """Look for the answer, less and less often; None if there is none in time."""
    loop = asyncio.get_running_loop()
    give_up_at, wait = loop.time() + timeout, FIRST_WAIT
    while True:
        async with connect() as connection:
            found = await read_answer(connection, schema, request_id, answer)
        if found is not None or loop.time() >= give_up_at:
            return found
        await asyncio.sleep(min(wait, max(0.0, give_up_at - loop.time())))
        wait = min(wait * 1.5, LONGEST_WAIT)


async def _why_silent(connection: Connection, schema: SchemaName, worker_id: str, timeout: float) -> str:
    workers = await list_workers(connection, schema)
    worker = next((each for each in workers if each.id == worker_id), None)
    if worker is None or worker.is_alive is False:
        return "is dead; its jobs will be recovered"
    if worker.blocked is not None:
        return f"cannot answer: {worker.blocked.culprit} has blocked the event loop"
    return f"did not answer within {timeout:g} s"
