"""Sink: writes outcomes back, many per statement, one statement at a time.

What finishes while a write is in flight forms the next batch: no timers, no delay when idle, large batches
when busy. With a batch delay (Node's knobs) outcomes of that kind wait so long after the first of them.

A write that fails because the database is away is kept and tried again until it is back; one that the
database refuses is taken apart by `batch_writer`. Nothing is reported before it was committed. While too much
is unwritten, no more jobs are taken.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from ..clock import Clock
from ..db.retry import Backoff, Delays
from ..errors import JobError
from ..hooks import Events
from ..job import Job
from ..outcome import Completed, Failed, Finished, Interrupted, queues_of
from ..queries.write import Continuation
from ..schema_name import SchemaName
from .batch_writer import BatchWriter, PendingBatch
from .session import Session
from .unwritten import LIGHT, MAX_BATCH, MAX_UNWRITTEN, MAX_UNWRITTEN_BYTES, batch_size, weight_of

PATIENCE = Delays(0.2, 5.0)
HURRIED_PAUSE = 0.25  # seconds between two tries while somebody waits for the end
MAX_DEATHS = 3  # of the loop without a write in between, before the worker gives up

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
        self._writer = BatchWriter(
            session,
            schema,
            events,
            pool_id=pool_id,
            interrupted_delay=interrupted_delay,
            on_error=self._write_failed,
            on_written=self._wrote,
        )
        self._clock = clock
        self._delays = (complete_delay or 0.0, fail_delay or 0.0)
        self._on_error = on_error
        self._on_written = on_written
        self._completed: list[Finished] = []
        self._failed: list[Finished] = []
        self._interrupted: list[Finished] = []
        self._in_flight: list[Finished] = []
        self._weight = 0  # of what is unwritten, as far as it is counted; see `unwritten`
        self._is_full = False
        self._deaths = 0
        self._wanted = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._is_awake = False  # whether the loop looks by itself for what is put here
        self._hurry = False
        self._closing = False
        self._freed: Callable[[], None] = lambda: None
        self._on_full: Callable[[], None] = lambda: None
        self._on_room: Callable[[], None] = lambda: None
        self._loop_task: asyncio.Task[None] | None = None
        self.count = 0
        """How many outcomes were put here so far."""
        self.trouble: BaseException | None = None
        """Why the last write failed, if it did."""

    def start(
        self,
        *,
        go_on: Callable[[], Continuation | None],
        adopt: Callable[[Sequence[Job]], None],
        freed: Callable[[], None],
        on_full: Callable[[], None] = lambda: None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to write.

        `go_on` says how freed queues may go on, `adopt` takes the jobs with which they do, and `freed` hears
        that there are queues which did not. `on_full` hears that too much is unwritten to take more jobs, and
        `on_room` that this is over.
        """
        self._writer.go_on, self._writer.adopt, self._freed = go_on, adopt, freed
        self._on_full, self._on_room = on_full, on_room
        self._start_loop()

    def _start_loop(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker sink")

    async def watch(self, on_fatal: Callable[[BaseException], None]) -> None:
        """Start writing again if the task that does it was cancelled or has failed."""
        while self._loop_task is not None:
            task = self._loop_task
            await asyncio.wait((task,))
            if self._closing:
                return
            if task is not self._loop_task:  # it was started again elsewhere
                continue
            error = None if task.cancelled() else task.exception()
            logger.error("writing outcomes was ended by %r; starting again", error or "a cancellation")
            self._deaths += 1
            if self._deaths > MAX_DEATHS:
                on_fatal(error or JobError("the task that writes outcomes is cancelled again and again"))
                return
            self._start_loop()
            self._wanted.set()

    async def revive(self) -> None:
        """Write on, if somebody has cancelled the task that does it."""
        task = self._loop_task
        if task is not None and (task.cancelling() or task.done()) and not self._closing:
            await asyncio.wait((task,))
            self._start_loop()
            self._wanted.set()

    def put(self, finished: Finished) -> None:
        """The outcome of one job; returns at once."""
        self.count += 1
        outcome = finished.outcome
        if type(outcome) is Completed:
            self._completed.append(finished)
            if len(finished.job.raw_payload) > LIGHT or len(self._completed) > MAX_UNWRITTEN:
                self._weigh(finished)
        elif isinstance(outcome, Failed):
            self._failed.append(finished)
            self._weigh(finished)
        else:
            self._interrupted.append(finished)
        if not self._is_awake:
            self._is_awake = True
            self._written.clear()
            self._wanted.set()

    def _weigh(self, finished: Finished) -> None:
        self._weight += weight_of(finished)
        is_too_much = self._weight > MAX_UNWRITTEN_BYTES or len(self._completed) > MAX_UNWRITTEN
        if is_too_much and not self._is_full:
            self._is_full = True
            self._wanted.set()  # delays do not count now
            self._on_full()

    def _leave(self, batch: Sequence[Finished]) -> None:
        """These outcomes are dealt with."""
        if self._weight:
            self._weight -= sum(map(weight_of, batch))
        if not self._is_full:
            return
        if self._weight <= MAX_UNWRITTEN_BYTES // 2 and len(self._completed) <= MAX_UNWRITTEN // 2:
            self._is_full = False
            self._on_room()

    @property
    def is_written(self) -> bool:
        """Whether everything that was put here is committed."""
        return self._written.is_set()

    @property
    def frees_queues(self) -> bool:
        """Whether a named queue will be free with the next write; not where writes are delayed or fail."""
        if self.trouble is not None or any(self._delays):
            return False
        return any(map(queues_of, (self._in_flight, self._completed, self._failed, self._interrupted)))

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
        self._closing = True
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
                    is_done = await self._write(batch)
                except Exception as error:
                    self._write_failed(error)
                    is_done = False
                self._tell_of_free_queues()
                if is_done:
                    backoff.reset()
                else:
                    await self._pause(backoff.next_delay())
            self._is_awake = False
            self._written.set()

    def _tell_of_free_queues(self) -> None:
        if self._writer.has_freed:
            self._writer.has_freed = False
            self._freed()

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
        while not self._hurry and not self._interrupted and not self._is_full:
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
            return self._next_interrupted()
        batch, self._completed = self._completed[:MAX_BATCH], self._completed[MAX_BATCH:]
        if self._failed:
            count = batch_size(self._failed, MAX_BATCH - len(batch))
            batch += self._failed[:count]
            self._failed = self._failed[count:]
        return batch

    def _next_interrupted(self) -> list[Finished]:
        """Those that go back with the same note."""
        note = _note(self._interrupted[0])
        batch: list[Finished] = []
        others: list[Finished] = []
        for finished in self._interrupted:
            is_like_first = len(batch) < MAX_BATCH and _note(finished) == note
            (batch if is_like_first else others).append(finished)
        self._interrupted = others
        return batch

    def _put_back(self, batch: Sequence[Finished]) -> None:
        """In front of what came since; it was counted before."""
        waiting = {Completed: self._completed, Failed: self._failed, Interrupted: self._interrupted}
        for kind, unwritten in waiting.items():
            unwritten[:0] = [finished for finished in batch if type(finished.outcome) is kind]

    async def _write(self, batch: list[Finished]) -> bool:
        """Write it; False if a part of it must wait. What is not dealt with is put back."""
        self._in_flight = batch
        pending = PendingBatch(batch)
        try:
            await self._writer.write(pending, self._leave)
        finally:
            self._in_flight = []
            if pending.parts or pending.kept:
                self._put_back(pending.left)
        return not pending.kept

    def _write_failed(self, error: BaseException) -> None:
        self.trouble = error
        self._on_error(error)

    def _wrote(self) -> None:
        self._deaths = 0
        self.trouble = None
        self._on_written()


def _note(finished: Finished) -> str:
    """What is written as the last error of a job that was interrupted."""
    return finished.outcome.message if isinstance(finished.outcome, Interrupted) else ""
