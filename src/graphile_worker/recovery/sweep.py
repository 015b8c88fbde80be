"""One sweep: see which worker pools are out of reach, and take the jobs of those that are dead.

Whoever sweeps calls it: a worker every few seconds, or a person. It runs in two transactions, with the
interceptors asked in between, so that no lock is held while code that is not ours decides.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ..db.connection import Connection
from ..db.retry import is_refusal
from ..error_parts import storable
from ..error_text import message_of
from ..hooks import FailJob, Hooks, LeaveLocked
from ..hooks.events import JobRecovered, WorkerLost, WorkerRecovered
from ..hooks.interceptors import resolve
from ..job import Job
from ..schema_name import SchemaName
from .orphaned_jobs import (
    RECOVERED,
    Decision,
    OrphanedJob,
    Recovered,
    dead_worker_jobs,
    delete_dead_workers,
    forget_recoveries,
    recover_jobs,
    sweep_lock,
)
from .worker_rows import (
    LostWorker,
    has_rust_workers,
    judge_workers,
    leave_rust_workers,
    list_workers,
)

DEFAULT_MAX_RECOVERIES = 5

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.recovery")


class RunsStatements(Protocol):
    """Calls a function with a connection and gives back its result."""

    def __call__(self, work: Callable[[Connection], Awaitable[T]], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredWorker:
    """A pool that was dead, and what became of its jobs, by id."""

    id: str
    returned: list[int] = field(default_factory=list)
    """To be run by others."""
    failed: list[int] = field(default_factory=list)
    """Failed: recovered too often, or because an interceptor said so."""
    left: list[int] = field(default_factory=list)
    """Left locked, because an interceptor said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep found and did."""

    recovered: list[RecoveredWorker] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    """Pools that are out of reach but not dead yet, and in how many seconds they will be."""
    is_busy: bool = False
    """Whether nothing was done because somebody else sweeps at this moment."""
    is_dry_run: bool = False
    """Whether `recovered` says what would have been done."""


class Sweep:
    """How dead pools are dealt with."""

    def __init__(
        self,
        run: RunsStatements,
        schema: SchemaName,
        hooks: Hooks,
        *,
        own_id: str | None = None,
        delay: float = 0.0,
        max_recoveries: int = DEFAULT_MAX_RECOVERIES,
    ) -> None:
        self._run = run
        self._schema = schema
        self._hooks = hooks
        self._own_id = own_id
        self._delay = delay
        self._max_recoveries = max_recoveries

    async def __call__(self) -> SweepReport:
        """Sweep once."""
        found = await self._run(self._look)
        if found is None:
            return SweepReport(is_busy=True)
        lost, orphans = found
        for worker in lost:
            if worker.newly:
                self._emit(WorkerLost(pool_id=self._own_id, lost_pool_id=worker.id, dead_in=worker.remaining))
        dead = [worker.id for worker in lost if worker.remaining <= 0]
        waiting = {worker.id: worker.remaining for worker in lost if worker.remaining > 0}
        if not dead:
            return SweepReport(lost=waiting)
        decisions, left = await self._decide(orphans)
        taken = await self._run(lambda connection: self._recover(connection, dead, decisions, left))
        if taken is None:
            return SweepReport(lost=waiting, is_busy=True)
        return SweepReport(recovered=self._tell(taken, orphans, decisions, left), lost=waiting)

    async def dry(self) -> SweepReport:
        """What a sweep would do now, with every pool that is out of reach; interceptors are not asked."""
        workers = await self._run(lambda connection: list_workers(connection, self._schema))
        lost = [worker for worker in workers if worker.is_alive is False and worker.id != self._own_id]
        return SweepReport(
            recovered=[
                RecoveredWorker(id=worker.id, returned=worker.job_ids)
                for worker in lost
                if worker.dead_in == 0.0
            ],
            lost={worker.id: worker.dead_in for worker in lost if worker.dead_in},
            is_dry_run=True,
        )

    # -- in the database -----------------------------------------------------------------------------------

    async def _look(self, connection: Connection) -> tuple[list[LostWorker], list[OrphanedJob]] | None:
        async with _transaction(connection):
            if not await sweep_lock(connection, self._schema):
                return None
            lost = await judge_workers(connection, self._schema, self._own_id)
            dead = [worker.id for worker in lost if worker.remaining <= 0]
            return lost, await dead_worker_jobs(connection, self._schema, dead) if dead else []

    async def _recover(
        self, connection: Connection, dead: Sequence[str], decisions: Sequence[Decision], left: Sequence[Job]
    ) -> tuple[set[str], dict[int, Recovered]] | None:
        """Look again and act; the pools that are gone now, and the jobs that were taken."""
        schema = self._schema
        async with _transaction(connection):
            if not await sweep_lock(connection, schema):
                return None
            lost = await judge_workers(connection, schema, self._own_id)
            still = {worker.id for worker in lost if worker.remaining <= 0}.intersection(dead)
            # A row stays as long as a job does, so that the job is looked at again.
            keep = still.intersection(job.locked_by or "" for job in left)
            gone = await delete_dead_workers(connection, schema, sorted(still - keep))
            pools = sorted(gone | keep)
            if not pools:
                return set(), {}
            queues = [job.job_queue_id for job in left if job.job_queue_id is not None]
            taken = await self._take(connection, pools, decisions, queues)
            await forget_recoveries(connection, schema)
            if gone and await has_rust_workers(connection, schema):
                await leave_rust_workers(connection, schema, sorted(gone))
            return gone, taken

    async def _take(
        self,
        connection: Connection,
        pools: Sequence[str],
        decisions: Sequence[Decision],
        queues_to_leave: Sequence[int],
    ) -> dict[int, Recovered]:
        """Do what was decided; a job that a trigger or a constraint refuses to change holds up no other."""
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
                logger.error(
                    "job %d of a dead worker stays locked, for four hours at most: the database refuses to "
                    "change it: %s",
                    decisions[0].job_id,
                    message_of(error),
                )
                decisions = ()
            elif not decisions:
                raise
        middle = len(decisions) // 2
        parts = (decisions[:middle], decisions[middle:]) if decisions else ((),)
        taken: dict[int, Recovered] = {}
        for part in parts:
            taken |= await self._take(connection, pools, part, queues_to_leave)
        return taken

    # -- deciding ------------------------------------------------------------------------------------------

    async def _decide(self, orphans: Sequence[OrphanedJob]) -> tuple[list[Decision], list[Job]]:
        """What becomes of each job, and those that stay locked."""
        decisions: list[Decision] = []
        left: list[Job] = []
        for orphan in orphans:
            wanted = await self._ask(orphan.job)
            if isinstance(wanted, LeaveLocked):
                left.append(orphan.job)
            else:
                decisions.append(self._decision(orphan, wanted))
        return decisions, left

    def _decision(self, orphan: OrphanedJob, wanted: FailJob | None) -> Decision:
        job_id = orphan.job.id
        if wanted is not None:
            return Decision(job_id, "fail", storable(wanted.message), orphan.counts)
        if orphan.counts and orphan.recoveries >= self._max_recoveries:
            return Decision(
                job_id, "give_up", too_often(job_id, orphan.recoveries + 1, self._max_recoveries), True
            )
        return Decision(job_id, "return", RECOVERED, orphan.counts)

    async def _ask(self, job: Job) -> FailJob | LeaveLocked | None:
        for interceptor in self._hooks._on_recovery:
            try:
                wanted: Any = await resolve(interceptor(job))
            except Exception:
                logger.exception("on_recovery failed for job %d; the job is given back", job.id)
                continue
            if isinstance(wanted, FailJob | LeaveLocked):
                return wanted
            if wanted is not None:
                logger.error("on_recovery returned %r; allowed: FailJob, LeaveLocked or None", wanted)
        return None

    # -- telling -------------------------------------------------------------------------------------------

    def _tell(
        self,
        done: tuple[set[str], dict[int, Recovered]],
        orphans: Sequence[OrphanedJob],
        decisions: Sequence[Decision],
        left: Sequence[Job],
    ) -> list[RecoveredWorker]:
        gone, taken = done
        by_id = {orphan.job.id: orphan.job for orphan in orphans}
        pools = gone | {by_id[job_id].locked_by or "" for job_id in taken}
        reports = {pool: RecoveredWorker(id=pool) for pool in sorted(pools)}
        for decision in decisions:
            job = by_id[decision.job_id]
            report = reports.get(job.locked_by or "")
            if report is None or job.id not in taken:
                continue
            recovered = taken[job.id]
            is_returned = decision.verdict == "return" and recovered.can_run
            (report.returned if is_returned else report.failed).append(job.id)
            self._emit(
                JobRecovered(
                    pool_id=self._own_id, job=job, is_returned=is_returned, last_error=recovered.last_error
                )
            )
        for job in left:
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
                )
            )
        return list(reports.values())

    def _emit(self, event: Any) -> None:
        self._hooks.events.emit(event)


def too_often(job_id: int, times: int, allowed: int) -> str:
    """The last error of a job that was recovered too often."""
    return (
        f"Given up: the worker that ran this job died {times} times (max_recoveries is {allowed}). Find out "
        f"whether the job kills it; then run it again with: graphile-worker reschedule {job_id} --attempts 0 "
        "--run-at now"
    )


def _transaction(connection: Connection) -> Any:
    """Rows are looked at again after a wait; that is what READ COMMITTED does, whatever the default is."""
    if connection.is_in_transaction():
        return connection.transaction()
    return connection.transaction(isolation="read_committed")
