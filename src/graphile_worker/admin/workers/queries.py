"""Workers: who is alive, and what each runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.control import StateRequest, list_requests
from ...diagnostics.json_shapes import worker_as_json
from ...history.statistics import TaskStatistics
from ...recovery.registry.load import Load
from ...recovery.registry.pool_state import ExecutorPlace
from ...recovery.registry.workers import (
    SCANNED_PAGES,
    Runtime,
    WorkerList,
    WorkerSummary,
    condition_of,
    runtime_of,
)
from ...values.concurrency import MAIN, MOST_ASKED_SLOTS
from ...values.flags import FlagDescription
from ...values.job import instant
from ...values.text import duration
from ..answers import not_found, shared_with
from ..database import STATISTICS, WORKERS, Database
from ..security.redact import redacted_text

WorkerState = Literal["alive", "paused", "stopping", "late", "dead", "unknown"]


class BusySlot(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker runs."""

    id: int
    started_at: datetime
    task_identifier: str | None = None
    """None if it was not looked up, or the job has ended since."""
    seconds: float


class WorkerLane(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a worker, with what runs in it."""

    name: str
    slots: int
    tasks: list[str]
    running: list[BusySlot]


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """What blocks the event loop of a worker."""

    task_identifier: str | None
    job_id: int | None
    since: datetime
    seconds: float
    culprit: str
    """In words."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker pool: what `worker_as_json` has, and what follows from it.

    Of other runtimes no more is known than their heartbeats and the jobs they have locked.
    """

    id: str
    runtime: Runtime
    state: WorkerState
    detail: str
    """The state in words: `dead in 12 s`, `no heartbeat for 20 s`."""
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    """Of this package."""
    app_version: str | None = None
    started_at: datetime | None = None
    last_seen_at: datetime | None = None
    tasks: list[str] | None = None
    concurrency: int | None = None
    """Its slots."""
    liveness: Literal["lock", "heartbeat"] | None = None
    is_alive: bool | None = None
    dead_in: float | None = None
    silent_for: float | None = None
    stalled_for: float | None = None
    busy: int | None = None
    prefetched: int | None = None
    running: list[BusySlot] | None = None
    """The longest-running first."""
    job_ids: list[int] = []
    lanes: list[WorkerLane] | None = None
    flag_rules: FlagDescription | None = None
    """Which jobs it takes by their flags; None if it does not say."""
    per_minute: float | None = None
    """Attempts that ended, in the last minutes; None without statistics."""
    failed_per_minute: float | None = None
    is_listening: bool | None = None
    """False if it finds jobs by polling; None if it does not say."""
    clock: float | None = None
    """Seconds that its clock is ahead of the server's."""
    executors: list[ExecutorPlace] | None = None
    """Processes and machines that run tasks for it."""
    load: Load | None = None
    """Memory and processor time of its process, as of its last heartbeat; None if it does not say."""
    blocked: Blocked | None = None
    asked: str | None = None
    """Why it was asked to stop or was paused."""
    jobs_held: int | None = None
    locked_since: datetime | None = None

    @property
    def name(self) -> str:
        """Host and process, or the id."""
        return self.id if self.host is None else f"{self.host} · {self.pid}"

    @property
    def memory(self) -> str:
        """The memory of its process, in words."""
        return megabytes(None if self.load is None else self.load.memory)

    @property
    def processor(self) -> str:
        """The share of a processor that it uses, in words."""
        return "unknown" if self.load is None or self.load.cpu is None else f"{self.load.cpu:.0%}"

    @property
    def cells(self) -> list[tuple[str, str]]:
        """The slots for `ui.slots`: busy ones first, the longest-running in another colour."""
        shown = [
            (
                "long" if slot.seconds >= LONG else "on",
                f"{slot.task_identifier or 'job'} {slot.id}, {duration(slot.seconds)}",
            )
            for slot in self.running or ()
        ]
        free = max(0, (self.concurrency or 0) - len(shown))
        return shown + [("", "free")] * free


def megabytes(memory: int | None) -> str:
    """Bytes, in words."""
    return "unknown" if memory is None else f"{memory / 1e6:,.0f} MB"


LONG = 60.0
"""Seconds after which a running job is marked."""


class VersionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Workers of one version of the application and of the package."""

    app_version: str | None
    version: str | None
    workers: int
    slots: int
    since: datetime | None


class WorkerListing(msgspec.Struct, frozen=True, kw_only=True):
    """All workers."""

    items: list[Worker]
    versions: list[VersionGroup]
    is_complete: bool
    """Whether workers of other runtimes are included: the jobs table was small enough to look."""
    missing: str | None = None
    """What is not known here, and why."""

    @property
    def alive(self) -> int:
        return sum(worker.state not in ("dead", "unknown") for worker in self.items)


WorkerOrder = Literal[
    "usual", "name", "slots", "busy", "memory", "processor", "rate", "failing", "since"
]  # fmt: skip


class WorkersQuery(msgspec.Struct, frozen=True):
    """In which order."""

    order: WorkerOrder = "usual"
    """The largest value first, or the latest start. `usual`: those of this package, then others."""


class WorkerQuery(msgspec.Struct, frozen=True):
    """Which worker."""

    id: str


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to one worker."""

    id: str
    reason: str = ""
    typed: str = ""
    """To free the locks of a worker that may be alive: its id once more."""


class WorkerLaneQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lane of a worker."""

    id: str
    lane: str = MAIN


class WorkerConcurrencyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a worker is to run at once, in one of its lanes."""

    id: str
    lane: str = MAIN
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=MOST_ASKED_SLOTS)]


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a worker."""

    id: str
    done: str
    """In words."""


RATE_OVER = timedelta(minutes=3)
"""Rates of workers are means of the last minutes."""
MOST_NAMED = 60
"""Running jobs whose tasks are looked up for the list."""
REQUESTS = "_private_py_requests"
NO_TABLE = (
    "No Python worker has used this schema. Workers of other runtimes are listed while they have jobs locked."
)


async def list_workers(database: Database) -> WorkerListing:
    """All workers, our own first."""
    async with database.read() as connection:
        return await read_workers(database, connection)


async def find_worker(database: Database, worker_id: str) -> Worker | None:
    """One worker, with its lanes; None if nothing is known of it."""
    async with database.read() as connection:
        found = await read_workers(database, connection, only=worker_id)
    return next((each for each in found.items if each.id == worker_id), None)


async def get_worker(database: Database, worker_id: str) -> Worker:
    worker = await find_worker(database, worker_id)
    if worker is None:
        raise not_found(f"worker {worker_id[:200]}")
    return worker


async def read_workers(
    database: Database, connection: Connection, *, only: str | None = None
) -> WorkerListing:
    """The same in a transaction; `only` one of them with all its running jobs looked up."""
    tables = await database.own_tables(connection)
    if WORKERS not in tables:
        others = await _holders(database, connection)
        return WorkerListing(
            items=others or [], versions=[], is_complete=others is not None, missing=NO_TABLE
        )
    found = await database.utils.list_workers(connection=connection)
    requests = await list_requests(connection, database.schema) if REQUESTS in tables else []
    statistics: Sequence[TaskStatistics] = ()
    if tables >= STATISTICS:
        statistics = await database.utils.statistics.tasks(since=RATE_OVER, by="pool", connection=connection)
    wanted = [worker for worker in found if only is None or worker.id == only]
    tasks = await _tasks_of(database, connection, wanted)
    items = [_worker(worker, requests, statistics, tasks) for worker in wanted]
    return WorkerListing(items=items, versions=_versions(found), is_complete=found.is_complete)


# -- reading -----------------------------------------------------------------------------------------------


async def _holders(database: Database, connection: Connection) -> list[Worker] | None:
    """Who has jobs locked, where no Python worker was; None if the table is too large to look."""
    statement = load("admin/lock_holders", database.schema)
    rows = await connection.fetch(statement, f"{database.schema.quoted}._private_jobs", SCANNED_PAGES)
    if rows and not rows[0]["is_scanned"]:
        return None
    return [
        Worker(
            id=row["id"],
            runtime=runtime_of(row["id"]),
            state="unknown",
            detail="sends no heartbeats",
            jobs_held=row["jobs"],
            locked_since=instant(row["locked_since"]),
        )
        for row in rows
        if row["id"] is not None
    ]


async def _tasks_of(
    database: Database, connection: Connection, workers: Sequence[WorkerSummary]
) -> Mapping[int, str]:
    """The tasks of the jobs that run longest, by job id."""
    running = sorted((job.started_at, job.id) for worker in workers for job in worker.running or ())
    ids = [job_id for _, job_id in running[:MOST_NAMED]]
    if not ids:
        return {}
    rows = await connection.fetch(load("admin/tasks_of_jobs", database.schema), ids)
    return {row["id"]: row["task"] for row in rows}


def _worker(
    worker: WorkerSummary,
    requests: Sequence[StateRequest],
    statistics: Sequence[TaskStatistics],
    tasks: Mapping[int, str],
) -> Worker:
    asked = {request.kind: request for request in requests if request.worker_id == worker.id}
    now = datetime.now(UTC) if worker.last_seen_at is None else max(worker.last_seen_at, datetime.now(UTC))
    running = [
        BusySlot(
            id=job.id,
            started_at=job.started_at,
            task_identifier=tasks.get(job.id),
            seconds=max(0.0, (now - job.started_at).total_seconds()),
        )
        for job in worker.running or ()
    ]
    busy = None if worker.running is None else len(running)
    held = worker.jobs_held
    own = [each for each in statistics if each.pool_id == worker.id]
    minutes = RATE_OVER.total_seconds() / 60
    is_ours = worker.is_registered
    state, detail = _state(worker, asked)
    request = asked.get("stop") or asked.get("quiet")
    return Worker(
        **worker_as_json(worker) | {
            "running": None if worker.running is None else running,
            "lanes": _lanes(worker, running),
            "executors": worker.executors,
            "load": worker.load,
            "flag_rules": worker.flag_rules,
            "blocked": None if worker.blocked is None else shared_with(worker.blocked, Blocked),
        },
        state=state,
        detail=detail,
        busy=busy,
        prefetched=None if held is None or busy is None else max(0, held - busy),
        per_minute=sum(each.attempts for each in own) / minutes if statistics and is_ours else None,
        failed_per_minute=(
            sum(each.failed + each.permanently_failed for each in own) / minutes
            if statistics and is_ours
            else None
        ),
        asked=None if request is None else redacted_text(request.reason or "") or None,
    )  # fmt: skip


def _state(worker: WorkerSummary, asked: Mapping[Any, StateRequest]) -> tuple[WorkerState, str]:
    condition, detail = condition_of(worker)
    if condition != "alive":
        return condition, detail
    if "stop" in asked:
        return "stopping", "asked to stop"
    if "quiet" in asked:
        return "paused", "fetches no jobs"
    return condition, detail


def _lanes(worker: WorkerSummary, running: Sequence[BusySlot]) -> list[WorkerLane] | None:
    """The lanes with what runs in each; a job whose task is unknown is in the first."""
    lanes = worker.lanes
    if lanes is None:
        return None
    lane_of = {task: lane.name for lane in lanes for task in lane.tasks}
    inside: defaultdict[str, list[BusySlot]] = defaultdict(list)
    for slot in running:
        inside[lane_of.get(slot.task_identifier or "", lanes[0].name if lanes else "")].append(slot)
    return [shared_with(lane, WorkerLane, running=inside[lane.name]) for lane in lanes]


def _versions(workers: WorkerList) -> list[VersionGroup]:
    """Living workers by version, the newest first."""
    groups: defaultdict[tuple[str | None, str | None], list[WorkerSummary]] = defaultdict(list)
    for worker in workers:
        if worker.is_alive:
            groups[worker.app_version, worker.version].append(worker)
    found = [
        VersionGroup(
            app_version=app_version,
            version=version,
            workers=len(members),
            slots=sum(member.concurrency or 0 for member in members),
            since=min((member.started_at for member in members if member.started_at), default=None),
        )
        for (app_version, version), members in groups.items()
    ]
    return sorted(found, key=lambda group: group.since or datetime.min.replace(tzinfo=UTC), reverse=True)
