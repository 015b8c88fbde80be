"""Named queues: lists that never read all of them, and one queue with what runs in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, floor
from typing import Annotated, Literal

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.limits import track_names
from ...errors import InvalidArgumentError
from ...values.job import PAUSED_BY, Pause, instant
from ...values.schema_name import SchemaName
from ...values.spec import home_name, is_track_name
from ..answers import Count, CountKind, Listing, PauseRequest, Points, RangeName, not_found, shared_with
from ..database import TRACKS, WORKERS, Database
from ..security.redact import redacted_pauses
from ..tasks.series import Range

QueueState = Literal["paused", "busy", "stuck", "waiting", "idle"]


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A named queue; a wide one with all its tracks.

    Its members are those of `queue_as_json`, but for `jobs`: all jobs of a long queue cannot be counted soon.
    """

    queue_name: str
    concurrency: int = 1
    """How many of its jobs may run at once."""
    locked_by: str | None = None
    """The worker that has it locked; of several, the one that locked it first."""
    locked_at: datetime | None = None
    waiting: int
    """Ready and scheduled jobs."""
    ready: int
    is_estimate: bool = False
    """Whether `waiting` and `ready` are not exact."""
    pause: Pause | None = None
    state: QueueState
    kind: CountKind = "exact"
    """Of `waiting` and `ready`: exact, an estimate, or how many were counted at least."""
    oldest: datetime | None = None
    """Since when the oldest ready job waits; of those counted."""
    holders: list[str] = []
    """All workers that have it locked; more than one only if it is wide."""

    @property
    def waiting_jobs(self) -> Count:
        return Count(self.waiting, self.kind)

    @property
    def ready_jobs(self) -> Count:
        return Count(self.ready, self.kind)


class QueueJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs in a queue."""

    id: int
    task_identifier: str
    locked_by: str
    locked_at: datetime


class QueueDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and what runs in it."""

    queue: QueueView
    running: list[QueueJob]
    """As far as its workers have told."""
    stuck: list[str]
    """Dead workers that have it locked."""


class QueueListing(Listing[QueueView], frozen=True, kw_only=True):
    """One page of queues."""

    what: Literal["busy", "search", "longest"]
    """Those with locks or waiting jobs; those whose names begin with a text; the longest, by a sample."""
    missing: str | None = None


QueueOrder = Literal["usual", "name", "waiting", "ready", "oldest", "locked", "concurrency"]


class QueueListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues."""

    q: str = ""
    """The beginning of their names."""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20
    order: QueueOrder = "usual"
    """Sorts the queues of one page; which queues it has does not depend on it."""


class QueueQuery(msgspec.Struct, frozen=True):
    """Which queue."""

    name: str


class QueuePageQuery(QueueQuery, frozen=True):
    """Which queue, and what the chart of its page shows."""

    range: RangeName = "1h"


@dataclass(frozen=True, slots=True)
class FinishedSeries:
    """Kept jobs of a queue that finished in each step, per minute; None where nothing is known."""

    start: datetime
    completed: Points
    failed: Points
    read_since: datetime | None
    """The jobs that finished before were too many to read; None if all were read."""

    @property
    def has_completed(self) -> bool:
        return any(self.completed)

    @property
    def is_empty(self) -> bool:
        return not self.has_completed and not any(self.failed)


class QueuePauseRequest(PauseRequest, frozen=True, kw_only=True):
    """A pause."""

    name: str


class QueueUnlockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Free a queue from a dead worker."""

    name: str
    typed: str = ""
    """If the worker may be alive: the name of the queue once more."""


class QueueConcurrencyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue may run at once."""

    name: str
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=999_999)] | None = None
    """None leaves it to its tasks."""


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    name: str
    done: str
    """In words."""


PAGE = 20
COUNTED_IN_LIST = 100
COUNTED = 5_000
READ_NAMES = 200
"""Names that one search reads: in some collations others lie between those that match."""
FEW_QUEUES = 30
"""Pages of the table of queues up to which it is searched for locks."""
MOST_LOCKED = 20
MOST_RUNNING = 60
MOST_FINISHED = 10_000
"""Finished jobs of all queues that are read for the chart of one: no index leads to those of a queue."""
MISSING = (
    "This schema lacks the indexes of a Python worker, so the longest queues are found in a sample "
    "of the jobs table."
)


async def list_queues(
    database: Database, begin: str = "", after: str = "", limit: int = PAGE
) -> QueueListing:
    """One page: queues with locks or waiting jobs, or those whose names begin with `begin`."""
    async with database.read() as connection:
        tables = await database.own_tables(connection)
        if begin:
            return await _search(database, connection, begin, after, limit)
        if WORKERS not in tables:
            return await _longest(database, connection)
        return await _busy(database, connection, after, limit)


async def get_queue(database: Database, name: str) -> QueueDetails:
    """One queue, with what runs in it."""
    async with database.read() as connection:
        tables = await database.own_tables(connection)
        names = await _with_tracks(database, connection, name, tables)
        rows = await connection.fetch(load("names/queue_ids", database.schema), names)
        if not any(row["queue_name"] == name for row in rows):
            raise not_found(f"queue {name[:200]}")
        ids = [row["id"] for row in rows]
        pauses = await _pauses(database, connection)
        (view,) = await _views(database, connection, ids, COUNTED, pauses)
        running, stuck = await _inside(database, connection, view, ids, tables)
    if stuck and view.state == "busy":
        view = msgspec.structs.replace(view, state="stuck")
    return QueueDetails(queue=view, running=running, stuck=stuck)


async def read_finished(
    connection: Connection, schema: SchemaName, name: str, wanted: Range, now: datetime
) -> FinishedSeries:
    """Kept jobs of a queue over time, among the latest of all queues."""
    start, seconds = wanted.start(now), wanted.step
    await connection.fetchrow(load("history/read_in_order", schema))
    rows = await connection.fetch(
        load("admin/finished_of_queue", schema),
        start, start + timedelta(seconds=wanted.seconds), float(seconds), name, MOST_FINISHED,
    )  # fmt: skip
    since, is_cut = rows[0]["since"], rows[0]["is_cut"]
    steps = wanted.count if since is None else (since - start).total_seconds() / seconds
    first = min(max(ceil(steps) if is_cut else floor(steps), 0), wanted.count)
    completed: Points = [None if step < first else 0.0 for step in range(wanted.count)]
    failed = [*completed]
    for row in rows:
        if row["step"] is not None and row["step"] >= first:
            completed[row["step"]] = row["completed"] * 60 / seconds
            failed[row["step"]] = row["failed"] * 60 / seconds
    return FinishedSeries(start, completed, failed, since if is_cut else None)


async def free(database: Database, connection: Connection, name: str, holders: Sequence[str]) -> int:
    """Unlock a queue and its tracks where these workers have them; returns how many there were."""
    names = await _with_tracks(database, connection, name, await database.own_tables(connection))
    rows = await connection.fetch(load("names/queue_ids", database.schema), names)
    ids, freed = [row["id"] for row in rows], 0
    for holder in holders:
        freed += await connection.fetchval(load("admin/unlock_queues", database.schema), ids, holder)
    return freed


# -- lists -------------------------------------------------------------------------------------------------


async def _busy(database: Database, connection: Connection, after: str, limit: int) -> QueueListing:
    """Locked and paused queues first, on the first page only; then those with waiting jobs, by id."""
    schema = database.schema
    locked: list[int] = []
    if not after:
        rows = await connection.fetch(
            load("admin/locked_queues", schema),
            f"{schema.quoted}._private_job_queues",
            FEW_QUEUES,
            MOST_LOCKED,
        )
        locked = [row["id"] for row in rows]
    last = _queue_id(after)
    rows = await connection.fetch(load("admin/queues_with_jobs", schema), last, limit + 1)
    waiting = [row["id"] for row in rows]
    ids = list(dict.fromkeys([*locked, *waiting[:limit]]))
    pauses = await _pauses(database, connection)
    views = await _views(database, connection, ids, COUNTED_IN_LIST, pauses)
    return QueueListing(
        items=views, next=str(waiting[limit - 1]) if len(waiting) > limit else None, what="busy"
    )


def _queue_id(after: str) -> int:
    if not after:
        return 0
    if not after.isdecimal() or len(after) > 10 or int(after) > 2**31 - 1:
        raise InvalidArgumentError("after", "is not a cursor of this list")
    return int(after)


async def _search(
    database: Database, connection: Connection, begin: str, after: str, limit: int
) -> QueueListing:
    rows = await connection.fetch(
        load("admin/queues_by_name", database.schema), begin[:128], after or None, READ_NAMES
    )
    matching = [row for row in rows if row["matches"] and not is_track_name(row["queue_name"])]
    page = matching[:limit]
    upcoming = None
    if len(matching) > limit:
        upcoming = page[-1]["queue_name"]
    elif len(rows) == READ_NAMES and rows[-1]["matches"]:
        upcoming = rows[-1]["queue_name"]
    pauses = await _pauses(database, connection)
    views = await _views(database, connection, [row["id"] for row in page], COUNTED_IN_LIST, pauses)
    return QueueListing(items=views, next=upcoming, what="search")


async def _longest(database: Database, connection: Connection) -> QueueListing:
    """Without our indexes: the longest queues of a sample."""
    found = await database.utils.queues.list(limit=5 * PAGE, connection=connection)
    views = [
        shared_with(
            queue, QueueView,
            waiting=queue.jobs,
            state="busy" if queue.locked_by else "waiting" if queue.jobs else "idle",
            kind="estimate" if queue.is_estimate else "exact",
            holders=[queue.locked_by] if queue.locked_by else [],
        )
        for queue in found
    ]  # fmt: skip
    return QueueListing(items=views, what="longest", missing=MISSING)


# -- one queue ---------------------------------------------------------------------------------------------


async def _pauses(database: Database, connection: Connection) -> Mapping[str, Pause]:
    found = redacted_pauses(await database.pauses(connection))
    return {pause.queue_name: pause for pause in found if pause.queue_name is not None}


async def _with_tracks(
    database: Database, connection: Connection, name: str, tables: frozenset[str]
) -> list[str]:
    tracks = await track_names(connection, database.schema, name) if TRACKS.issubset(tables) else []
    return [name, *tracks]


async def _views(
    database: Database, connection: Connection, ids: Sequence[int], counted: int, pauses: Mapping[str, Pause]
) -> list[QueueView]:
    """The queues with these ids, each with its tracks as one."""
    if not ids:
        return []
    rows = await connection.fetch(load("admin/queue_rows", database.schema), list(ids), counted)
    homes: dict[str, list[Row]] = {}
    for row in rows:
        homes.setdefault(home_name(row["queue_name"]), []).append(row)
    return [_view(name, members, counted, pauses.get(name)) for name, members in homes.items()]


def _view(name: str, rows: Sequence[Row], counted: int, pause: Pause | None) -> QueueView:
    jobs = sum(row["jobs"] for row in rows)
    ready = sum(row["ready"] for row in rows)
    is_cut = any(row["jobs"] >= counted for row in rows)
    is_paused = any(row["locked_by"] == PAUSED_BY and row["queue_name"] == name for row in rows)
    locked = [row for row in rows if row["locked_by"] not in (None, PAUSED_BY)]
    locked.sort(key=lambda row: row["locked_at"])
    holders = list(dict.fromkeys(row["locked_by"] for row in locked))
    oldest = [row["oldest"] for row in rows if row["oldest"] is not None]
    if is_paused and pause is None:
        pause = Pause(queue_name=name)
    state: QueueState = "idle"
    if pause is not None:
        state = "paused"
    elif holders:
        state = "busy"
    elif jobs:
        state = "waiting"
    return QueueView(
        queue_name=name,
        concurrency=max(1, sum(row["locked_by"] != PAUSED_BY for row in rows)),
        locked_by=holders[0] if holders else None,
        locked_at=instant(locked[0]["locked_at"]) if locked else None,
        waiting=jobs,
        ready=ready,
        is_estimate=is_cut,
        pause=pause,
        state=state,
        kind="at_least" if is_cut else "exact",
        oldest=instant(min(oldest)) if oldest else None,
        holders=holders,
    )


async def _inside(
    database: Database, connection: Connection, view: QueueView, ids: Sequence[int], tables: frozenset[str]
) -> tuple[list[QueueJob], list[str]]:
    """The jobs that run in a queue, and the dead workers that have it locked."""
    if not view.holders or WORKERS not in tables:
        return [], []
    workers = await database.utils.list_workers(connection=connection)
    holders = [worker for worker in workers if worker.id in view.holders]
    jobs = [job.id for worker in holders for job in worker.running or ()][:MOST_RUNNING]
    rows = await connection.fetch(load("admin/running_in_queues", database.schema), jobs, list(ids))
    running = [
        QueueJob(
            id=row["id"], task_identifier=row["task"], locked_by=row["locked_by"],
            locked_at=instant(row["locked_at"]),
        )
        for row in rows
    ]  # fmt: skip
    dead = [worker.id for worker in holders if worker.is_dead]
    gone = [holder for holder in view.holders if holder not in {worker.id for worker in workers}]
    own = [holder for holder in gone if workers.is_complete and holder.startswith("pool-")]
    return running, [*dead, *own]
