"""What one pool does when operators ask for something; `ControlWatch` learns what they ask for.

OperatorCommands: to stop, to pause, to run another number of jobs at once, or where a job is. PauseWatch: to
start no jobs of some tasks and queues. Cancellations: to end jobs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ...database.connections.connection import Connection
from ...database.connections.errors import explained, sqlstate_of
from ...database.connections.retry import Delays, is_retryable, with_retries
from ...database.connections.sqlstates import UNAVAILABLE_TABLE
from ...database.statements.control import (
    EVERY_TASK,
    ConcurrencyAnswer,
    ControlState,
    StackAnswer,
    answer_request,
    answer_with_slots,
    paused_jobs,
    read_control_state,
)
from ...database.statements.pauses import end_due_pauses
from ...errors import JobInterruptedError
from ...errors.text import is_a
from ...hooks.events import PoolPaused, PoolResumed
from ...recovery.cancelled_jobs import end_leftover_jobs
from ...tasks.call import label_of
from ...tasks.helpers import current_helpers
from ...tasks.stacks import TaskStack, coroutine_stack, thread_stack
from ...tasks.threads import TaskThreads
from ...values.concurrency import MAIN
from ...values.job import Job, Pause
from ...values.outcome import Cancelled, Failed, Finished, Outcome
from ...values.retention import RetentionPolicy
from ...values.text import count
from ..context import BackgroundTasks, FailureLog, PoolContext
from ..lanes import Lanes
from ..run.execute import Executor
from ..run.outcomes import EndReason
from ..run.termination import Slot
from ..session import Sessions
from ..write.sink import Sink

RETRY_DELAYS = Delays(0.2, 5.0)

logger = logging.getLogger("graphile_worker.worker")


class OperatorCommands:
    """Obeys the requests of a state. `PauseWatch` keeps a paused pool from fetching."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        lanes: Lanes,
        threads: TaskThreads,
        background: BackgroundTasks,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._threads = threads
        self._background = background
        self._known: set[int] = set()  # requests that were answered, or are being answered
        self._writes_slots = asyncio.Lock()
        self._has_table = True
        self.is_paused = False

    async def read(self) -> ControlState:
        """What operators ask for; without requests if this role may not read them."""
        schema, pool_id, run = self._context.schema, self._context.pool_id, self._sessions.run

        def look(connection: Connection) -> Awaitable[ControlState]:
            return read_control_state(connection, schema, pool_id, has_requests=self._has_table)

        try:
            return await run(look)
        except Exception as error:
            if not self._has_table or sqlstate_of(error) not in UNAVAILABLE_TABLE:
                raise
        self._has_table = False
        state = await run(look)
        logger.info(
            "this worker cannot be stopped, paused, resized or inspected from outside: "
            "its role may not use the table of requests"
        )
        return state

    def apply(self, state: ControlState) -> None:
        """Call it whenever the state was read, also for the same requests."""
        if state.stop is not None:
            self._context.owner.begin_shutdown(f"asked to stop: {state.stop}")
        if state.is_paused != self.is_paused:
            self.is_paused = state.is_paused
            logger.info(
                "paused: an operator asked this worker to fetch no more jobs"
                if state.is_paused
                else "resumed: this worker fetches jobs again"
            )
        for request_id, job_id in state.stacks.items():
            if request_id not in self._known:
                self._background.start(self._send(request_id, job_id), "stack of a job")
        for request_id, (lane, concurrency) in state.concurrency.items():
            if request_id not in self._known:
                answer = self._set_concurrency(lane, concurrency)
                self._background.start(self._tell_slots(request_id, answer), "concurrency")
        self._known = {*state.stacks, *state.concurrency}

    def _set_concurrency(self, lane: str, concurrency: int) -> ConcurrencyAnswer:
        slots = self._lanes.slots
        if lane not in slots or self._context.owner.is_stopping:
            return ConcurrencyAnswer(lanes=list(slots))
        self._context.owner.set_concurrency(lane, concurrency)
        of_lane = "" if lane == MAIN else f" of the lane {lane!r}"
        logger.info("an operator changed the concurrency%s from %d to %d", of_lane, slots[lane], concurrency)
        return ConcurrencyAnswer(before=slots[lane], lanes=list(slots))

    async def _tell_slots(self, request_id: int, answer: ConcurrencyAnswer) -> None:
        """Write the number into the row of the pool, however long that takes: others rely on it."""
        schema, pool_id, lanes = self._context.schema, self._context.pool_id, self._lanes
        async with self._writes_slots:
            await with_retries(
                lambda: self._sessions.run(
                    lambda connection: answer_with_slots(
                        connection, schema, request_id, answer, pool_id=pool_id, slots=lanes.slots
                    )
                ),
                clock=self._context.clock,
                max_attempts=sys.maxsize,
                fallback=RETRY_DELAYS,
            )

    async def _send(self, request_id: int, job_id: int) -> None:
        schema = self._context.schema
        try:
            answer = await self.stack_of(job_id)
            await self._sessions.run(
                lambda connection: answer_request(connection, schema, request_id, answer)
            )
        except Exception as error:  # the one who asked is told that there was no answer
            logger.debug("the stack of job %d could not be sent: %s", job_id, explained(error))

    async def stack_of(self, job_id: int) -> StackAnswer:
        """Where a job is now."""
        slot = self._lanes.slot_of(job_id)
        if slot is None or slot.job is None or slot.task is None:
            return StackAnswer(kind="not running")
        name, seconds = slot.job.task_identifier, time.monotonic() - slot.started
        call = _call_of(slot)
        found = await _stack_elsewhere(call) if call is not None and call.place is not None else None
        if found is None:
            thread = self._threads.thread_of(label_of(name, job_id))
            if thread is not None:
                found = TaskStack("thread", thread_stack(thread))
            else:
                found = TaskStack("coroutine", coroutine_stack(slot.task))
        return StackAnswer(
            kind=found.kind,
            stack=found.text,
            running_for=seconds,
            task_identifier=name,
            place=None if call is None else call.place,
        )


def _call_of(slot: Slot) -> Any:
    """The `TaskCall` of a job that an executor runs; None for others."""
    helpers = None if slot.context is None else slot.context.get(current_helpers)
    return None if helpers is None else helpers._call


async def _stack_elsewhere(call: Any) -> TaskStack | None:
    """The stack of a job that an executor runs; None if the executor cannot know it."""
    if call.ask_stack is None:
        return None
    found: TaskStack | None = await call.ask_stack()
    return found or TaskStack("thread", "  (no answer: perhaps C code keeps the interpreter to itself)")


class PauseWatch:
    """Keeps paused tasks and queues from starting jobs.

    The fetchers leave paused tasks out. Jobs that were locked before the pool learnt of a pause, and have not
    been started, are returned.
    """

    def __init__(self, context: PoolContext, sessions: Sessions, lanes: Lanes) -> None:
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._paused_queues: frozenset[int] = frozenset()
        self._is_refused = False
        self.pauses: frozenset[Pause] = frozenset()
        self.tasks: frozenset[str] = frozenset()
        """Identifiers of paused tasks; `EVERY_TASK` among them if all are."""

    def apply(self, state: ControlState) -> None:
        """Obey the pauses of this state, and tell observers what has changed."""
        is_known = state.pauses == self.pauses and state.paused_queues == self._paused_queues
        if is_known and state.paused == self.tasks:
            return
        last, self.pauses, self._paused_queues = self.pauses, state.pauses, state.paused_queues
        tasks = self.tasks = state.paused
        is_paused = _paused_by(tasks, state.paused_queues)
        for lane in self._lanes:
            lane.fetcher.pause(tasks)
            lane.source.withhold(is_paused)
        self._tell(last)

    async def end_due_pauses(self) -> bool:
        """Resume queues whose pause is over; whether that worked. A refusal is logged once."""
        try:
            await self._sessions.run(lambda connection: end_due_pauses(connection, self._context.schema))
        except Exception as error:
            if sqlstate_of(error) is None:
                raise  # the connection is lost; others report that
            level = logging.DEBUG if self._is_refused or is_retryable(error) else logging.WARNING
            logger.log(level, "queues whose pause is over cannot be resumed: %s; retrying", explained(error))
            self._is_refused = self._is_refused or level == logging.WARNING
            return False
        self._is_refused = False
        return True

    async def report_left(self, identifiers: Sequence[str]) -> None:
        """Log which ready jobs of these tasks are left because they are paused."""
        if not self.pauses:
            return
        context, paused = self._context, self.tasks
        left = await self._sessions.run(
            lambda connection: paused_jobs(
                connection, context.schema, tasks=identifiers, paused=paused, now=context.now()
            )
        )
        for pause, jobs in left:
            verb = "was" if jobs == 1 else "were"
            logger.info("%s of the paused %s %s left", count(jobs, "job"), pause.what, verb)

    def _tell(self, last: frozenset[Pause]) -> None:
        pool_id, emit = self._context.pool_id, self._context.events.emit
        known = {_target(pause) for pause in self.pauses}
        for pause in sorted(last - self.pauses, key=_target):
            if _target(pause) not in known:  # otherwise its terms have changed
                emit(PoolResumed(pool_id=pool_id, pause=pause))
        for pause in sorted(self.pauses - last, key=_target):
            emit(PoolPaused(pool_id=pool_id, pause=pause))


def _target(pause: Pause) -> tuple[str, str]:
    return pause.task_identifier or "", pause.queue_name or ""


def _paused_by(tasks: frozenset[str], queues: frozenset[int]) -> Callable[[Job], bool] | None:
    """Whether a job must not be started; None if all may."""
    if EVERY_TASK in tasks:
        return lambda job: True
    if tasks or queues:
        return lambda job: job.task_identifier in tasks or job.job_queue_id in queues
    return None


class CancelledByRequest(EndReason, frozen=True):
    """An operator has cancelled the job."""

    rank = 2
    why: str | None = None

    @property
    def reason(self) -> str:
        return f"the job was cancelled: {self.why}" if self.why else "the job was cancelled"

    def outcome(self, own: Outcome | None, error: BaseException | None) -> Outcome:
        is_own_error = isinstance(own, Failed) and error is not None and not is_a(error, JobInterruptedError)
        return Cancelled(self.why, error if is_own_error else None)


class Cancellations:
    """Ends the jobs of a pool that operators have cancelled.

    A prefetched job is dropped before it starts. A running one is ended by its slot; its outcome is
    `Cancelled` unless the task completes in spite of it. Either way the sink deletes the job.
    """

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        lanes: Lanes,
        executor: Executor,
        sink: Sink,
        retention_policy: RetentionPolicy | None,
    ) -> None:
        """`retention_policy`: which finished jobs are kept; None if there is no history."""
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._executor = executor
        self._sink = sink
        self._retention_policy = retention_policy
        self._failures = FailureLog(
            context,
            "leftover cancelled jobs could not be ended: %s; retrying",
            "leftover cancelled jobs are ended",
        )
        self._missed: set[int] = set()

    def end(self, cancelled: Mapping[int, str | None]) -> bool:
        """End these jobs; call it whenever the state was read, also for the same ones.

        Whether to look once more soon: the database may know before this pool that a fetch has locked a job.
        """
        for job in self._lanes.drop(lambda job: job.id in cancelled):
            outcome = self._executor.settled(job, Cancelled(cancelled[job.id], has_started=False))
            self._sink.put(Finished(job, outcome, self._context.pool_id, 0.0))
        for job_id, reason in cancelled.items():
            self._lanes.end_job(job_id, CancelledByRequest(reason), self._context.options.timeout_grace)
        known, missed = self._missed, cancelled.keys() - self._sessions.locked_jobs.jobs.keys()
        self._missed = missed
        return bool(missed - known)

    async def end_leftovers(self) -> None:
        """End what no worker will end by itself."""
        schema, retention_policy = self._context.schema, self._retention_policy
        try:
            await self._sessions.run(
                lambda connection: end_leftover_jobs(connection, schema, retention_policy)
            )
        except Exception as error:
            self._failures.failed(error)
        else:
            self._failures.succeeded()
