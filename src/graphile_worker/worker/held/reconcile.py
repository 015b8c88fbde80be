"""BatchReconciler: finds out what has become of held batches whose transaction was lost.

The connection may break before the commit, or before its answer. Outcomes are kept in memory until the
database is back. Then each job that is still as the batch found it is locked in the ordinary way; it goes on
running here, or the sink writes its outcome. A job that another worker has taken in between is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec

from ...database.connections.connection import Connection
from ...database.connections.retry import Backoff, Delays, is_refusal, may_pass
from ...database.statements.held_batches import Settled, settle_jobs
from ...database.statements.write_plan import Failure, Outcomes
from ...hooks.faults import report
from ...values.job import Job
from ...values.outcome import Completed, Failed, Finished
from ..context import PoolContext
from ..session import Session

RETRY_DELAYS = Delays(0.05, 1.0)

NOTHING_WRITTEN = Outcomes()

logger = logging.getLogger("graphile_worker.worker")


class HeldFailures(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of held jobs, sorted by whether the end of their batch writes them."""

    finished: Sequence[Finished] = ()
    """Failures that are retried, and leave nothing in the history."""
    outcomes: Outcomes = NOTHING_WRITTEN
    """The same as rows."""
    others: Sequence[Finished] = ()
    kept: int = 0
    """How many of these would be written too if their error were not kept; at most the limit of one kind."""


class HeldOutcomes(Protocol):
    """The `Sink`, as held batches see it: it writes what they do not write, and counts what they do."""

    accepted: int

    @property
    def not_deleted(self) -> int: ...
    def accept(self, finished: Finished) -> None: ...
    def held_failures(self, finished: Sequence[Finished]) -> HeldFailures: ...
    def written_held(self, batch: Sequence[Finished], began: float, outcomes: Outcomes) -> None: ...
    def discarded_held(self, finished: Finished) -> None: ...
    def held_write_failed(self, error: BaseException) -> None: ...


class BatchReconciler:
    """The jobs of lost batches until they are settled."""

    def __init__(self, context: PoolContext, session: Session, sink: HeldOutcomes) -> None:
        self._context = context
        self._session = session
        self._sink = sink
        self.jobs: dict[int, Job] = {}
        """By id. Some still run."""
        self._finished: dict[int, Finished] = {}
        self._may_be_committed: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_abandoned = False
        self._one_at_a_time = False  # the database has refused some job
        self._session.locked_jobs.unsettled = self.jobs

    @property
    def is_busy(self) -> bool:
        """Whether a job is not settled."""
        return bool(self.jobs)

    def add(self, finished: Sequence[Finished], running: Sequence[Job], *, may_be_committed: bool) -> None:
        """Settle these jobs soon; `may_be_committed`: the commit was sent, and no answer came."""
        if self._is_abandoned:
            return
        for each in finished:
            self.jobs[each.job.id] = each.job
            self._finished[each.job.id] = each
        for job in running:
            self.jobs[job.id] = job
        if may_be_committed:
            self._may_be_committed.update(each.job.id for each in finished)
        self._start()

    def take(self, finished: Finished) -> bool:
        """Accept the outcome of a job that is not settled; False if there is no such job."""
        if self.jobs.get(finished.job.id) is not finished.job:
            return False
        self._finished[finished.job.id] = finished
        return True

    async def settled(self) -> None:
        """Wait until every job is settled."""
        while self.jobs:
            await asyncio.wait((self._start(),))

    def abandon(self) -> None:
        """Settle nothing more."""
        self._is_abandoned = True
        self.jobs.clear()
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
        if self.jobs and not self._is_abandoned:
            asyncio.get_running_loop().call_later(RETRY_DELAYS.min_delay, self._start_if_needed)

    def _start_if_needed(self) -> None:
        if self.jobs and not self._is_abandoned:
            self._start()

    async def _run(self) -> None:
        backoff = Backoff(RETRY_DELAYS)
        while self.jobs:
            jobs = list(self.jobs.values())
            for some in [[job] for job in jobs] if self._one_at_a_time else [jobs]:
                try:
                    await self._settle(some)
                except Exception as error:
                    self._failed(some, error)
                    if not is_refusal(error):
                        break
            if self.jobs:
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
        settled = Settled({}, frozenset())
        began = time.monotonic()
        context = self._context

        async def statement(connection: Connection) -> Sequence[Job]:
            nonlocal settled
            settled = await settle_jobs(connection, context.schema, context.pool_id, jobs, context.now())
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
        self._let_go([job for job in jobs if found.get(job.id) is None], gone, settled.maybe_failed, began)

    def _let_go(
        self,
        jobs: Iterable[Job],
        gone: Collection[int] = (),
        failed: Collection[int] = (),
        began: float = 0.0,
    ) -> None:
        """These jobs have ended, or other workers have them; `gone`: the ids of those that have no row.

        `failed`: of those whose row is as the batch would have left it, had it been committed.
        """
        committed: list[Finished] = []
        failures: list[Failure] = []
        taken: list[Job] = []
        for job in jobs:
            may_be_committed = job.id in self._may_be_committed
            finished = self._remove(job)
            if finished is None:
                taken.append(job)
            elif may_be_committed and job.id in gone and type(finished.outcome) is Completed:
                committed.append(finished)
            elif may_be_committed and job.id in failed and isinstance(finished.outcome, Failed):
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
        return self._finished.pop(job.id, None)
