"""Sink: writes outcomes back, many per statement, one statement at a time.

What finishes while a write is in flight forms the next batch: no timers, no delay when idle, large batches
when busy. With a batch delay (Node's knobs) outcomes of that kind wait so long after the first of them. A
write that fails is kept and tried again until the database is back; nothing is reported before it was
committed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from ..clock import Clock
from ..db.retry import Backoff, Delays
from ..errors import JobInterruptedError
from ..hooks import Events
from ..hooks.events import JobCompleted, JobErrored, JobFailed, JobInterrupted, JobSucceeded
from ..job import Job
from ..queries.write_outcomes import Continuation, Failure, Outcomes, return_jobs, write_outcomes
from ..schema_name import SchemaName
from .execute import TAKEN_AWAY
from .outcome import Failed, Finished, Interrupted
from .session import Session

MAX_BATCH = 2000  # outcomes per statement
PATIENCE = Delays(0.2, 5.0)
HURRIED_PAUSE = 0.25  # seconds between two tries while somebody waits for the end

logger = logging.getLogger("graphile_worker.worker")


class Sink:
    """Takes finished jobs and sees to it that the database learns of them."""

    def __init__(
        self,
        session: Session,
        schema: SchemaName,
        events: Events,
        clock: Clock,
        *,
        pool_id: str,
        complete_delay: float | None = None,
        fail_delay: float | None = None,
        interrupted_delay: float = 0.0,
        on_error: Callable[[BaseException], None],
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_error` hears of each write that failed, `on_written` of each that did not."""
        self._session = session
        self._schema = schema
        self._events = events
        self._clock = clock
        self._pool_id = pool_id
        self._delays = (complete_delay or 0.0, fail_delay or 0.0)
        self._interrupted_delay = interrupted_delay
        self._on_error = on_error
        self._on_written = on_written
        self._completed: list[Finished] = []
        self._failed: list[Finished] = []
        self._interrupted: list[Finished] = []
        self._wanted = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._is_awake = False  # whether the loop looks by itself for what is put here
        self._hurry = False
        self._closing = False
        self._go_on: Callable[[], Continuation | None] = lambda: None
        self._adopt: Callable[[Sequence[Job]], None] = lambda jobs: None
        self._freed: Callable[[], None] = lambda: None
        self._loop_task: asyncio.Task[None] | None = None
        self.count = 0
        """How many outcomes were put here so far."""

    def start(
        self,
        *,
        go_on: Callable[[], Continuation | None],
        adopt: Callable[[Sequence[Job]], None],
        freed: Callable[[], None],
    ) -> None:
        """Begin to write.

        `go_on` says how freed queues may go on, `adopt` takes the jobs with which they do, and `freed` hears
        that there are queues which did not.
        """
        self._go_on, self._adopt, self._freed = go_on, adopt, freed
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker sink")

    async def revive(self) -> None:
        """Write on, if somebody has cancelled the task that does it."""
        if self._loop_task is not None and self._loop_task.cancelling():
            await asyncio.wait((self._loop_task,))
            self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker sink")
            self._wanted.set()

    def put(self, finished: Finished) -> None:
        """The outcome of one job; returns at once."""
        self.count += 1
        outcome = finished.outcome
        if outcome is None:
            self._completed.append(finished)
        elif isinstance(outcome, Failed):
            self._failed.append(finished)
        else:
            self._interrupted.append(finished)
        if not self._is_awake:
            self._is_awake = True
            self._written.clear()
            self._wanted.set()

    @property
    def is_written(self) -> bool:
        """Whether everything that was put here is committed."""
        return self._written.is_set()

    async def flush(self) -> None:
        """Until everything that was put here is committed; delays do not count."""
        self._hurry = True
        self._wanted.set()
        await self._written.wait()
        self._hurry = False

    async def close(self) -> None:
        """Flush and end."""
        await self.flush()
        self._closing = True
        self._wanted.set()
        if self._loop_task is not None:
            await asyncio.wait((self._loop_task,))

    def abandon(self) -> int:
        """Give up what could not be written; how many outcomes are lost with it."""
        if self._loop_task is not None:
            self._loop_task.cancel()
        return len(self._completed) + len(self._failed) + len(self._interrupted)

    # -- the loop ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(PATIENCE)
        while True:
            if not self._wanted.is_set():
                await self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            if any(self._delays) and not self._hurry:
                await self._gather()
            self._is_awake = True
            while batch := self._next_batch():
                try:
                    await self._write(batch)
                except BaseException as error:
                    self._put_back(batch)
                    if not isinstance(error, Exception):
                        raise
                    self._on_error(error)
                    await self._pause(backoff.next_delay())
                else:
                    self._on_written()
                    backoff.reset()
            self._is_awake = False
            self._written.set()

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try; not for long once somebody flushes, for then the worker is stopping."""
        try_again_at = self._clock.monotonic() + seconds
        while True:
            left = try_again_at - self._clock.monotonic()
            if left <= 0:
                return
            if self._hurry:
                await self._clock.sleep(min(left, HURRIED_PAUSE))
                return
            timer = asyncio.ensure_future(self._clock.sleep(left))
            self._wanted.clear()
            wanted = asyncio.ensure_future(self._wanted.wait())
            try:
                await asyncio.wait((timer, wanted), return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                wanted.cancel()

    async def _gather(self) -> None:
        """Wait the configured delay, unless something is to be written at once or somebody flushes."""
        ends = [math.inf, math.inf]  # of the delays of completed and of failed jobs, once there are some
        while not self._hurry and not self._interrupted:
            now = self._clock.monotonic()
            for kind, waiting in enumerate((self._completed, self._failed)):
                if waiting and ends[kind] == math.inf:
                    ends[kind] = now + self._delays[kind]
            left = min(ends) - now
            if left <= 0 or left == math.inf:
                return
            self._wanted.clear()
            self._is_awake = False
            timer = asyncio.ensure_future(self._clock.sleep(left))
            wanted = asyncio.ensure_future(self._wanted.wait())
            await asyncio.wait((timer, wanted), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            wanted.cancel()

    def _next_batch(self) -> list[Finished]:
        if self._interrupted:
            batch, self._interrupted = self._interrupted[:MAX_BATCH], self._interrupted[MAX_BATCH:]
            return batch
        batch, self._completed = self._completed[:MAX_BATCH], self._completed[MAX_BATCH:]
        room = MAX_BATCH - len(batch)
        batch += self._failed[:room]
        self._failed = self._failed[room:]
        return batch

    def _put_back(self, batch: list[Finished]) -> None:
        for finished in batch:
            self.count -= 1
            self.put(finished)

    async def _write(self, batch: list[Finished]) -> None:
        if not self._session.gate.is_open:
            await self._session.gate.passed()
        if self._session.ledger.lost:
            batch = self._drop_lost(batch)
            if not batch:
                return
        if isinstance(batch[0].outcome, Interrupted):
            await self._write_interrupted(batch)
            return
        outcomes = _outcomes(batch)
        go_on = self._go_on() if outcomes.queues else None
        jobs = await self._session.take(
            lambda connection: write_outcomes(connection, self._schema, self._pool_id, outcomes, go_on=go_on)
        )
        self._session.ledger.strike([finished.job for finished in batch])
        if jobs:
            self._adopt(jobs)
        if len(jobs) < len(outcomes.queues):
            self._freed()
        self._tell(batch)

    def _drop_lost(self, batch: list[Finished]) -> list[Finished]:
        """The batch without jobs that were taken from this pool: their outcome is not ours to write."""
        ledger = self._session.ledger
        kept = []
        for finished in batch:
            if not ledger.is_lost(finished.job):
                kept.append(finished)
                continue
            ledger.forget(finished.job)
            error = JobInterruptedError(TAKEN_AWAY)
            self._events.emit(JobInterrupted(worker_id=finished.worker_id, job=finished.job, error=error))
        return kept

    async def _write_interrupted(self, batch: list[Finished]) -> None:
        by_reason: dict[str, list[Finished]] = {}
        for finished in batch:
            by_reason.setdefault(_interruption(finished).message, []).append(finished)
        for reason, group in by_reason.items():
            jobs = [finished.job for finished in group]
            await self._session.run(
                lambda connection, jobs=jobs, reason=reason: return_jobs(  # type: ignore[misc]
                    connection,
                    self._schema,
                    self._pool_id,
                    jobs,
                    note=reason or None,
                    delay=self._interrupted_delay if reason else 0.0,  # without a reason it never ran
                )
            )
            self._session.ledger.strike(jobs)
        for finished in batch:
            error = _interruption(finished).error
            if str(error):  # one without a reason was never started
                self._events.emit(JobInterrupted(worker_id=finished.worker_id, job=finished.job, error=error))

    # -- after the commit ----------------------------------------------------------------------------------

    def _tell(self, batch: list[Finished]) -> None:
        events = self._events
        tell_success, tell_complete = events.wants(JobSucceeded), events.wants(JobCompleted)
        if not tell_success and not tell_complete:
            batch = [finished for finished in batch if finished.outcome is not None]
        for finished in batch:
            if isinstance(finished.outcome, Failed):
                self._tell_failure(finished, finished.outcome)
            elif tell_success:
                events.emit(
                    JobSucceeded(worker_id=finished.worker_id, job=finished.job, duration=finished.duration)
                )
            if tell_complete:
                error = None if finished.outcome is None else finished.outcome.error
                events.emit(JobCompleted(worker_id=finished.worker_id, job=finished.job, error=error))

    def _tell_failure(self, finished: Finished, outcome: Failed) -> None:
        job = finished.job
        kinds: list[type[JobErrored] | type[JobFailed]] = [JobErrored]
        if job.attempts >= job.max_attempts:
            kinds.append(JobFailed)
        for kind in kinds:
            if self._events.wants(kind):
                self._events.emit(
                    kind(
                        worker_id=finished.worker_id,
                        job=job,
                        error=outcome.error,
                        duration=finished.duration,
                        batch_job_errors=outcome.batch_errors,
                    )
                )


def _outcomes(batch: list[Finished]) -> Outcomes:
    outcomes = Outcomes(
        completed=[finished.job.id for finished in batch if finished.outcome is None],
        queues=[queue for finished in batch if (queue := finished.job.job_queue_id) is not None],
    )
    if len(outcomes.completed) < len(batch):
        for finished in batch:
            outcome = finished.outcome
            if isinstance(outcome, Failed):
                failure = Failure(finished.job.id, outcome.message, outcome.remaining_payload)
                outcomes.failed.append(failure)
    return outcomes


def _interruption(finished: Finished) -> Interrupted:
    assert isinstance(finished.outcome, Interrupted)  # noqa: S101 - told apart by the caller
    return finished.outcome
