"""What operators ask of workers, how workers read and answer it, and the end of cancelled jobs.

`pauses` has what operators do. Of one worker pool they may ask to stop, to fetch no more jobs, to say where a
job is, and to run another number of jobs at once. `ping` notifies all workers, to test whether LISTEN works.

To end cancelled jobs is to delete them with what says that they are cancelled, and to keep them. There are
four who do that. A worker that ends a job because of it. A worker that learns from its write that a job it
has failed or returned cannot run again: it may have been cancelled in between. A sweep, for jobs of dead
workers. And any pool that sees what the others left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from ...errors import WorkerNotFoundError
from ...values.concurrency import check_asked_slots
from ...values.job import Job, Pause, instant
from ...values.retention import Retention, is_awaited
from ...values.schema_name import SchemaName
from ...values.spec import check_name
from ..connections.connection import Connection, Row
from ..connections.encoding import teach_arrays
from ..connections.errors import refusals
from ..connections.statement import jobs_from_rows
from ..sql import load
from .pauses import EVERY_TASK as EVERY_TASK
from .pauses import check_reason, is_of_track, pause_from

STOPPED = "an operator stopped it"

AnswerT = TypeVar("AnswerT")


class ControlState(msgspec.Struct, frozen=True):
    """What operators ask of one pool."""

    pauses: frozenset[Pause] = frozenset()
    """Tasks and queues that are paused."""
    paused_queues: frozenset[int] = frozenset()
    """The ids of the queues that are paused."""
    has_ended_pauses: bool = False
    """Whether a queue is locked although its pause is over; see `end_due_pauses`."""
    changes_in: float | None = None
    """Seconds until the first pause ends; None if none has an end."""
    has_wide_queues: bool = False
    """Whether there are queues that may run several jobs at once."""
    cancelled: Mapping[int, str | None] = msgspec.field(default_factory=dict[int, str | None])
    """Ids of jobs of this pool that were cancelled, and the reasons."""
    has_leftover_cancels: bool = False
    """Whether there are cancelled jobs that no worker will end by itself; see `leftover_cancels`."""
    stop: str | None = None
    """Why the pool is to shut down; None if it is not."""
    is_paused: bool = False
    """Whether the pool is to fetch no more jobs."""
    stacks: Mapping[int, int] = msgspec.field(default_factory=dict[int, int])
    """Ids of requests for the stack of a job, and the ids of the jobs."""
    concurrency: Mapping[int, tuple[str, int]] = msgspec.field(default_factory=dict[int, tuple[str, int]])
    """Ids of requests for another concurrency, in their order; the lane, and how many jobs at once."""

    @property
    def paused(self) -> frozenset[str]:
        """Identifiers of paused tasks; `EVERY_TASK` among them if all are, or if this pool is paused."""
        tasks = frozenset(
            pause.task_identifier or EVERY_TASK for pause in self.pauses if pause.queue_name is None
        )
        return tasks | {EVERY_TASK} if self.is_paused else tasks


async def read_control_state(
    connection: Connection, schema: SchemaName, pool_id: str, *, has_requests: bool = True
) -> ControlState:
    """What operators ask of this pool now; `has_requests`: whether it can read requests to single pools."""
    statement = "control/look" if has_requests else "control/look@unasked"
    rows = await connection.fetch(load(statement, schema), pool_id)
    if not rows:
        return NOTHING_ASKED
    queues = [row for row in rows if row["kind"] == "queue"]
    over = [row for row in queues if row["name"] is None or _is_over(row)]
    paused = [row for row in rows if row["kind"] in ("task", "queue") and row not in over]
    return ControlState(
        pauses=frozenset(pause_from(row) for row in paused if not is_of_track(row)),
        paused_queues=frozenset(row["id"] for row in queues),
        has_ended_pauses=bool(over) or any(row["kind"] == "ending" for row in rows),
        changes_in=min((row["seconds"] for row in paused if row["seconds"] is not None), default=None),
        has_wide_queues=any(row["kind"] == "wide" for row in rows),
        cancelled={row["id"]: row["reason"] for row in rows if row["kind"] == "cancel"},
        has_leftover_cancels=any(row["kind"] == "leftover" for row in rows),
        stop=next((row["reason"] or STOPPED for row in rows if row["kind"] == "stop"), None),
        is_paused=any(row["kind"] == "quiet" for row in rows),
        stacks={row["id"]: int(row["name"]) for row in rows if row["kind"] == "stack"},
        concurrency=dict(
            sorted((row["id"], (row["name"], row["number"])) for row in rows if row["kind"] == "concurrency")
        ),
    )


async def paused_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    tasks: Sequence[str],
    paused: Collection[str],
    now: datetime | None,
) -> list[tuple[Pause, int]]:
    """How many ready jobs of these tasks wait in each paused queue, and for each paused task."""
    rows = await connection.fetch(load("control/left_jobs", schema), list(tasks), list(paused), now)
    return [
        (Pause(task_identifier=row["task_identifier"], queue_name=row["queue_name"]), row["jobs"])
        for row in rows
    ]


def _is_over(row: Row) -> bool:
    return row["seconds"] is not None and bool(row["seconds"] <= 0)


NOTHING_ASKED = ControlState()

LEFTOVERS = 1_000  # jobs per statement


class CancelledJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to end, and what to keep of it."""

    job: Job
    retention: Retention | None = None
    payload: str | None = None
    """The payload to keep as JSON text, if it is redacted."""
    reason: str | None = None
    """The reason that its worker knows; that of the database counts."""
    seconds: float | None = None
    """How long the attempt took; None if the job did not start, or that is not known."""
    is_own: bool = False
    """Whether the job is as it was fetched: it still has its key and its number of attempts."""


def end_statement(
    pool_id: str | None, schema_name: str, jobs: Sequence[CancelledJob]
) -> tuple[str, tuple[Any, ...]]:
    """The path of the statement that ends these jobs, and its arguments. It returns ids and reasons."""
    arguments = (pool_id, [each.job.id for each in jobs], [each.reason for each in jobs], schema_name)
    if all(each.retention is None for each in jobs):
        return "control/end_cancelled", arguments
    return "control/end_and_keep_cancelled", (
        *arguments,
        [None if each.retention is None else each.retention.seconds for each in jobs],
        [each.retention is not None and each.retention.payload for each in jobs],
        [each.payload for each in jobs],
        [each.seconds for each in jobs],
        [each.job.attempts if each.is_own else None for each in jobs],
        [each.job.key if each.is_own else None for each in jobs],
        [each.job.locked_by if each.is_own else None for each in jobs],
        [each.job.id for each in jobs if is_awaited(each.job.raw_flags)],
    )


async def cancelled_among(
    connection: Connection, schema: SchemaName, job_ids: Collection[int]
) -> frozenset[int]:
    """Those of these jobs that were cancelled while a worker had them."""
    teach_arrays(connection)
    rows = await connection.fetch(load("control/cancelled_among", schema), list(job_ids))
    return frozenset(row["job_id"] for row in rows)


async def end_cancelled(
    connection: Connection, schema: SchemaName, jobs: Sequence[CancelledJob]
) -> dict[int, str | None]:
    """End those of the jobs that were cancelled and are not locked; return their ids and the reasons."""
    teach_arrays(connection)
    statement, arguments = end_statement(None, schema.name, jobs)
    rows = await connection.fetch(load(statement, schema), *arguments)
    return {row["id"]: row["reason"] for row in rows}


async def leftover_cancels(connection: Connection, schema: SchemaName) -> list[Job]:
    """Some of the jobs that were cancelled and ended otherwise; forgets cancels of jobs that are gone."""
    return jobs_from_rows(await connection.fetch(load("control/leftover_cancels", schema), LEFTOVERS))


REQUESTS = (
    "the table for requests to workers is missing, or is that of an earlier version; to create it",
    "ask workers for anything",
)
"""For `refusals`."""
RequestKind = Literal["stop", "quiet", "stack"]
MAX_LANE_LENGTH = 1_000
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


class ConcurrencyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool answers when it is asked to run another number of jobs at once."""

    before: int | None = None
    """The number of slots that the lane had; None if nothing was changed."""
    lanes: list[str] = []
    """The names of its lanes."""


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
    check_reason(reason)
    with refusals(*REQUESTS):
        row = await connection.fetchrow(
            load("requests/ask_worker", schema), worker_id, kind, job_id, reason or None
        )
    if row is None:
        raise WorkerNotFoundError(worker_id)
    found: int = row["id"]
    return found


async def resume_worker(connection: Connection, schema: SchemaName, worker_id: str) -> bool:
    """Let a paused pool fetch jobs again; returns whether it was paused."""
    check_name("worker_id", worker_id, 200)
    with refusals(*REQUESTS):
        was_paused: bool = await connection.fetchval(load("requests/resume_worker", schema), worker_id)
    return was_paused


async def list_requests(connection: Connection, schema: SchemaName) -> list[StateRequest]:
    """Pools that were asked to stop, or are paused."""
    rows = await connection.fetch(load("requests/list_requests", schema))
    return [
        StateRequest(worker_id=worker_id, kind=kind, reason=reason, asked_at=instant(asked_at))
        for worker_id, kind, reason, asked_at in rows
    ]


async def ask_for_concurrency(
    connection: Connection, schema: SchemaName, worker_id: str, lane: str, concurrency: int
) -> int:
    """Ask a pool to run so many jobs of a lane at once; returns the id of the request, as `ask_worker`."""
    check_name("worker_id", worker_id, 200)
    check_name("lane", lane, MAX_LANE_LENGTH)
    check_asked_slots("concurrency", concurrency)
    with refusals(*REQUESTS):
        found: int | None = await connection.fetchval(
            load("requests/ask_for_concurrency", schema), worker_id, lane, concurrency
        )
    if found is None:
        raise WorkerNotFoundError(worker_id)
    return found


async def answer_request(
    connection: Connection, schema: SchemaName, request_id: int, answer: StackAnswer | ConcurrencyAnswer
) -> None:
    """Answer for a pool."""
    text = msgspec.json.encode(answer).decode()
    await connection.execute(load("requests/answer", schema), request_id, text)


async def answer_with_slots(
    connection: Connection,
    schema: SchemaName,
    request_id: int,
    answer: ConcurrencyAnswer,
    *,
    pool_id: str,
    slots: Mapping[str, int],
) -> None:
    """Answer for a pool that now has these slots, by lane, and write them into its row."""
    await connection.execute(
        load("requests/answer_with_slots", schema),
        request_id,
        msgspec.json.encode(answer).decode(),
        pool_id,
        sum(slots.values()),
        msgspec.json.encode(slots).decode(),
    )


async def read_answer(
    connection: Connection, schema: SchemaName, request_id: int, answer: type[AnswerT]
) -> tuple[AnswerT, datetime] | None:
    """The answer and the server's time; None while there is none."""
    row = await connection.fetchrow(load("requests/read_answer", schema), request_id)
    if row is None or row["answer"] is None:
        return None
    return msgspec.json.decode(row["answer"], type=answer), instant(row["now"])


async def withdraw(connection: Connection, schema: SchemaName, request_id: int) -> None:
    """Delete a request."""
    await connection.execute(load("requests/withdraw", schema), request_id)


async def list_deploys(connection: Connection, schema: SchemaName, since: datetime) -> list[Deploy]:
    """Deploys since then, the latest first."""
    rows = await connection.fetch(load("requests/deploys", schema), since, MAX_DEPLOYS)
    return _merged(
        [
            Deploy(version=version, started_at=instant(first), last_started_at=instant(last), starts=starts)
            for version, first, last, starts in rows
        ]
    )


def _merged(deploys: list[Deploy]) -> list[Deploy]:
    """Workers that started in the same moment have each written a row: those are one deploy."""
    merged: list[Deploy] = []
    for deploy in deploys:  # the latest first
        later = next((each for each in merged if each.version == deploy.version), None)
        if later is None or (later.started_at - deploy.last_started_at).total_seconds() > ONE_DEPLOY:
            merged.append(deploy)
            continue
        merged[merged.index(later)] = msgspec.structs.replace(
            later, started_at=deploy.started_at, starts=later.starts + deploy.starts
        )
    return sorted(merged, key=lambda deploy: deploy.started_at, reverse=True)


async def ping(connection: Connection, channel: str) -> None:
    """Send an empty notification to a channel."""
    await connection.execute(load("session/ping"), channel)
