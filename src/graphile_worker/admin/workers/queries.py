"""Workers: who is alive, what each runs, and requests to one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.control import StateRequest, list_requests
from ...diagnostics.json_shapes import worker_as_json
from ...errors import WorkerNotFoundError
from ...history.audit import Actor, record
from ...history.statistics import TaskStatistics
from ...recovery.registry.workers import SCANNED_PAGES, WorkerList, WorkerSummary, condition_of, runtime_of
from ...values.concurrency import MAIN
from ...values.job import instant
from ...values.text import count
from ..answers import Problem, not_found
from ..database import STATISTICS, WORKERS, Database
from ..security.redact import redacted_text
from . import (
    Blocked,
    BusySlot,
    DeployMark,
    VersionGroup,
    Worker,
    WorkerAnswer,
    WorkerLane,
    WorkerListing,
    WorkerState,
)

RATE_OVER = timedelta(minutes=3)
"""Rates of workers are means of the last minutes."""
MOST_NAMED = 60
"""Running jobs whose tasks are looked up for the list."""
REQUESTS = "_private_py_requests"
DEPLOYS = "_private_py_deploys"
NO_TABLE = (
    "No Python worker has used this schema. Workers of other runtimes are listed while they have jobs locked."
)


async def list_workers(database: Database) -> WorkerListing:
    """All workers, our own first."""
    async with database.read() as connection:
        return await read_workers(database, connection)


async def get_worker(database: Database, worker_id: str) -> Worker:
    """One worker, with its lanes."""
    async with database.read() as connection:
        found = await read_workers(database, connection, only=worker_id)
    worker = next((each for each in found.items if each.id == worker_id), None)
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


async def deploys(database: Database, since: datetime) -> list[DeployMark]:
    """When versions of the application were started, the latest first; empty where that is not recorded."""
    async with database.read() as connection:
        if DEPLOYS not in await database.own_tables(connection):
            return []
        found = await database.utils.workers.list_deploys(since=since, connection=connection)
    return [
        DeployMark(version=each.version, started_at=each.started_at, starts=each.starts) for each in found
    ]


# -- requests ----------------------------------------------------------------------------------------------


async def stop(database: Database, actor: Actor, worker_id: str, reason: str = "") -> WorkerAnswer:
    """Ask a worker to shut down gracefully."""
    why = f"{actor.name}: {reason}" if reason else f"asked by {actor.name}"
    async with database.write() as connection:
        try:
            await database.utils.workers.stop(worker_id, reason=why[:1000], connection=connection)
        except WorkerNotFoundError as error:
            raise _no_worker(error) from None
        await _record(database, connection, actor, "stop_worker", worker_id, reason)
    return WorkerAnswer(id=worker_id, done="It was asked to stop: it finishes its running jobs, then ends.")


async def pause(database: Database, actor: Actor, worker_id: str, reason: str = "") -> WorkerAnswer:
    """Pause a worker: it fetches no more jobs."""
    why = f"{actor.name}: {reason}" if reason else f"asked by {actor.name}"
    async with database.write() as connection:
        try:
            await database.utils.workers.pause(worker_id, reason=why[:1000], connection=connection)
        except WorkerNotFoundError as error:
            raise _no_worker(error) from None
        await _record(database, connection, actor, "pause_worker", worker_id, reason)
    return WorkerAnswer(id=worker_id, done="It is paused: it fetches no more jobs. Running jobs go on.")


async def resume(database: Database, actor: Actor, worker_id: str) -> WorkerAnswer:
    """Let a paused worker fetch jobs again."""
    async with database.write() as connection:
        was_paused = await database.utils.workers.resume(worker_id, connection=connection)
        if was_paused:
            await _record(database, connection, actor, "resume_worker", worker_id, "")
    done = "It fetches jobs again." if was_paused else "It was not paused; nothing was changed."
    return WorkerAnswer(id=worker_id, done=done)


async def set_concurrency(
    database: Database, actor: Actor, worker_id: str, lane: str, concurrency: int
) -> WorkerAnswer:
    """Let a worker run this many jobs of a lane at once; waits until it does."""
    await database.open()
    try:
        change = await database.utils.workers.set_concurrency(worker_id, concurrency, lane=lane)
    except WorkerNotFoundError as error:
        raise _no_worker(error) from None
    details = {"lane": lane, "before": change.before, "concurrency": concurrency}
    async with database.write() as connection:
        await record(
            connection, database.schema, actor, "set_worker_concurrency", target=worker_id, details=details
        )
    of_lane = "" if lane == MAIN else f" of the lane {lane}"
    done = f"It runs up to {count(concurrency, 'job')}{of_lane} at once (before: {change.before})."
    return WorkerAnswer(id=worker_id, done=done)


async def unlock(database: Database, actor: Actor, worker_id: str, typed: str = "") -> WorkerAnswer:
    """Free every lock of a worker. One that may be alive must be typed: its jobs would run twice.

    Jobs of another runtime's worker are recovered: no one else does that, and their attempt does not count.
    """
    async with database.read() as connection:
        known = await read_workers(database, connection, only=worker_id)
    worker = next((each for each in known.items if each.id == worker_id), None)
    if (worker is None or worker.state != "dead") and typed != worker_id:
        state = "may be alive" if worker is None or worker.state == "unknown" else "is alive"
        raise Problem(
            409,
            f"The worker {state}",
            "If its locks are freed while it runs, its jobs run twice. Stop it first; or, if you are certain "
            "that it is dead, type its id.",
            typed=worker_id,
        )
    if worker is not None and worker.is_alive is None:
        report = await database.utils.workers.recover(worker_id, force=True)
        async with database.write() as connection:
            await _record(database, connection, actor, "unlock_worker", worker_id, "")
        returned = sum(len(each.returned) for each in report.recovered)
        return WorkerAnswer(id=worker_id, done=f"{count(returned, 'job')} returned to the queue.")
    async with database.write() as connection:
        await database.utils.force_unlock_workers([worker_id], connection=connection)
        await _record(database, connection, actor, "unlock_worker", worker_id, "")
    return WorkerAnswer(id=worker_id, done="Its jobs and queues were unlocked.")


async def what_unlocking_does(database: Database, worker_id: str) -> tuple[str, bool]:
    """In words, and whether the worker is certainly dead."""
    async with database.read() as connection:
        known = await read_workers(database, connection, only=worker_id)
    worker = next((each for each in known.items if each.id == worker_id), None)
    if worker is not None and worker.state == "dead":
        return "Its jobs and queues become free for other workers.", True
    alive = "It may be alive, and then its jobs run twice. Stop it first, or be certain."
    if worker is None or worker.is_alive is not None:
        return alive, False
    held = "Its jobs return" if worker.jobs_held is None else f"{count(worker.jobs_held, 'job')} of it return"
    verb = "s" if worker.jobs_held == 1 else ""
    return (
        f"{held}{verb} to the queue, the attempt does not count, and its queues become free. {alive}",
        False,
    )


async def _record(
    database: Database, connection: Connection, actor: Actor, action: str, worker_id: str, reason: str
) -> None:
    details = {"reason": reason} if reason else None
    await record(connection, database.schema, actor, action, target=worker_id, details=details)


def _no_worker(error: WorkerNotFoundError) -> Problem:
    return Problem(404, "There is no such Python worker", str(error))


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
            "blocked": None if worker.blocked is None else Blocked(
                task_identifier=worker.blocked.task_identifier, job_id=worker.blocked.job_id,
                since=worker.blocked.since, seconds=worker.blocked.seconds, culprit=worker.blocked.culprit,
            ),
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
    return [
        WorkerLane(name=lane.name, slots=lane.slots, tasks=lane.tasks, running=inside[lane.name])
        for lane in lanes
    ]


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
