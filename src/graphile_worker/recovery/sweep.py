"""One sweep: find unreachable worker pools and recover the orphaned jobs of dead ones.

Workers sweep every few seconds; `graphile-worker sweep` does it once. It takes two transactions, with the
interceptors called in between, so that no lock is held while user code runs.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..database.connections.retry import is_refusal
from ..database.sql import load
from ..database.statements.add_many import add_jobs
from ..database.statements.write import delete_retired, mark_notified
from ..errors.text import message_of, storable
from ..history.removed import CANNOT_KEEP, keep_recovered
from ..hooks import FailJob, Hooks, LeaveLocked
from ..hooks.events import JobRecovered, WorkerLost, WorkerRecovered
from ..hooks.interceptors import call
from ..values.job import Job
from ..values.outcome import FailureHandler
from ..values.retention import RetentionPolicy
from ..values.schema_name import SchemaName
from .cancelled_jobs import cancel_retired, end_cancelled_jobs
from .orphaned_jobs import (
    RECOVERED,
    Decision,
    OrphanedJob,
    Recovered,
    SilentSweeper,
    delete_dead_workers,
    orphaned_jobs,
    purge_recoveries,
    recover_jobs,
    silent_sweeper,
    sweep_lock,
)
from .registry.workers import (
    UnreachablePool,
    deregister_rust_workers,
    end_held_batches,
    list_workers,
    mark_unreachable_workers,
    may_use_rust_workers,
)

DEFAULT_MAX_RECOVERIES = 5
RESILIENT_FLAG = "infrastructure_resilient"
PATIENCE = 3
"""Times its grace for which a silent pool keeps jobs with the resilient flag; Rust has the same factor."""
SILENT_FOR = 5.0  # seconds for which a client may be silent in the middle of a statement of a sweep
MOST_LOOKS = 50  # for the end of terminated sessions, 20 ms each

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.recovery")


class StatementRunner(Protocol):
    """Calls a function with a connection and returns its result."""

    def __call__(self, work: Callable[[Connection], Awaitable[T]], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredWorker:
    """A dead pool, and the outcomes of its jobs, by id."""

    id: str
    returned: list[int] = field(default_factory=list)
    """Returned to the queue."""
    failed: list[int] = field(default_factory=list)
    """Failed: recovered too often, or by an interceptor."""
    left: list[int] = field(default_factory=list)
    """Left locked by an interceptor."""
    cancelled: list[int] = field(default_factory=list)
    """Deleted: before the worker died they were cancelled, or their key was removed or used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep found and did."""

    recovered: list[RecoveredWorker] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    """Pools that are unreachable but not dead yet, and the seconds until they are declared dead."""
    is_busy: bool = False
    """Whether nothing was done because another sweep is in progress."""
    is_dry_run: bool = False
    """Whether `recovered` is what would have been done."""


class _Decided(NamedTuple):
    """Orphaned jobs, what is decided about them, and those that stay locked."""

    orphans: Sequence[OrphanedJob]
    decisions: Sequence[Decision]
    left: Sequence[Job]


class Sweep:
    """Recovers the jobs of dead pools."""

    def __init__(
        self,
        run: StatementRunner,
        schema: SchemaName,
        hooks: Hooks,
        *,
        own_id: str | None = None,
        delay: float = 0.0,
        max_recoveries: int = DEFAULT_MAX_RECOVERIES,
        handlers: Mapping[str, FailureHandler] | None = None,
        retention_policy: RetentionPolicy | None = None,
        error_retention: float = 0.0,
        resilient_flag: str = RESILIENT_FLAG,
    ) -> None:
        """`handlers`: what tasks have added when a job has failed permanently.

        `retention_policy`: which failed and cancelled jobs to keep; None if there is no history.
        `error_retention`: seconds to keep the errors of failed jobs, 0 not to keep them.
        `resilient_flag`: jobs with this flag are left to a silent pool for longer.
        """
        self._resilient_flag = resilient_flag
        self._retention_policy = retention_policy
        self._error_retention = error_retention
        self._handlers = handlers or {}
        self._run = run
        self._schema = schema
        self._hooks = hooks
        self._own_id = own_id
        self._delay = delay
        self._max_recoveries = max_recoveries
        self._silent: tuple[SilentSweeper, float] | None = None  # and when it was first seen

    async def __call__(self) -> SweepReport:
        found = await self._run(self._find)
        if found is None:
            await self._run(self._end_silent)
            return SweepReport(is_busy=True)
        self._silent = None
        unreachable, orphans = found
        for pool in unreachable:
            if pool.is_new:
                self._emit(WorkerLost(pool_id=self._own_id, lost_pool_id=pool.id, dead_in=pool.dead_in))
        dead = [pool.id for pool in unreachable if pool.dead_in <= 0]
        lost = {pool.id: pool.dead_in for pool in unreachable if pool.dead_in > 0}
        if not dead:
            return SweepReport(lost=lost)
        decided = await self._decide(orphans)
        done = await self._run(lambda connection: self._recover(connection, dead, decided))
        if done is None:
            return SweepReport(lost=lost, is_busy=True)
        return SweepReport(recovered=self._report(*done, decided), lost=lost)

    async def _end_silent(self, connection: Connection) -> None:
        """Terminate the session of a worker that was suspended in a sweep and still has the lock."""
        silent, since = self._silent or (None, 0.0)
        is_over = silent is not None and time.monotonic() - since > SILENT_FOR
        found = await silent_sweeper(connection, self._schema, silent if is_over else None)
        if found is None or found != silent:
            self._silent = None if found is None else (found, time.monotonic())

    # -- one worker, by hand -------------------------------------------------------------------------------

    async def recover(self, worker_id: str, *, dry_run: bool = False) -> SweepReport:
        """Recover the jobs of one worker of another runtime. The caller knows that it is dead."""
        orphans = await self._run(lambda connection: orphaned_jobs(connection, self._schema, [worker_id]))
        if dry_run:
            returned = [orphan.job.id for orphan in orphans]
            return SweepReport(recovered=[RecoveredWorker(id=worker_id, returned=returned)], is_dry_run=True)
        decided = await self._decide(orphans)
        done = await self._run(lambda connection: self._recover_foreign(connection, worker_id, decided))
        if done is None:
            return SweepReport(is_busy=True)
        return SweepReport(recovered=self._report({worker_id}, done, decided))

    async def _recover_foreign(
        self, connection: Connection, worker_id: str, decided: _Decided
    ) -> dict[int, Recovered] | None:
        async with _transaction(connection):
            if not await sweep_lock(connection, self._schema, within="5min"):
                return None
            recovered = await self._recover_jobs(connection, [worker_id], decided)
            if not decided.left and await may_use_rust_workers(connection, self._schema):
                await deregister_rust_workers(connection, self._schema, [worker_id])
            return recovered

    # -- dry runs ------------------------------------------------------------------------------------------

    async def dry(self) -> SweepReport:
        """What a sweep would do now with all unreachable pools; interceptors are not called."""
        return await self._run(self._dry)

    async def _dry(self, connection: Connection) -> SweepReport:
        workers = await list_workers(connection, self._schema)
        lost = [worker for worker in workers if worker.is_alive is False and worker.id != self._own_id]
        recovered = {worker.id: RecoveredWorker(id=worker.id) for worker in lost if worker.dead_in == 0.0}
        if recovered:
            for orphan in await orphaned_jobs(connection, self._schema, list(recovered)):
                recovered[orphan.job.locked_by or ""].returned.append(orphan.job.id)
        return SweepReport(
            recovered=list(recovered.values()),
            lost={worker.id: worker.dead_in for worker in lost if worker.dead_in},
            is_dry_run=True,
        )

    # -- in the database -----------------------------------------------------------------------------------

    async def _find(self, connection: Connection) -> tuple[list[UnreachablePool], list[OrphanedJob]] | None:
        async with _transaction(connection):
            if not await sweep_lock(connection, self._schema):
                return None
            unreachable = await mark_unreachable_workers(connection, self._schema, self._own_id)
            if any(pool.is_new for pool in unreachable):
                await self._announce(connection)
            dead = [pool.id for pool in unreachable if pool.dead_in <= 0]
            orphans = await orphaned_jobs(connection, self._schema, dead) if dead else []
            return self._with_patience(unreachable, orphans)

    def _with_patience(
        self, unreachable: Sequence[UnreachablePool], orphans: Sequence[OrphanedJob]
    ) -> tuple[list[UnreachablePool], list[OrphanedJob]]:
        """Give silent pools with resilient jobs more time: what is lost may only be the way to them."""
        resilient = {each.job.locked_by for each in orphans if self._resilient_flag in (each.job.flags or ())}
        pools = [
            dataclasses.replace(pool, dead_in=pool.dead_in + (PATIENCE - 1) * pool.grace)
            if pool.dead_in <= 0 and pool.is_silent and pool.id in resilient
            else pool
            for pool in unreachable
        ]
        dead = {pool.id for pool in pools if pool.dead_in <= 0}
        return pools, [each for each in orphans if each.job.locked_by in dead]

    async def _recover(
        self, connection: Connection, dead: Sequence[str], decided: _Decided
    ) -> tuple[set[str], dict[int, Recovered]] | None:
        """Check again and act; return the deleted pools and the recovered jobs."""
        schema = self._schema
        async with _transaction(connection):
            if not await sweep_lock(connection, schema, within="5min"):  # there may be many jobs
                return None
            unreachable = await mark_unreachable_workers(connection, schema, self._own_id)
            still_dead = {pool.id for pool in unreachable if pool.dead_in <= 0}.intersection(dead)
            # Keep the row of a pool while one of its jobs stays locked, so that later sweeps find the job.
            keep = still_dead.intersection(job.locked_by or "" for job in decided.left)
            deleted = await delete_dead_workers(connection, schema, sorted(still_dead - keep))
            pools = sorted(deleted | keep)
            if not pools:
                return set(), {}
            await self._end_held_batches(connection, pools)
            recovered = await self._recover_jobs(connection, pools, decided)
            if deleted and await may_use_rust_workers(connection, schema):
                await deregister_rust_workers(connection, schema, sorted(deleted))
            return deleted, recovered

    async def _recover_jobs(
        self, connection: Connection, pools: Sequence[str], decided: _Decided
    ) -> dict[int, Recovered]:
        jobs = [orphan.job for orphan in decided.orphans]
        queues = [job.job_queue_id for job in decided.left if job.job_queue_id is not None]
        recovered = await self._apply(connection, pools, decided.decisions, queues)
        await self._end_cancelled(connection, recovered, jobs)
        await self._keep_failed(connection, recovered, jobs)
        await self._tell_handlers(connection, recovered, jobs)
        await purge_recoveries(connection, self._schema)
        return recovered

    async def _end_held_batches(self, connection: Connection, pools: Sequence[str]) -> None:
        """Free the rows that workers which are cut off keep locked."""
        for pool_id in pools:
            try:
                async with connection.transaction():
                    for _ in range(MOST_LOOKS):
                        if not await end_held_batches(connection, self._schema, pool_id):
                            break
                        await self._announce(connection)
            except Exception as error:
                if sqlstate_of(error) != sqlstates.INSUFFICIENT_PRIVILEGE:
                    raise
                logger.debug(
                    "could not end the sessions of the dead worker %s: %s", pool_id, message_of(error)
                )

    async def _announce(self, connection: Connection) -> None:
        """Wake workers: the jobs of held batches are free, and no row tells how many they are."""
        await connection.fetchval(load("add/announce_jobs", self._schema), 1)

    async def _end_cancelled(
        self, connection: Connection, recovered: dict[int, Recovered], jobs: Sequence[Job]
    ) -> None:
        """Delete those that were cancelled, or removed or replaced by their key; they have not failed."""
        final = [job for job in jobs if job.id in recovered and not recovered[job.id].can_run]
        if not final:
            return
        retired = [job.id for job in final if recovered[job.id].is_retired]
        if retired:
            await cancel_retired(connection, self._schema, retired)
        ended = set(await end_cancelled_jobs(connection, self._schema, final, self._retention_policy))
        if left := [job_id for job_id in retired if job_id not in ended]:
            ended |= await delete_retired(connection, self._schema, left)
        for job_id in ended:
            recovered[job_id] = replace(recovered[job_id], is_cancelled=True)

    async def _keep_failed(
        self, connection: Connection, recovered: dict[int, Recovered], jobs: Sequence[Job]
    ) -> None:
        failed = [job for job in jobs if job.id in recovered and recovered[job.id].has_failed]
        if not failed or self._retention_policy is None:
            return
        try:
            async with connection.transaction():
                await keep_recovered(
                    connection, self._schema, failed, self._retention_policy, self._error_retention
                )
        except Exception as error:
            if sqlstate_of(error) not in CANNOT_KEEP:
                raise
            logger.debug("recovered jobs are not kept: %s", message_of(error))

    async def _tell_handlers(
        self, connection: Connection, recovered: dict[int, Recovered], jobs: Sequence[Job]
    ) -> None:
        ended = [
            job
            for job in jobs
            if job.task_identifier in self._handlers and job.id in recovered and recovered[job.id].has_failed
        ]
        if not ended:
            return
        specs = [self._handlers[job.task_identifier].spec(job, recovered[job.id].last_error) for job in ended]
        try:
            async with connection.transaction():
                await add_jobs(connection, self._schema, specs, return_jobs=False)
                await mark_notified(connection, self._schema, [job.id for job in ended])
        except Exception as error:
            if not is_refusal(error):
                raise
            logger.error("the jobs of on_failure could not be added: %s", message_of(error))

    async def _apply(
        self,
        connection: Connection,
        pools: Sequence[str],
        decisions: Sequence[Decision],
        queues_to_leave: Sequence[int],
    ) -> dict[int, Recovered]:
        """Apply the decisions; split the batch if a trigger or a constraint refuses one of the jobs."""
        try:
            async with connection.transaction():
                return await recover_jobs(
                    connection,
                    self._schema,
                    pools,
                    decisions,
                    delay=self._delay,
                    queues_to_leave=queues_to_leave,
                )
        except Exception as error:
            if not is_refusal(error):
                raise
            if len(decisions) == 1:
                about = {"task_identifier": decisions[0].task_identifier, "job_id": decisions[0].job_id}
                logger.error(
                    "task %s (job %d) is orphaned and stays locked for up to four hours: the database "
                    "refuses the update: %s",
                    *about.values(),
                    message_of(error),
                    extra=about,
                )
                decisions = ()
            elif not decisions:
                raise
        middle = len(decisions) // 2
        halves = (decisions[:middle], decisions[middle:]) if decisions else ((),)
        recovered: dict[int, Recovered] = {}
        for half in halves:
            recovered |= await self._apply(connection, pools, half, queues_to_leave)
        return recovered

    # -- deciding ------------------------------------------------------------------------------------------

    async def _decide(self, orphans: Sequence[OrphanedJob]) -> _Decided:
        decisions: list[Decision] = []
        left: list[Job] = []
        for orphan in orphans:
            chosen = await self._intercept(orphan.job)
            if isinstance(chosen, LeaveLocked):
                left.append(orphan.job)
            else:
                decisions.append(self._decision(orphan, chosen))
        return _Decided(orphans, decisions, left)

    def _decision(self, orphan: OrphanedJob, chosen: FailJob | None) -> Decision:
        job_id, task = orphan.job.id, orphan.job.task_identifier
        if chosen is not None:
            return Decision(job_id, "fail", storable(chosen.message), orphan.counts, task)
        if orphan.counts and orphan.recoveries >= self._max_recoveries:
            return Decision(
                job_id,
                "give_up",
                recovered_too_often(job_id, orphan.recoveries + 1, self._max_recoveries),
                True,
                task,
            )
        return Decision(job_id, "return", RECOVERED, orphan.counts, task)

    async def _intercept(self, job: Job) -> FailJob | LeaveLocked | None:
        about = {"task_identifier": job.task_identifier, "job_id": job.id}
        for interceptor in self._hooks.table.on_recovery:
            try:
                chosen: Any = await call(interceptor, job)
            except Exception:
                logger.exception(
                    "task %s (job %d): on_recovery failed; the job is returned", *about.values(), extra=about
                )
                continue
            if isinstance(chosen, FailJob | LeaveLocked):
                return chosen
            if chosen is not None:
                logger.error(
                    "task %s (job %d): on_recovery returned %r; allowed: FailJob, LeaveLocked or None",
                    *about.values(),
                    chosen,
                    extra=about,
                )
        return None

    # -- reporting -----------------------------------------------------------------------------------------

    def _report(
        self, deleted: set[str], recovered_jobs: dict[int, Recovered], decided: _Decided
    ) -> list[RecoveredWorker]:
        by_id = {orphan.job.id: orphan.job for orphan in decided.orphans}
        pools = deleted | {by_id[job_id].locked_by or "" for job_id in recovered_jobs}
        reports = {pool: RecoveredWorker(id=pool) for pool in sorted(pools)}
        for decision in decided.decisions:
            job = by_id[decision.job_id]
            report = reports.get(job.locked_by or "")
            if report is None or job.id not in recovered_jobs:
                continue
            recovered = recovered_jobs[job.id]
            is_returned = decision.action == "return" and recovered.can_run
            if recovered.is_cancelled:
                report.cancelled.append(job.id)
            else:
                (report.returned if is_returned else report.failed).append(job.id)
            self._emit(
                JobRecovered(
                    pool_id=self._own_id,
                    job=job,
                    is_returned=is_returned,
                    last_error=recovered.last_error,
                    is_cancelled=recovered.is_cancelled,
                )
            )
        for job in decided.left:
            if job.locked_by in reports:
                reports[job.locked_by].left.append(job.id)
        for report in reports.values():
            self._emit(
                WorkerRecovered(
                    pool_id=self._own_id,
                    dead_pool_id=report.id,
                    returned=report.returned,
                    failed=report.failed,
                    left=report.left,
                    cancelled=report.cancelled,
                )
            )
        return list(reports.values())

    def _emit(self, event: Any) -> None:
        self._hooks.events.emit(event)


def recovered_too_often(job_id: int, times: int, allowed: int) -> str:
    """The last error of a job that was recovered too often."""
    return (
        f"Given up: the worker that ran this job died {times} times (max_recoveries is {allowed}). Check "
        f"whether the job kills it; then retry with: graphile-worker reschedule {job_id} --attempts 0 "
        "--run-at now"
    )


def _transaction(connection: Connection) -> Any:
    """READ COMMITTED whatever the default is: rows must be read again after waiting for a lock."""
    if connection.is_in_transaction():
        return connection.transaction()
    return connection.transaction(isolation="read_committed")
