"""Statements of held batches: transactions that lock the rows of jobs while these run.

A transaction begins with `begin_batch` and `get_held_jobs`, which write nothing, and ends with `end_batch`:
completed jobs are deleted, or moved to the history if they are kept, failures that are retried are written,
and all other jobs are locked as a fetch would have done. Jobs with a key are never held.

Jobs of named queues are in separate batches, as series. `take_queues` locks queues in the ordinary way, in a
separate transaction. In the transaction of the batch, `get_series` locks the rows of their next jobs,
`are_queues_taken` checks that the queues have been locked ever since, and `end_series` deletes the jobs that
have completed and unlocks the queues.

See docs/design/0030-held-batches.md, and 0038-queues-in-held-batches.md for series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.schema_name import SchemaName
from ...values.spec import DEFAULT_MAX_ATTEMPTS
from ..connections.connection import Connection, Row
from ..connections.encoding import fit_to_server, stores_every_text
from ..connections.errors import sqlstate_of
from ..connections.sqlstates import LOCK_NOT_AVAILABLE, QUERY_CANCELED
from ..connections.statement import bounded_transaction, taken_jobs
from ..sql import load
from .fetch import Ranges, flag_terms, load_routed, plain_jobs, task_ids
from .write_plan import Failure, KeptJobs, unless_empty

BACKLOG = 500  # jobs
LOOK = "20"  # milliseconds; the start of a worker waits for it
MANY = 100  # jobs; below that it does not matter how they are found
ID, PRIORITY, RUN_AT, LAST_ERROR, KEY = 0, 2, 3, 6, 9  # columns
KEYED_SHARE = 10  # a batch skips at most a tenth of its limit in jobs with a key; see the part `keyed`
WINDOW = 4  # a fetch by id reads this many ids for each job that it wants, at most; see get_tied_jobs
READ_MORE = 40  # jobs of series, beside two for each queue and those of queues that are known to be busy
NEAR = 2  # ids are close together if at least every second one is deleted


class RowsKeptError(Exception):
    """Rows of a held batch did not change: a trigger or a policy kept them, without an error."""


class Place(msgspec.Struct, frozen=True, order=True):
    """The position of a job in run order."""

    priority: int
    run_at: float
    """Seconds since 1970."""


class Settled(msgspec.Struct, frozen=True):
    """What has become of the jobs of a lost batch."""

    is_ours: Mapping[int, bool | None]
    """Whether each is; None if it is taken. Without those that are gone."""
    failed: frozenset[int]
    """Those whose failure the end of the batch has written."""


class CursorPosition(msgspec.Struct, frozen=True):
    """Jobs with the same priority and run_at, whose ids are close together: where to go on."""

    priority: int
    run_at: float
    """Seconds since 1970."""
    last_id: int

    def back_to(self, job_id: int) -> CursorPosition:
        """The same, or before this job if it has been passed."""
        return msgspec.structs.replace(self, last_id=job_id - 1) if job_id <= self.last_id else self


def ties_of(rows: Sequence[Row]) -> CursorPosition | None:
    """Where the next batch goes on by id if these rows, in run order, are all alike."""
    first, last = rows[0], rows[-1]
    if (first[PRIORITY], first[RUN_AT]) != (last[PRIORITY], last[RUN_AT]):
        return None
    tail = rows[-len(rows) // 8 :]  # other workers may have what lies between the others
    if not 0 <= last[ID] - tail[0][ID] < WINDOW * len(tail):
        return None
    return CursorPosition(last[PRIORITY], last[RUN_AT], last[ID])


def is_next(ties: CursorPosition, row: Row) -> bool:
    """Whether the ties go on with this row."""
    return (row[PRIORITY], row[RUN_AT]) == (ties.priority, ties.run_at) and row[ID] > ties.last_id


def is_before(rows: Sequence[Row], ties: CursorPosition) -> bool:
    """Whether these rows are ties too, all passed."""
    places = {(row[PRIORITY], row[RUN_AT]) for row in (rows[0], rows[-1])}
    return places == {(ties.priority, ties.run_at)} and rows[-1][ID] <= ties.last_id


def last_place(rows: Sequence[Row]) -> Place:
    """The position of the last of these rows."""
    return Place(rows[-1][PRIORITY], rows[-1][RUN_AT])


def first_keyed(rows: Sequence[Row]) -> Place | None:
    """The position of the first job with a key when these rows were fetched; None if we can run none."""
    if (place := rows[0][KEY]) is None:
        return None
    priority, run_at = place.split()
    return Place(int(priority), float(run_at))


def held_jobs(rows: Sequence[Row], pool_id: str, tasks: Mapping[int, str]) -> list[Job]:
    """The jobs in the rows of a batch."""
    if rows[0][KEY] is None:
        return taken_jobs(rows, pool_id, tasks)
    without_place = [(*row[:KEY], None, *row[KEY + 1 :]) for row in rows]
    return taken_jobs(without_place, pool_id, tasks)


async def begin_batch(connection: Connection, schema: SchemaName) -> None:
    """Begin the transaction of a batch."""
    await connection.execute(load("held/begin_batch", schema))


async def transaction_number(connection: Connection, schema: SchemaName) -> int:
    """The number of the transaction of a batch."""
    number: int = await connection.fetchval(load("held/transaction_number", schema))
    return number


async def commit_batch(connection: Connection) -> None:
    """Commit the transaction of a batch, which was begun by a statement rather than by the driver."""
    await connection.execute("commit")


async def roll_back_batch(connection: Connection) -> None:
    """Roll back the transaction of a batch."""
    await connection.execute("rollback")


async def get_keyed_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    up_to: Place,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
) -> Sequence[Job]:
    """Lock, in the ordinary way, the jobs with a key that a held batch of up to `limit` jobs has skipped."""
    rows = await connection.fetch(
        load_routed("held/get_keyed_jobs", schema, flags),
        *(pool_id, task_ids(tasks), limit // KEYED_SHARE + 1, flag_terms(flags), now),
        *msgspec.structs.astuple(up_to),
    )
    return plain_jobs(rows, pool_id, tasks)


async def get_tied_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    ties: CursorPosition,
    ranges: Ranges,
    tasks: Mapping[int, str],
    limit: int,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
    among_others: bool = False,
) -> Sequence[Row]:
    """Like `get_held_jobs`, but go on after the last one; none if a job in these ranges comes before.

    None either if a job with a key or of a named queue waits, unless `among_others`: then which of them may
    be next is looked at.
    """
    statement = "held/get_tied_jobs_among_others" if among_others else "held/get_tied_jobs"
    terms = limit, task_ids(tasks), now, flag_terms(flags), *msgspec.structs.astuple(ties), *ranges
    return await connection.fetch(load_routed(statement, schema, flags), *terms)


async def get_held_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    tasks: Mapping[int, str],
    limit: int,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
    ranges: Ranges | None = None,
) -> Sequence[Row]:
    """Lock the rows of the next jobs without a queue or key; none if a named queue may be next.

    With `ranges`, read jobs in these ranges only.
    """
    statement = "held/get_held_jobs" if ranges is None else "held/get_held_jobs_above_watermarks"
    terms = limit, task_ids(tasks), now, flag_terms(flags), *(ranges or ())
    return await connection.fetch(load_routed(statement, schema, flags), *terms)


async def end_batch(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    *,
    completed: Sequence[int],
    outlasting: Sequence[int],
    failed: Sequence[Failure] = (),
    kept: Sequence[KeptJobs] = (),
    released: int = 0,
    now: datetime | None = None,
) -> dict[int, datetime]:
    """Delete or keep completed jobs, write failures and lock what outlasts the batch. Raises RowsKeptError.

    `released`: how many other jobs the batch has. Workers that found their rows locked are woken for them.
    Returns when failed jobs run again, by id.
    """
    retries: dict[int, datetime] = {}
    if completed:
        deleted = await _delete(connection, schema, completed)
        if deleted != f"DELETE {len(completed)}":
            raise RowsKeptError
    for jobs in kept:
        await _keep(connection, schema, pool_id, jobs)
    if failed:
        rows = await connection.fetch(load("held/fail_jobs", schema), *_columns(connection, failed))
        if len(rows) != len(failed):
            raise RowsKeptError
        retries = {row[0]: row[1] for row in rows}
    if outlasting:
        locked = await connection.execute(load("held/lock_jobs", schema), pool_id, outlasting, now)
        if locked != f"UPDATE {len(outlasting)}":
            raise RowsKeptError
    if released:
        await connection.fetchval(load("add/announce_jobs", schema), released)
    return retries


def _columns(connection: Connection, failed: Sequence[Failure]) -> tuple[Sequence[Any], ...]:
    messages = [failure.message for failure in failed]
    if not stores_every_text(connection):
        messages = [fit_to_server(connection, message) for message in messages]
    own = [failure.max_attempts for failure in failed]
    delays = [failure.delay for failure in failed]
    return (
        [failure.job_id for failure in failed],
        messages,
        own if any(each != DEFAULT_MAX_ATTEMPTS for each in own) else (),
        delays if any(delay is not None for delay in delays) else (),
    )


async def _delete(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> str:
    if len(job_ids) >= MANY:
        first, last = min(job_ids), max(job_ids)
        if last - first < NEAR * len(job_ids):
            return await connection.execute(load("held/delete_adjacent_jobs", schema), job_ids, first, last)
    return await connection.execute(load("held/delete_jobs", schema), job_ids)


async def _keep(connection: Connection, schema: SchemaName, pool_id: str, jobs: KeptJobs) -> None:
    ((moved,),) = await connection.fetch(
        load("held/keep_jobs", schema),
        *(pool_id, jobs.job_ids, jobs.seconds, unless_empty(jobs.results), unless_empty(jobs.payloads)),
        *(jobs.retention.seconds, jobs.retention.payload, jobs.awaited, schema.name),
    )
    if moved != len(jobs.job_ids):
        raise RowsKeptError


async def warm_up(connection: Connection, schema: SchemaName, flags: FlagRules = NO_RULES) -> None:
    """Make the plans of the statements, so that the first batch need not wait for them."""
    start = CursorPosition(0, 0.0, 0)
    async with connection.transaction():
        await get_held_jobs(connection, schema, tasks={}, limit=0, flags=flags)
        await get_tied_jobs(
            connection, schema, ties=start, ranges=([], [], []), tasks={}, limit=0, flags=flags
        )
        await connection.execute(load("held/delete_adjacent_jobs", schema), [], 0, 0)


async def may_have_backlog(connection: Connection, schema: SchemaName) -> bool:
    """Whether many jobs are ready, or the answer takes long, as with many dead rows at the front."""
    try:
        async with bounded_transaction(connection, schema, LOOK, LOOK, readonly=True):
            return bool(await connection.fetchval(load("held/has_backlog", schema), BACKLOG))
    except Exception as error:
        if sqlstate_of(error) in (QUERY_CANCELED, LOCK_NOT_AVAILABLE):
            return True
        raise


async def settle_jobs(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    jobs: Sequence[Job],
    *,
    retries: Mapping[int, datetime],
    now: datetime | None = None,
) -> Settled:
    """Lock jobs of a lost batch, as far as they are still as it found them.

    `retries`: what `end_batch` returned, if its commit was sent.
    """
    rows = await connection.fetch(
        load("held/settle_jobs", schema),
        pool_id,
        [job.id for job in jobs],
        [job.attempts for job in jobs],
        now,
        [retries.get(job.id) for job in jobs],
    )
    return Settled({row[0]: row[1] for row in rows}, frozenset(row[0] for row in rows if row[2]))


# -- series ------------------------------------------------------------------------------------------------


class TakenQueues(msgspec.Struct, frozen=True):
    """Queues that `take_queues` has locked."""

    ids: list[int]
    """In the order of their first jobs."""
    priorities: list[int]
    """Those of their first jobs."""
    places: list[str]
    """Where their rows are, until these change."""
    at: datetime
    """When they were locked."""
    are_all: bool
    """Whether every other ready job is in a queue that is busy."""


async def take_queues(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    recovered: str,
    busy: int = 0,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
) -> TakenQueues | None:
    """Lock up to `limit` queues whose jobs are next; None if there are none.

    `recovered`: the last error of jobs that no series has. `busy`: how many ready jobs this pool has in
    queues that it has locked; the statement reads past them.
    """
    rows = await connection.fetch(
        load_routed("held/take_queues", schema, flags),
        *(pool_id, task_ids(tasks), limit, flag_terms(flags), now, 2 * limit + READ_MORE + busy, recovered),
    )
    if not rows:
        return None
    ids, priorities, places = ([row[column] for row in rows] for column in (0, 1, 3))
    return TakenQueues(ids, priorities, places, rows[0][2], rows[0][4])


async def get_series(
    connection: Connection,
    schema: SchemaName,
    taken: TakenQueues,
    *,
    tasks: Mapping[int, str],
    limit: int,
    longest: int,
    recovered: str,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
) -> Sequence[Row]:
    """Lock the rows of up to `limit` jobs of these queues, and `longest` of each; queue by queue."""
    terms = limit, task_ids(tasks), now, flag_terms(flags), taken.ids, taken.priorities, longest, recovered
    return await connection.fetch(load_routed("held/get_series", schema, flags), *terms)


async def are_queues_taken(
    connection: Connection, schema: SchemaName, *, pool_id: str, taken: TakenQueues
) -> bool:
    """Whether these queues are still locked as they were when they were taken."""
    statement = load("held/are_queues_taken", schema)
    return bool(await connection.fetchval(statement, pool_id, taken.at, taken.places))


async def end_series(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    *,
    completed: Sequence[int],
    queues: Sequence[int],
) -> None:
    """Delete completed jobs and unlock queues. Raises RowsKeptError."""
    statement = load("held/end_series", schema)
    if await connection.execute(statement, pool_id, completed, queues) != f"DELETE {len(completed)}":
        raise RowsKeptError


async def settle_series(
    connection: Connection, schema: SchemaName, pool_id: str, locked_at: datetime, jobs: Sequence[Job]
) -> dict[int, bool | None]:
    """Delete completed jobs of a lost batch whose queues were locked at this time and still are.

    Whether each was deleted; None if it is taken. Without those that are gone.
    """
    rows = await connection.fetch(
        load("held/settle_series", schema),
        *(pool_id, locked_at, [job.id for job in jobs], [job.attempts for job in jobs]),
    )
    return {row[0]: row[1] for row in rows}
