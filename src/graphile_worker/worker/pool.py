"""WorkerPool: builds the parts of one pool in the order of what they need, and starts and stops them.

`Shutdown` describes how a pool stops. ARCHITECTURE.md has a picture of the parts.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ..database.connections.connection import Pool
from ..database.connections.errors import is_schema_missing, translated_error
from ..errors import ConfigError, WorkerStoppedError
from ..errors.text import describe
from ..hooks import Hooks
from ..hooks.events import PoolCreated, PoolFatalError, PoolLoopBlocked, WorkerGetJobError
from ..metrics.minutes import StatisticsCounter
from ..recovery.held_batches import OpenBatch
from ..recovery.lease import Lease
from ..recovery.registry.pool_state import LoopBlockage
from ..recovery.registry.workers import add_worker_tasks
from ..tasks.services import WorkerServices
from ..tasks.task import AnyTask
from ..tasks.threads import TaskThreads
from ..values.clock import Clock
from ..values.job import Job
from .context import BackgroundTasks, PoolContext, poll, refresh_tasks
from .control.commands import Cancellations, OperatorCommands, PauseWatch
from .control.listener import Listener
from .control.watch import Announcements, ControlWatch, SchemaWatch
from .fetch.wide_queues import WideQueues
from .held.batches import HeldBatches
from .held.sessions import SpareConnections
from .lanes import Lanes, drain
from .plan import PoolPlan
from .run.execute import Executor
from .run.termination import LeakedTasks
from .run.watchdog import Blockage, LoopWatchdog, exit_process
from .session import SESSIONS_WITH_LISTENER, Session, Sessions, Statement
from .shutdown import EvictionCheck, Shutdown
from .write.recorder import HistoryRecorder, ProgressReporter
from .write.sink import Sink

FETCH_MARGIN = 30.0  # seconds plus three poll intervals, in which a fetch must succeed if slots are free

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.worker")


class WorkerPool:
    """Runs jobs until it is stopped; with `once`, until no job is ready."""

    def __init__(
        self,
        plan: PoolPlan,
        database: Pool,
        services: WorkerServices,
        hooks: Hooks,
        clock: Clock,
        spare: SpareConnections | None = None,
    ) -> None:
        """`spare`: connections of `database` for held batches; None to hold none."""
        self.id = f"{'otpool' if plan.once else 'pool'}-{secrets.token_hex(9)}"
        self._plan, self._services, self._hooks, self._tasks = plan, services, hooks, dict(plan.tasks)
        self._on_concurrency: list[Callable[[int], None]] = []
        self.lease = Lease(self._lease_lapsed)
        """Whether this pool may touch its jobs; heartbeats extend it."""
        self._context = context = PoolContext(
            pool_id=self.id, options=plan.options, events=hooks.events, clock=clock, owner=self
        )
        self._background = background = BackgroundTasks(self)
        self._sessions = sessions = Sessions(context, database, self.lease, reserved=plan.reserved)
        self._lanes = lanes = Lanes(context, sessions)

        retention_policy, redactors = plan.retention_policy, hooks.table.redactors
        recorder = None
        if retention_policy is not None:
            recorder = HistoryRecorder(context, sessions, retention_policy, redactors)
        self._recorder = recorder
        self._progress = ProgressReporter(context, sessions, lanes)
        self.statistics = StatisticsCounter(self._tasks) if plan.counts_statistics else None
        """What this pool has done and not yet reported."""
        hold = None
        if spare is not None and plan.may_hold:
            deciders, flags = hooks.table.on_recovery, plan.flags.description
            has_series = plan.may_hold_series
            hold = partial(
                HeldBatches, context, sessions, spare, lanes, deciders, flags=flags, has_series=has_series
            )
        self._sink = sink = Sink(context, sessions.write, lanes, hold, recorder, self.statistics, redactors)
        self._held_batches = sink.held_batches

        self._threads = threads = TaskThreads(plan.concurrency)
        self._executor = executor = Executor(
            self._tasks, services, threads, hooks, retention_policy, clock, plan.options.job_timeout
        )
        self._leaked_tasks = LeakedTasks(threads, plan.options.max_leaked_tasks, self)
        wide_queues = WideQueues(context, sessions, background, lanes, plan.tasks)
        lanes.build(plan, sink, executor, self._leaked_tasks, wide_queues)
        self._watchdog = LoopWatchdog(lanes, Executor.execute.__code__, self, exit_process)

        self._eviction_check = EvictionCheck(context, sessions, lanes, sink)
        self._pauses = pauses = PauseWatch(context, sessions, lanes)
        self._commands = commands = OperatorCommands(context, sessions, lanes, threads, background)
        cancellations = Cancellations(context, sessions, lanes, executor, sink, retention_policy)
        control = ControlWatch(context, background, pauses, cancellations, commands, wide_queues)
        self._control = control if plan.has_control else None
        announcements = Announcements(lanes, SchemaWatch(context, sessions, background), self._control)
        self._listener = make_listener(context, database, sessions.fetch, announcements, once=plan.once)
        self._shutdown = Shutdown(
            context, services, sessions, lanes, sink, background, self._listener, self._close
        )

    # -- starting ------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Register the tasks, and read what the first fetch needs."""
        self._context.events.emit(PoolCreated(pool_id=self.id))
        self._background.start(self._warm_up(), "second connection")  # first, because it takes a while
        await self._lanes.register_limits()
        await self._lanes.register()
        if self._recorder is not None:
            await self._recorder.prepare(self.task_identifiers)
            if self._recorder.is_on:
                self._services.progress.connect(self._progress.report)
        if self._control is not None:
            await self._control.look()

    async def _warm_up(self) -> None:
        """Open the session of the writes, and look in it whether there is a backlog."""
        with suppress(Exception):  # then it is opened by the first write
            await self._sessions.write.connect()
        if self._held_batches is not None:
            await self._held_batches.prepare()

    async def start(self) -> None:
        """Start to run jobs."""
        plan, clock, keep = self._plan, self._context.clock, self._background.keep
        self._sessions.started()
        self._sink.start()
        keep(self._sink.supervise, "sink supervisor")
        if self._listener is not None:
            self._listener.start()
        if not plan.once:
            keep(lambda: poll(self._lanes.poll, clock, plan.options.poll_interval), "poll")
            keep(lambda: refresh_tasks(self._lanes.register, clock, self.fetch_failed), "task names")
        if self._control is not None:
            keep(self._control.run, "control")
        self._lanes.start()
        self._watchdog.start()
        keep(self._die_with_slots, "end of slots")
        if plan.once:
            keep(self._drain, "once")

    async def _drain(self) -> None:
        await drain(self._context, self._lanes, self._sink)
        if not self.is_stopping:
            await self._pauses.report_left(self.task_identifiers)
        self._shutdown.begin("no job is left to run", quietly=True)

    async def _die_with_slots(self) -> None:
        await self._lanes.ended()
        if not self.is_stopping:
            errors = (lane.slots.error for lane in self._lanes if lane.slots.error is not None)
            self.die(next(errors, WorkerStoppedError("every slot of the worker has ended")), "run")

    # -- its tasks -----------------------------------------------------------------------------------------

    @property
    def task_identifiers(self) -> tuple[str, ...]:
        """The identifiers of its tasks."""
        return tuple(self._tasks)

    def set_tasks(self, tasks: Mapping[str, AnyTask]) -> None:
        """Fetch jobs of these tasks from now on; jobs of other tasks that are already locked still run."""
        if any(task.rules.limits and not self._lanes.has_limit(name) for name, task in tasks.items()):
            raise ConfigError("tasks with limits cannot be added to a running worker; restart it")
        self._tasks.update(tasks)
        self._executor.learn_options(tasks)
        self._lanes.set_tasks(tasks)

    async def add_tasks(self, tasks: Mapping[str, AnyTask]) -> None:
        """Run jobs of these tasks too, from now on; those without a lane of this pool in the first."""
        options, names = self._plan.options, list(tasks)
        for task in tasks.values():
            task._prepare()
        if self._plan.retention_policy is not None:
            retention = options.history.retention
            self._plan.retention_policy.add_tasks(
                {name: task.rules.keep.resolved(retention) for name, task in tasks.items() if task.rules.keep}
            )
        self.set_tasks({**self._tasks, **tasks})
        if self._lanes.is_started:
            await self.run_statement(
                lambda connection: add_worker_tasks(connection, options.schema_name, self.id, names)
            )
            if self._recorder is not None:
                await self._recorder.prepare(names)

    def before_rerun(self, function: Callable[[Job], Awaitable[None]]) -> None:
        """Call `function` before a job is run again after its worker died."""
        self._executor.before_rerun = function

    # -- its state -----------------------------------------------------------------------------------------

    @property
    def once(self) -> bool:
        """Whether it ends when no job is ready."""
        return self._plan.once

    @property
    def concurrency(self) -> int:
        """The number of slots of all lanes."""
        return sum(self._lanes.slots.values())

    @property
    def slots(self) -> dict[str, int]:
        """The number of slots of each lane; may be called from any thread."""
        return self._lanes.slots

    def set_concurrency(self, lane: str, concurrency: int) -> None:
        """Give a lane this many slots, until the pool ends; running jobs finish."""
        self._lanes.resize(lane, concurrency)
        self._threads.resize(self.concurrency)
        for function in self._on_concurrency:
            function(self.concurrency)

    def on_concurrency(self, function: Callable[[int], None]) -> None:
        """Call `function` with the number of slots when it has changed."""
        self._on_concurrency.append(function)

    @property
    def locked(self) -> list[int]:
        """The ids of the jobs that this pool has locked, running or prefetched."""
        return list(self._sessions.locked_jobs.jobs)

    @property
    def is_settled(self) -> bool:
        """Whether this pool certainly has no job."""
        locked_jobs = self._sessions.locked_jobs
        is_held = self._held_batches is not None and not self._held_batches.is_settled
        return not is_held and not locked_jobs.jobs and not locked_jobs.in_doubt and not locked_jobs.given_up

    @property
    def can_hold(self) -> bool:
        """Whether short jobs may be held at all."""
        return self._held_batches is not None

    def allow_held_batches(self, after: float = 0.0) -> None:
        """Hold short jobs from now on, or after this many seconds; not before it is called."""
        if self._held_batches is not None:
            self._held_batches.allow(after)

    def open_batches(self) -> Sequence[OpenBatch]:
        """The held batches; may be called from any thread."""
        return () if self._held_batches is None else self._held_batches.open_batches()

    def running_report(self) -> tuple[int, dict[int, float]]:
        """How many jobs the pool has, and since when each one runs; may be called from any thread."""
        held = 0 if self._held_batches is None else self._held_batches.count
        return self._sessions.locked_jobs.count + held, self._lanes.running_since

    @property
    def running(self) -> list[Job]:
        """The jobs that run now."""
        return self._lanes.running

    @property
    def is_listening(self) -> bool:
        """Whether notifications arrive; may be called from any thread."""
        return self._listener is not None and self._listener.is_working

    @property
    def seconds_since_answer(self) -> float:
        """How long ago the database answered a statement of this pool, or a heartbeat."""
        return min(time.monotonic() - self._sessions.answered_at, self.lease.age)

    @property
    def stalled_since(self) -> float | None:
        """When slots became free without a successful fetch since, if too long ago; by `time.monotonic`."""
        since = self._lanes.wanted_since
        allowed = 3 * self._plan.options.poll_interval + FETCH_MARGIN
        return None if since is None or time.monotonic() - since < allowed else since

    def blockage(self) -> LoopBlockage | None:
        """What blocks the event loop now; may be called from any thread."""
        current = self._watchdog.current
        return None if current is None else current.outline

    def longest_delay(self) -> float | None:
        """How late the event loop was at most since the last call, in seconds; None if no job ran."""
        return self._watchdog.take_delay()

    async def write_outcomes(self) -> None:
        """Wait until the outcomes of all jobs that have ended are committed."""
        await self._sink.flush()

    async def run_statement(self, statement: Statement[T]) -> T:
        """Run one statement, without retries, on a connection that tasks cannot occupy."""
        return await self._sessions.run(statement)

    # -- what its parts report: see `Owner` ----------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether it is shutting down or has ended."""
        return self._shutdown.has_begun

    @property
    def sees_cancelled_jobs(self) -> bool:
        """Whether it can read which jobs operators have cancelled."""
        return self._control is not None and self._control.is_on

    def fetch_failed(self, error: BaseException) -> None:
        """A fetch has failed and is tried again; not if the pool runs once."""
        self._context.events.emit(WorkerGetJobError(pool_id=self.id, error=error))
        if self.once:
            self.die(translated_error(error, schema=self._context.schema) or error, "getJob")
        elif is_schema_missing(error):
            self.schema_changed()

    def write_failed(self, error: BaseException) -> None:
        """A write has failed; its outcomes are kept and written again."""
        if is_schema_missing(error) and not self.once:
            self.schema_changed()

    def schema_changed(self) -> None:
        """Forget what was read from the schema: task ids, and that locked jobs exist."""
        for lane in self._lanes:
            lane.fetcher.forget()
        self.lease.doubt()

    def jobs_taken(self, jobs: list[Job]) -> None:
        """Other workers have taken these jobs, which run here."""
        self._eviction_check.evict(jobs)

    def _lease_lapsed(self) -> None:
        """Other workers may have declared this pool dead."""
        self._background.keep(self._eviction_check.run, "eviction check")

    def loop_blocked(self, blockage: Blockage) -> None:
        """Called in the watchdog's thread whenever it reports a blockage."""
        for function in self._hooks.table.loop_blocked:
            function(blockage.culprit, blockage.since)

    def loop_unblocked(self, blockage: Blockage, seconds: float) -> None:
        """Called on the loop, which was blocked for so long."""
        event = PoolLoopBlocked(pool_id=self.id, job=blockage.job, seconds=seconds, stack=blockage.stack)
        self._context.events.emit(event)

    def die(self, error: BaseException, action: str) -> None:
        """Shut down with this error: the pool cannot go on."""
        if self._shutdown.fatal is None:
            self._shutdown.fatal = error
            if not (self.once and action == "getJob"):
                self._context.events.emit(PoolFatalError(pool_id=self.id, error=error, action=action))
        self._shutdown.begin(f"the worker cannot continue: {describe(error)}")

    # -- stopping ------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Wait until the pool has ended; raises if it died of an error or tasks leaked."""
        await self._shutdown.wait()

    def begin_shutdown(self, message: str) -> None:
        """Begin a graceful shutdown; see `wait`."""
        self._shutdown.begin(message)

    def exit_if_blocked(self, seconds: float, signal_number: int) -> None:
        """End the process if its event loop is blocked this many seconds from now. Thread-safe."""
        self._watchdog.exit_by(seconds, signal_number)

    def force_shutdown(self, message: str) -> None:
        """Begin a forced shutdown, or turn a graceful one into it; see `wait`."""
        self._shutdown.force(message)

    async def discard(self) -> None:
        """End a pool that failed to start."""
        self._shutdown.begin("the worker could not start", quietly=True)
        with suppress(Exception):
            await self.wait()

    async def end_after_cancellation(self, message: str) -> None:
        """End by force after every task of the event loop was cancelled, including those of this pool."""
        self._executor.interruption = self._executor.interruption or f"Interrupted: {message}"
        if not await self._shutdown.must_resume():
            return
        self._sessions.reopen()  # the cancelled shutdown has closed them to others
        if self.lease.is_in_doubt:  # the eviction check is cancelled too, and writes wait for it
            self._lease_lapsed()
        await self._sink.restart()
        await self._shutdown.resume(message)

    async def _close(self) -> None:
        await self._progress.close()
        if self._recorder is not None:
            await self._recorder.close()
        self._sessions.refuse()
        self._watchdog.stop()
        await self._background.cancel()
        self._threads.close()
        for stuck in self._threads.running:
            logger.warning("task %s leaked: it runs in a thread, which cannot be ended", stuck)
        await self._sessions.close()


def make_listener(
    context: PoolContext, database: Pool, session: Session, notifications: Announcements, *, once: bool
) -> Listener | None:
    """None for a pool that ends when no job is ready, and for one that has too few connections."""
    size = database.get_max_size()
    if once:
        return None
    if size < SESSIONS_WITH_LISTENER:
        logger.warning(
            "the worker has %d connections; with fewer than %d it cannot listen and only polls",
            size,
            SESSIONS_WITH_LISTENER,
        )
        return None
    return Listener(context, database, session, notifications)
