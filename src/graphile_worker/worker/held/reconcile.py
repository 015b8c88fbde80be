"""BatchReconciler: finds out what has become of held batches whose transaction was lost.

The connection may break before the commit, or before its answer. Outcomes are kept in memory until the
database is back. Then each job that is still as the batch found it is locked in the ordinary way; it goes on
running here, or the sink writes its outcome. A job that another worker has taken in between is lost.

The queues of series are still locked. Their completed jobs are deleted first: otherwise the write of one
outcome would lock the next job, which may have completed too. Then the job with which a series ended is
locked, and keeps its queue. The other queues are unlocked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from ...database.connections.connection import Connection
from ...database.connections.retry import Backoff, Delays, is_refusal, may_pass
from ...database.statements.held_batches import Settled, settle_jobs, settle_series
from ...database.statements.limits import count_again
from ...database.statements.write_plan import Failure, KeptJobs, Outcomes
from ...hooks.faults import report
from ...values.job import Job
from ...values.outcome import Completed, Failed, Finished
from ..context import PoolContext
from ..session import Session
from .series import HeldSeries

RETRY_DELAYS = Delays(0.05, 1.0)

NOTHING_WRITTEN = Outcomes()

logger = logging.getLogger("graphile_worker.worker")


class HeldWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes that need more than a delete, sorted by whether the end of a held batch writes them."""

    finished: Sequence[Finished] = ()
    """Failures that are retried and whose error is not kept, and completed jobs that are kept."""
    outcomes: Outcomes = NOTHING_WRITTEN
    """The same as rows, without what is kept."""
    kept: Sequence[KeptJobs] = ()
    others: Sequence[Finished] = ()
    with_errors: int = 0
    """How many of these would be written too if their error were not kept; at most the limit of one kind."""


class HeldOutcomes(Protocol):
    """The `Sink`, as held batches see it: it writes what they do not write, and counts what they do."""

    accepted: int

    @property
    def not_deleted(self) -> int: ...
    def accept(self, finished: Finished) -> None: ...
    def held_write(self, finished: Sequence[Finished]) -> HeldWrite: ...
    def is_of_history(self, error: BaseException) -> bool: ...
    def written_held(self, batch: Sequence[Finished], began: float, outcomes: Outcomes) -> None: ...
    def discarded_held(self, finished: Finished) -> None: ...
    def held_write_failed(self, error: BaseException) -> None: ...


class BatchReconciler:
    """The jobs of lost batches until they are settled."""

    def __init__(
        self, context: PoolContext, session: Session, sink: HeldOutcomes, on_freed: Callable[[], None]
    ) -> None:
        """`on_freed`: called when queues may be free."""
        self._on_freed = on_freed
        self._context = context
        self._session = session
        self._sink = sink
        self.jobs: dict[int, Job] = {}
        """By id. Some still run."""
        self._finished: dict[int, Finished] = {}
        self._queues: dict[int, datetime] = {}  # those of series, and when they were locked
        self._may_be_committed: set[int] = set()
        self._retries: dict[int, datetime] = {}  # of failures, if the commit was sent
        self._limits: dict[int, tuple[str, ...]] = {}  # of running jobs
        self._task: asyncio.Task[None] | None = None
        self._is_abandoned = False
        self._one_at_a_time = False  # the database has refused some job
        self._session.locked_jobs.unsettled = self.jobs

    @property
    def is_busy(self) -> bool:
        """Whether a job or a queue is not settled."""
        return bool(self.jobs or self._queues)

    def add(
        self,
        finished: Sequence[Finished],
        running: Sequence[Job],
        *,
        may_be_committed: bool,
        retries: Mapping[int, datetime],
        series: HeldSeries | None = None,
        limits: Sequence[str] = (),
    ) -> None:
        """Settle these jobs soon; `may_be_committed`: the commit was sent, and no answer came.

        `retries`: when jobs run again whose failure the batch has written. `limits`: those that count them.
        """
        if self._is_abandoned:
            return
        for each in finished:
            self.jobs[each.job.id] = each.job
            self._finished[each.job.id] = each
        for job in running:
            self.jobs[job.id] = job
        if limits:
            self._limits.update(dict.fromkeys((job.id for job in running), tuple(limits)))
        if may_be_committed:
            self._may_be_committed.update(each.job.id for each in finished)
            self._retries.update(retries)
        if series is not None:
            self._queues.update(dict.fromkeys(series.queues, series.locked_at))
        self._start()

    def take(self, finished: Finished) -> bool:
        """Accept the outcome of a job that is not settled; False if there is no such job."""
        if self.jobs.get(finished.job.id) is not finished.job:
            return False
        self._finished[finished.job.id] = finished
        return True

    async def settled(self) -> None:
        """Wait until every job is settled."""
        while self.is_busy:
            await asyncio.wait((self._start(),))

    def abandon(self) -> None:
        """Settle nothing more."""
        self._is_abandoned = True
        self.jobs.clear()
        self._queues.clear()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="graphile-worker lost batches"
            )
            self._task.add_done_callback(self._ended)
        return self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Start again after a while if it died or other code cancelled it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            report(logger, "the asyncio task %r ended unexpectedly", "lost batches", error=error)
        if self.is_busy and not self._is_abandoned:
            asyncio.get_running_loop().call_later(RETRY_DELAYS.min_delay, self._start_if_needed)

    def _start_if_needed(self) -> None:
        if self.is_busy and not self._is_abandoned:
            self._start()

    async def _run(self) -> None:
        backoff = Backoff(RETRY_DELAYS)
        while self.is_busy:
            jobs = list(self.jobs.values())
            for some in [[job] for job in jobs] if self._one_at_a_time else [jobs]:
                try:
                    await self._settle(some)
                except Exception as error:
                    self._failed(some, error)
                    if not is_refusal(error):
                        break
            self._let_go_of_queues()
            if self.is_busy:
                await self._context.clock.sleep(backoff.next_delay())
        self._one_at_a_time = False

    def _failed(self, jobs: list[Job], error: Exception) -> None:
        """Let go of a job that the database refuses to lock; find out which of several it is.

        A refusal that may be temporary costs no job: fewer at a time may do, or the same a little later.
        """
        self._sink.held_write_failed(error)
        if is_refusal(error):
            if len(jobs) == 1 and not may_pass(error):
                self._let_go(jobs)
            self._one_at_a_time = True

    async def _settle(self, jobs: list[Job]) -> None:
        await self._settle_series([job for job in jobs if self._has_completed(job)])
        before_others = {job.job_queue_id for job in self.jobs.values() if self._has_completed(job)}
        jobs = [job for job in jobs if job.id in self.jobs and job.job_queue_id not in before_others]
        if jobs:
            await self._settle_jobs(jobs)

    def _has_completed(self, job: Job) -> bool:
        """Whether this is a completed job of a series."""
        finished = self._finished.get(job.id)
        is_completed = finished is not None and type(finished.outcome) is Completed
        return is_completed and job.job_queue_id in self._queues

    async def _settle_series(self, jobs: list[Job]) -> None:
        """Delete completed jobs of series, or let go of them if their queue is not ours."""
        began, by_lock = time.monotonic(), defaultdict[datetime, list[Job]](list)
        for job in jobs:
            by_lock[self._queues[job.job_queue_id or 0]].append(job)
        for locked_at, some in by_lock.items():
            self._may_be_committed.update(job.id for job in some)  # from now on
            found = await self._delete(locked_at, some)
            deleted = [self._remove(job) for job in some if found.get(job.id)]
            if deleted:
                self._sink.written_held(
                    [each for each in deleted if each is not None], began, NOTHING_WRITTEN
                )
            gone = {job.id for job in some if job.id not in found}
            self._let_go([job for job in some if found.get(job.id) is None], gone, began=began)

    async def _delete(self, locked_at: datetime, jobs: list[Job]) -> dict[int, bool | None]:
        context = self._context
        found: dict[int, bool | None] = {}

        async def statement(connection: Connection) -> Sequence[Job]:
            nonlocal found
            found = await settle_series(connection, context.schema, context.pool_id, locked_at, jobs)
            return ()

        await self._session.run_under_lease(statement)
        return found

    def _let_go_of_queues(self) -> None:
        """Let the next statement unlock queues of which no job is left to settle, unless one is locked."""
        left = {job.job_queue_id for job in self.jobs.values()}
        settled = [queue_id for queue_id in self._queues if queue_id not in left]
        if settled:
            for queue_id in settled:
                del self._queues[queue_id]
            locked_jobs = self._session.locked_jobs
            locked_jobs.queues.difference_update(settled)
            locked_jobs.doubt()
            self._on_freed()

    async def _settle_jobs(self, jobs: list[Job]) -> None:
        settled = Settled({}, frozenset())
        began = time.monotonic()
        context = self._context

        async def statement(connection: Connection) -> Sequence[Job]:
            nonlocal settled
            await self._count_again(connection, jobs)
            settled = await settle_jobs(
                connection, context.schema, context.pool_id, jobs, retries=self._retries, now=context.now()
            )
            return [job for job in jobs if settled.is_ours.get(job.id)]

        ours = await self._session.run_under_lease(statement)
        found = settled.is_ours
        if not ours and any(found.values()):
            return  # the lease ended meanwhile; they are looked at again
        for job in ours:
            finished = self._remove(job)
            if finished is not None:
                self._sink.accept(finished)
        gone = {job.id for job in jobs if job.id not in found}
        self._let_go([job for job in jobs if found.get(job.id) is None], gone, settled.failed, began)

    async def _count_again(self, connection: Connection, jobs: Sequence[Job]) -> None:
        """The limits of running jobs count them no more since their transaction has ended."""
        by_limits = defaultdict[tuple[str, ...], list[int]](list)
        for job in jobs:
            if job.id in self._limits:
                by_limits[self._limits[job.id]].append(job.id)
        schema, pool_id = self._context.schema, self._context.pool_id
        for limits, ids in by_limits.items():
            await count_again(connection, schema, pool_id=pool_id, job_ids=ids, limits=limits)

    def _let_go(
        self,
        jobs: Iterable[Job],
        gone: Collection[int] = (),
        failed: Collection[int] = (),
        began: float = 0.0,
    ) -> None:
        """These jobs have ended, or other workers have them; `gone`: the ids of those that have no row.

        `failed`: of those whose failure the batch has written.
        """
        committed: list[Finished] = []
        failures: list[Failure] = []
        taken: list[Job] = []
        for job in jobs:
            may_be_committed = job.id in self._may_be_committed
            finished = self._remove(job)
            if finished is None:
                taken.append(job)
            elif may_be_committed and job.id in gone and isinstance(finished.outcome, Completed):
                committed.append(finished)
            elif job.id in failed and isinstance(finished.outcome, Failed):
                committed.append(finished)
                failures.append(Failure(job.id, finished.outcome.message))
            else:
                self._sink.discarded_held(finished)
        if committed:
            self._sink.written_held(committed, began, Outcomes(failed=failures))
        if taken:
            self._context.owner.jobs_taken(taken)

    def _remove(self, job: Job) -> Finished | None:
        del self.jobs[job.id]
        self._may_be_committed.discard(job.id)
        self._retries.pop(job.id, None)
        self._limits.pop(job.id, None)
        return self._finished.pop(job.id, None)
