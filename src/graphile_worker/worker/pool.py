"""WorkerPool: composes the source, slots, sink and listener of one pool, and starts and stops them.

The parts know nothing of each other beyond what is wired here. `shutdown` describes how a pool stops.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from ..clock import Clock
from ..db.connection import Pool
from ..db.errors import is_schema_missing, translated_error
from ..error_text import describe
from ..errors import ConfigError, WorkerStoppedError
from ..hooks import Hooks
from ..hooks.events import PoolCreated, PoolFatalError, PoolLoopBlocked, WorkerGetJobError
from ..job import Job
from ..migrate.state import SchemaState, read_state
from ..options import WorkerOptions
from ..outcome import Finished
from ..queries.control import ControlState, paused_jobs
from ..queries.limits import register_limits
from ..queries.names import register_tasks
from ..queries.ping import ping
from ..queries.requests import StackAnswer, answer_stack
from ..recovery.blocked_batches import OpenBatch
from ..recovery.blocked_loop import LoopBlockage
from ..recovery.cancelled_jobs import end_leftover_jobs
from ..recovery.lease import Lease
from ..recovery.orphaned_jobs import gone_jobs, still_ours
from ..recovery.worker_rows import add_worker_tasks
from ..retention import RetentionPolicy
from ..statistics.counter import StatisticsCounter
from ..tasks.services import WorkerServices
from ..tasks.task import AnyTask
from ..tasks.threads import TaskThreads
from ..text import count
from .background import BackgroundTasks, poll, refresh_tasks
from .control.cancellations import Cancellations
from .control.commands import OperatorCommands
from .control.pausing import PauseWatch
from .control.schema_watch import SchemaWatch
from .control.watch import ControlWatch
from .eviction import EvictionCheck
from .fetch.fetcher import FlagSource
from .fetch.limited import LimitedFetcher, ReadyTasks
from .fetch.listener import Listener
from .fetch.wide_queues import WideQueues
from .held.sessions import SpareConnections
from .lane_plan import LanePlan
from .lanes import (
    AllSlots,
    AllSources,
    LaneContinuation,
    PoolLane,
    choose_fetcher,
    choose_source,
    drain,
)
from .make_held_batches import make_held_batches
from .run.execute import Executor
from .run.slots import Slots
from .run.termination import LeakedTasks
from .run.watchdog import Blockage, LoopWatchdog, exit_process
from .session.session import FailureLog, Sessions, Statement
from .shutdown import Shutdown
from .write.error_counts import ErrorCounts
from .write.progress import ProgressReporter
from .write.recorder import HistoryRecorder
from .write.sink import Sink

SESSIONS_WITH_LISTENER = 3
LOOK_AGAIN_AFTER = 0.2  # seconds
FETCH_MARGIN = 30.0  # seconds plus three poll intervals, in which a fetch must succeed if slots are free

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.worker")


class WorkerPool:
    """Runs jobs until it is stopped; with `once`, until no job is ready."""

    def __init__(
        self,
        options: WorkerOptions,
        pool: Pool,
        tasks: Mapping[str, AnyTask],
        services: WorkerServices,
        hooks: Hooks,
        clock: Clock,
        *,
        lanes: Sequence[LanePlan],
        forbidden_flags: FlagSource = None,
        once: bool = False,
        reserved: int = 0,
        has_queue_indexes: bool = True,
        retention_policy: RetentionPolicy | None = None,
        counts_statistics: bool = False,
        has_control: bool = False,
        spare: SpareConnections | None = None,
    ) -> None:
        """`lanes`: see `plan_lanes`; every task is in one of them.

        `reserved`: connections of `pool` that are in use elsewhere while this pool is alive.

        `retention_policy`: which finished jobs are kept; None if there is no history. `has_control`: whether
        the tables for pauses and cancelled jobs exist. `spare`: connections for held batches; None to hold
        none.
        """
        self.id = f"{'otpool' if once else 'pool'}-{secrets.token_hex(9)}"
        self.once = once
        self._options = options
        self._database = pool
        self._events = hooks.events
        self._on_loop_blocked = hooks._loop_blocked
        self.on_blocked: Callable[[], None] = lambda: None
        """Called in another thread when the event loop is blocked."""
        self._clock = clock
        self._identifiers = tuple(tasks)
        self._tasks = dict(tasks)
        self.concurrency = sum(lane.concurrency for lane in lanes)
        """The number of slots of all lanes."""
        self._threads = TaskThreads(self.concurrency)
        self._background = BackgroundTasks(
            lambda error: self._die(error, "run"), is_over=lambda: self._shutdown.has_begun
        )
        self._is_closed = False
        schema = options.schema_name
        self.lease = Lease(self._lease_lapsed)
        """Whether this pool may touch its jobs; heartbeats extend it."""
        self._sessions = Sessions(
            pool, schema, self.id, self.lease, prepared_statements=options.prepared_statements
        )
        self._fetch_session = self._sessions.open()
        # A small pool keeps one connection for tasks, so fetches and writes share a session.
        is_small = pool.get_max_size() < SESSIONS_WITH_LISTENER + 1 + reserved
        self._write_session = self._fetch_session if is_small else self._sessions.open()
        self._write_failures = FailureLog(
            clock,
            schema,
            "outcomes could not be written and are kept: %s",
            "outcomes are written again",
            level=logging.ERROR,
        )
        self._forbidden_flags = forbidden_flags
        self._has_queue_indexes = has_queue_indexes
        self._retention_policy = retention_policy
        self._recorder = (
            HistoryRecorder(
                retention_policy,
                schema,
                error_retention=options.error_retention,
                version=options.app_version,
                redactors=hooks._redactors,
            )
            if retention_policy is not None
            else None
        )
        self.statistics = StatisticsCounter(self._tasks) if counts_statistics else None
        """What this pool has done and not yet reported."""
        self._sink = Sink(
            self._write_session,
            schema,
            self._events,
            clock,
            pool_id=self.id,
            complete_delay=options.complete_job_batch_delay,
            fail_delay=options.fail_job_batch_delay,
            interrupted_delay=options.interrupted_job_retry_delay,
            on_error=self._write_failed,
            on_written=self._write_failures.succeeded,
            recorder=self._recorder,
            statistics=self.statistics,
            redactors=hooks._redactors,
            may_be_cancelled=self._may_be_cancelled,
        )
        self._held_batches = make_held_batches(
            options,
            lanes,
            forbidden_flags,
            spare,
            self._sessions,
            self._fetch_session,
            self._sink,
            clock,
            pool_id=self.id,
            on_taken=lambda jobs: self._eviction_check.evict(jobs),
            on_error=self._write_failed,
        )
        self._lanes = [self._make_lane(plan) for plan in lanes]
        self._limited_lanes = {
            name: lane for lane in self._lanes if lane.plan.limits for name in lane.plan.tasks
        }
        self._ask_for_limited_lanes_at_once()
        self._source = AllSources(self._lanes)
        if self._held_batches is not None:
            self._sink.hold_with(self._held_batches)
            self._held_batches.drop = self._source.drop
            self._held_batches.wake = self._jobs_freed
            self._held_batches.deciders = hooks._on_recovery
        self._services = services
        self._progress: ProgressReporter | None = None
        self._executor = Executor(
            self._tasks, services, self._threads, hooks, retention_policy, clock, options.job_timeout
        )
        self._leaked_tasks = LeakedTasks(
            self._threads, options.max_leaked_tasks, lambda error: self._die(error, "run")
        )
        self._slots: AllSlots | None = None
        self._watchdog: LoopWatchdog | None = None
        self._wide_queues = WideQueues(
            self.run_statement,
            schema,
            self._background,
            [lane.fetcher for lane in self._lanes],
            {name: task._queue_width for name, task in tasks.items() if task._queue_width is not None},
            lambda: self._sessions.locked_jobs.jobs.values(),
            lambda: self._source.pulse(),
        )
        self._pausing = PauseWatch(
            self.id, self._events, [(lane.fetcher, lane.source) for lane in self._lanes]
        )
        self._requests = OperatorCommands(
            self._threads,
            self._background,
            stop=lambda reason: self.begin_shutdown(f"asked to stop: {reason}"),
            answer=self._answer_stack,
        )
        self._control = (
            ControlWatch(self._read_control_state, self._apply_control, is_listening=self._is_listening)
            if has_control
            else None
        )
        self._cancellations = Cancellations(
            self.id,
            locked_jobs=self._sessions.locked_jobs,
            source=self._source,
            executor=self._executor,
            put=self._sink.put,
            look_again=self._look_soon,
            grace=options.timeout_grace,
            end_leftovers=lambda: self.run_statement(
                lambda connection: end_leftover_jobs(connection, schema, retention_policy)
            ),
        )
        self._schema_watch = SchemaWatch(
            schema,
            self._read_schema_state,
            clock,
            self._background,
            on_changed=self._distrust_schema,
            on_too_new=lambda error: self._die(error, "migrate"),
        )
        self._eviction_check = EvictionCheck(
            self.id,
            self._events,
            clock,
            sessions=self._sessions,
            source=self._source,
            read_locked=self._read_locked,
            read_gone=self._read_gone,
            maybe_deleted=self._sink.maybe_deleted,
        )
        self._shutdown = Shutdown(
            self.id,
            options,
            self._events,
            clock,
            services=services,
            sessions=self._sessions,
            source=self._source,
            sink=self._sink,
            cancel_background=self._background.cancel,
            close=self._close,
        )

    def _make_lane(self, plan: LanePlan) -> PoolLane:
        which = "jobs" if plan.is_main else f"jobs of the lane {plan.name!r}"
        failures = FailureLog(
            self._clock,
            self._options.schema_name,
            f"{which} cannot be fetched: %s; trying again",
            f"{which} are fetched again",
        )
        fetcher = choose_fetcher(plan)(
            self._fetch_session,
            self._options.schema_name,
            self._events,
            pool_id=self.id,
            identifiers=plan.tasks,
            forbidden_flags=self._forbidden_flags,
            clock=self._clock,
            use_local_time=self._options.use_local_time,
            poll_interval=self._options.poll_interval,
            has_queue_indexes=self._has_queue_indexes,
            failures=None if self.once else failures,
            held_batches=self._held_batches if plan.may_hold else None,
        )
        source = choose_source(
            self._options,
            plan,
            fetcher,
            self._events,
            self._clock,
            on_error=self._fetch_failed,
            frees_queues=lambda: self._sink.frees_queues,
        )
        return PoolLane(plan, fetcher, source)

    def _ask_for_limited_lanes_at_once(self) -> None:
        fetchers = [lane.fetcher for lane in self._lanes if isinstance(lane.fetcher, LimitedFetcher)]
        if len(fetchers) > 1:  # for one alone it would only be another statement
            ready = ReadyTasks(
                self._fetch_session,
                self._options.schema_name,
                self._events,
                pool_id=self.id,
                forbidden_flags=None,
                clock=self._clock,
                use_local_time=self._options.use_local_time,
                poll_interval=self._options.poll_interval,
            )
            for fetcher in fetchers:
                fetcher.ask_first(ready)

    # -- starting ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register the tasks and start to run jobs."""
        self._events.emit(PoolCreated(pool_id=self.id))
        if self._held_batches is not None:  # first, because it takes a while
            self._background.start(self._held_batches.prepare(self.run_statement), "held batches")
        await self._register_limits()
        await self._register()
        if (recorder := self._recorder) is not None:
            await self.run_statement(lambda connection: recorder.prepare(connection, self._identifiers))
            if recorder.is_on:
                if self._options.error_retention > 0:
                    recorder.counts = ErrorCounts(
                        self.run_statement,
                        self._options.schema_name,
                        version=recorder.version,
                        redactors=recorder.redactors,
                    )
                self._progress = ProgressReporter(
                    self.run_statement, self._options.schema_name, self._clock, self._running_ids
                )
                self._services.progress.receive = self._progress.report
        if self._control is not None:
            await self._control.look()
        keep = self._background.keep
        slots = self._slots = self._shutdown.slots = self._eviction_check.slots = AllSlots(
            [self._make_slots(lane) for lane in self._lanes]
        )
        self._cancellations.slots = self._requests.slots = slots
        if any(lane.plan.limits for lane in self._lanes):
            self._sink.on_ended = self._limited_jobs_ended
        self._sink.start(
            LaneContinuation(self._lanes, self._sink.put),
            on_full=slots.pause,
            on_room=slots.resume,
        )
        keep(lambda: self._sink.supervise(lambda error: self._die(error, "write")), "sink supervisor")
        if not self.once:
            self._start_listener()
            keep(lambda: poll(self._source.poll, self._clock, self._options.poll_interval), "poll")
            keep(lambda: refresh_tasks(self._register, self._clock, self._fetch_failed), "task names")
        if self._control is not None:
            keep(self._control.run, "control")
        slots.start()
        self._watchdog = LoopWatchdog(
            slots,
            Executor.execute.__code__,
            on_blocked=self._loop_is_blocked,
            on_over=self._loop_was_blocked,
            exit_process=exit_process,
        )
        self._watchdog.start()
        keep(lambda: self._die_with_slots(slots), "end of slots")
        for lane in self._lanes:
            if lane.slots is not None:
                lane.source.start(lane.slots, lambda error: self._die(error, "getJob"))
        if self.once:
            keep(lambda: self._drain(slots), "once")

    async def _register_limits(self, *, only_missing: bool = False) -> None:
        """Write the bounds of this worker's limits: the last start wins."""
        limits = {limit: tasks for lane in self._lanes for limit, tasks in lane.plan.limits.items()}
        if limits:
            schema = self._options.schema_name
            await self.run_statement(
                lambda connection: register_limits(connection, schema, limits, only_missing=only_missing)
            )

    def _make_slots(self, lane: PoolLane) -> Slots:
        lane.slots = Slots(
            lane.plan.concurrency,
            lane.source,
            self._executor,
            self._sink.put,
            self._events,
            lane.plan.tasks,
            on_fatal=lambda error: self._die(error, "run"),
            leaked_tasks=self._leaked_tasks,
            timeout_grace=self._options.timeout_grace,
        )
        return lane.slots

    def _limited_jobs_ended(self, finished: Sequence[Finished]) -> None:
        """Fetch where jobs have ended that used a limit: there may be room for others."""
        lanes = self._limited_lanes
        for name in {each.job.task_identifier for each in finished} & lanes.keys():
            fetcher = lanes[name].fetcher
            if isinstance(fetcher, LimitedFetcher) and fetcher.is_counted:
                fetcher.made_room()
                lanes[name].source.poll()

    def _limits_changed(self) -> None:
        """Another pool has left room in a limit, or its bounds have changed."""
        for lane in self._lanes:
            if isinstance(lane.fetcher, LimitedFetcher) and lane.fetcher.is_refused:
                lane.source.poll()

    async def _register(self) -> None:
        """Read the ids of the tasks of every lane, and write limits that are missing."""
        wanted = [(lane.fetcher, lane.fetcher.identifiers) for lane in self._lanes]
        schema, names = self._options.schema_name, [name for _, names in wanted for name in names]
        tasks = await self._fetch_session.run(lambda connection: register_tasks(connection, schema, names))
        ids = {name: task_id for task_id, name in tasks.items()}
        for fetcher, identifiers in wanted:
            fetcher.registered(ids, identifiers)
        await self._register_limits(only_missing=True)

    def _start_listener(self) -> None:
        size = self._database.get_max_size()
        if size < SESSIONS_WITH_LISTENER:
            logger.warning(
                "the worker has %d connections; with fewer than %d it cannot listen and only polls",
                size,
                SESSIONS_WITH_LISTENER,
            )
            return
        listener = self._shutdown.listener = Listener(
            self._database,
            self._events,
            self._clock,
            pool_id=self.id,
            ping=self._ping,
            on_jobs=self._source.pulse,
            on_freed=self._jobs_freed,
            on_migration=lambda number, breaking: self._schema_watch.change_announced(),
            on_ready=self._listener_ready,
            on_control=self._control_changed,
            on_limits=self._limits_changed,
            is_tuned=self._options.prepared_statements,
        )
        listener.start()

    def _listener_ready(self) -> None:
        """Notifications sent before now were missed, about jobs as well as migrations."""
        self._jobs_freed()
        self._source.pulse()
        self._limits_changed()
        self._schema_watch.check()
        self._control_changed()

    def _jobs_freed(self) -> None:
        """Jobs were returned, unlocked or rescheduled, here or elsewhere, and may have been due for long."""
        for lane in self._lanes:
            lane.fetcher.jobs_freed()
        self._source.poll()

    def _is_listening(self) -> bool:
        listener = self._shutdown.listener
        return listener is not None and listener.is_working

    def _control_changed(self) -> None:
        if self._control is not None:
            self._control.changed()

    def _look_soon(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_AGAIN_AFTER, self._control_changed)

    def _may_be_cancelled(self) -> bool:
        return self._control is not None and self._control.is_on

    async def _read_control_state(self) -> ControlState:
        schema = self._options.schema_name
        state = await self._requests.read(self.run_statement, schema, self.id)
        if state.has_ended_pauses and await self._pausing.end_due_pauses(self.run_statement, schema):
            state = await self._requests.read(self.run_statement, schema, self.id)
        return state

    def _apply_control(self, state: ControlState) -> None:
        """Do what operators ask for."""
        self._cancellations.end(state.cancelled)
        if state.has_leftover_cancels:
            self._background.start(self._cancellations.end_leftovers(), "cancelled jobs")
        self._pausing.apply(state)
        self._requests.apply(state)
        self._wide_queues.apply(state.has_wide_queues)

    async def _answer_stack(self, request_id: int, answer: StackAnswer) -> None:
        schema = self._options.schema_name
        await self.run_statement(lambda connection: answer_stack(connection, schema, request_id, answer))

    async def _ping(self, channel: str) -> None:
        await self._fetch_session.run(lambda connection: ping(connection, channel))

    # -- while it runs -------------------------------------------------------------------------------------

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
        slots, held = self._slots, 0 if self._held_batches is None else self._held_batches.count
        return self._sessions.locked_jobs.count + held, slots.running_since if slots is not None else {}

    @property
    def is_listening(self) -> bool:
        """Whether notifications arrive; may be called from any thread."""
        return self._is_listening()

    @property
    def seconds_since_answer(self) -> float:
        """How long ago the database answered a statement of this pool, or a heartbeat."""
        return min(time.monotonic() - self._sessions.answered_at, self.lease.age)

    @property
    def stalled_since(self) -> float | None:
        """When slots became free without a successful fetch since, if too long ago; by `time.monotonic`."""
        since = self._source.wanted_since
        allowed = 3 * self._options.poll_interval + FETCH_MARGIN
        return None if since is None or time.monotonic() - since < allowed else since

    def blockage(self) -> LoopBlockage | None:
        """What blocks the event loop now; may be called from any thread."""
        current = self._watchdog.current if self._watchdog is not None else None
        return None if current is None else current.outline

    def _running_ids(self) -> list[int]:
        return [job.id for job in self.running]

    @property
    def running(self) -> list[Job]:
        """The jobs that run now."""
        return self._slots.running if self._slots is not None else []

    def nudge(self, count: int = 1) -> None:
        """Fetch now."""
        self._source.pulse(count)

    def set_tasks(self, tasks: Mapping[str, AnyTask]) -> None:
        """Fetch jobs of these tasks from now on; jobs of other tasks that are already locked still run."""
        limited = {name for lane in self._lanes if lane.plan.limits for name in lane.plan.tasks}
        if any(task._limits and name not in limited for name, task in tasks.items()):
            raise ConfigError("tasks with limits cannot be added to a running worker; restart it")
        self._tasks.update(tasks)
        self._executor.learn_options(tasks)
        self._fetch_tasks(tasks)

    @property
    def task_identifiers(self) -> tuple[str, ...]:
        """The identifiers of its tasks."""
        return self._identifiers

    async def add_tasks(self, tasks: Mapping[str, AnyTask]) -> None:
        """Run jobs of these tasks too, from now on; those without a lane of this pool in the first."""
        for task in tasks.values():
            task._prepare()
        if self._retention_policy is not None:
            retention = self._options.history_retention
            self._retention_policy.add_tasks(
                {name: task._keep.resolved(retention) for name, task in tasks.items() if task._keep}
            )
        self.set_tasks({**self._tasks, **tasks})
        self._identifiers = tuple(self._tasks)
        if self._slots is not None:
            schema, names = self._options.schema_name, list(tasks)
            await self.run_statement(lambda connection: add_worker_tasks(connection, schema, self.id, names))
            if (recorder := self._recorder) is not None:
                await self.run_statement(lambda connection: recorder.prepare(connection, names))

    def _fetch_tasks(self, identifiers: Collection[str]) -> None:
        """Fetch jobs of these tasks from now on, each in its lane; those of no lane in the first."""
        further = {name for lane in self._lanes[1:] for name in lane.plan.tasks}
        for lane in self._lanes:
            if lane is self._lanes[0]:
                lane.fetcher.set_tasks([name for name in identifiers if name not in further])
            else:
                lane.fetcher.set_tasks([name for name in lane.plan.tasks if name in identifiers])
        self._source.poll()

    def before_rerun(self, function: Callable[[Job], Awaitable[None]]) -> None:
        """Call `function` before a job is run again after its worker died."""
        self._executor.before_rerun = function

    async def write_outcomes(self) -> None:
        """Wait until the outcomes of all jobs that have ended are committed."""
        await self._sink.flush()

    async def run_statement(self, statement: Statement[T]) -> T:
        """Run one statement, without retries, on a connection that tasks cannot occupy."""
        if self._is_closed:
            raise WorkerStoppedError("the worker has ended")
        return await self._write_session.run(statement)

    async def _drain(self, slots: AllSlots) -> None:
        await drain(self._source, slots, self._sink, lambda: self._shutdown.has_begun)
        if self._pausing.pauses and not self._shutdown.has_begun:
            await self._report_left()
        self._shutdown.begin("no job is left to run", quietly=True)

    async def _report_left(self) -> None:
        """Log which ready jobs a drain has left because they are paused."""
        options = self._options
        left = await self.run_statement(
            lambda connection: paused_jobs(
                connection,
                options.schema_name,
                tasks=self._identifiers,
                paused=self._pausing.tasks,
                now=self._clock.now() if options.use_local_time else None,
            )
        )
        for pause, jobs in left:
            verb = "was" if jobs == 1 else "were"
            logger.info("%s of the paused %s %s left", count(jobs, "job"), pause.what, verb)

    def _lease_lapsed(self) -> None:
        """Other workers may have declared this pool dead."""
        self._background.keep(self._eviction_check.run, "eviction check")

    async def _read_locked(self, jobs: list[Job]) -> set[int]:
        return await self.run_statement(
            lambda connection: still_ours(connection, self._options.schema_name, self.id, jobs)
        )

    async def _read_gone(self, job_ids: list[int]) -> set[int]:
        return await self.run_statement(
            lambda connection: gone_jobs(connection, self._options.schema_name, job_ids)
        )

    async def _read_schema_state(self) -> SchemaState:
        return await self.run_statement(lambda connection: read_state(connection, self._options.schema_name))

    def _loop_is_blocked(self, blockage: Blockage) -> None:
        """Called in the watchdog's thread."""
        self.on_blocked()
        for function in self._on_loop_blocked:
            function(blockage.culprit, blockage.since)

    def _loop_was_blocked(self, blockage: Blockage, seconds: float) -> None:
        event = PoolLoopBlocked(pool_id=self.id, job=blockage.job, seconds=seconds, stack=blockage.stack)
        self._events.emit(event)

    def _distrust_schema(self) -> None:
        """Forget what was read from the schema: task ids, and that locked jobs exist."""
        for lane in self._lanes:
            lane.fetcher.forget()
        self.lease.doubt()

    # -- errors --------------------------------------------------------------------------------------------

    def _fetch_failed(self, error: BaseException) -> None:
        self._events.emit(WorkerGetJobError(pool_id=self.id, error=error))
        if self.once:
            self._die(translated_error(error, schema=self._options.schema_name) or error, "getJob")
        elif is_schema_missing(error):
            self._distrust_schema()

    def _write_failed(self, error: BaseException) -> None:
        self._write_failures.failed(error)
        if is_schema_missing(error) and not self.once:
            self._distrust_schema()

    async def _die_with_slots(self, slots: AllSlots) -> None:
        await slots.wait()
        if not self._shutdown.has_begun:
            self._die(slots.error or WorkerStoppedError("every slot of the worker has ended"), "run")

    def _die(self, error: BaseException, action: str) -> None:
        if self._shutdown.fatal is None:
            self._shutdown.fatal = error
            if not (self.once and action == "getJob"):
                self._events.emit(PoolFatalError(pool_id=self.id, error=error, action=action))
        self._shutdown.begin(f"the worker cannot go on: {describe(error)}")

    # -- stopping ------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Wait until the pool has ended; raises if it died of an error or tasks leaked."""
        await self._shutdown.wait()

    def begin_shutdown(self, message: str) -> None:
        """Begin a graceful shutdown; see `wait`."""
        self._shutdown.begin(message)

    def exit_if_blocked(self, seconds: float, signal_number: int) -> None:
        """End the process if its event loop is blocked this many seconds from now. Thread-safe."""
        if self._watchdog is not None:
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
        self._is_closed = False  # the cancelled shutdown has set it
        if self.lease.is_in_doubt:  # the eviction check is cancelled too, and writes wait for it
            self._lease_lapsed()
        await self._sink.restart()
        await self._shutdown.resume(message)

    async def _close(self) -> None:
        if self._progress is not None:
            await self._progress.close()
        if self._recorder is not None and self._recorder.counts is not None:
            await self._recorder.counts.close()
        self._is_closed = True
        if self._watchdog is not None:
            self._watchdog.stop()
        await self._background.cancel()
        self._threads.close()
        for stuck in self._threads.running:
            logger.warning("task %s leaked: it runs in a thread, which cannot be ended", stuck)
        await self._sessions.close()
