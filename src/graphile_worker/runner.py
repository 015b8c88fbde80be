"""`run` and `run_once`: the one place that wires a worker together, and the Runner that holds it.

Everything is built here from options and started in order: database, schema, tasks, recurring jobs, the pool
of slots. Nothing else in the package knows all of these.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from .client import WorkerUtils
from .client.opening import Opening
from .clock import Clock, SystemClock
from .config import combine
from .db.connection import AnyPool, Connection, Pool
from .db.dsn import Dsn
from .db.errors import translate_errors
from .db.open import close_pool, lend, open_pool, resolve_connection
from .errors import ConfigError, WorkerStoppedError
from .hooks import Events, Hooks, Plugin
from .hooks.events import Stopped
from .job import Job
from .migrate import migrate
from .observability.log_plugin import LogPlugin
from .options import WorkerOptions
from .queries.get_jobs import is_anything_waiting
from .queries.queue_names import get_queue_names
from .recovery.stale_locks import StaleLocks
from .spec import JobOptions
from .tasks.extensions import Extensions
from .tasks.load import load_tasks
from .tasks.queue_names import QueueNames
from .tasks.registry import TaskList, TaskRegistry, build_registry
from .tasks.services import WorkerServices
from .version import __version__
from .worker.fetcher import FlagSource
from .worker.pool import SESSIONS_WITH_LISTENER, WorkerPool
from .worker.shutdown import signal_handling

if TYPE_CHECKING:
    from .cron import CronScheduler, ParsedCronItem
    from .recovery.service import Recovery

KILL_AFTER = 0.5  # seconds that `kill` leaves to a graceful end
CLOSE_WITHIN = 5.0  # seconds for connections that a task still holds to come back
SILENT_FOR = 120.0  # seconds after which recurring jobs give a connection up
CONNECTIONS = 4  # fetch, write, listen, and one for tasks and upkeep


class Runner:
    """A worker that runs in the background of this event loop until it is stopped."""

    def __init__(self, parts: _Parts, *, once: bool) -> None:
        self.events: Events = parts.hooks.events
        """Where to observe what happens."""
        self._parts = parts
        self._once = once
        self._pool: WorkerPool | None = None
        self._cron: CronScheduler | None = None
        self._stale_locks: StaleLocks | None = None
        self._recovery: Recovery | None = None
        self._end: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.signal: int | None = None
        """The signal that stopped the worker, if one did; a process should end with it."""

    # -- for the user --------------------------------------------------------------------------------------

    @property
    def pool_id(self) -> str:
        """What stands in `locked_by` of the jobs that this worker holds."""
        return self._running_pool.id

    async def add_job(self, task: Any, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job, as `WorkerUtils.add_job` does."""
        return await self._parts.client.add_job(task, payload, **options)

    async def wait(self) -> None:
        """Until the worker has ended; raises if it died of an error."""
        self.events.excuse_current()
        await asyncio.shield(self._ended)

    async def stop(self, reason: str = "the worker is stopping") -> None:
        """Stop gracefully: running tasks may end, everything is written. An error to do it twice."""
        if self._is_stopped:
            raise WorkerStoppedError("the worker is stopped already")
        self._begin_to_stop()
        self._running_pool.begin_shutdown(reason)
        await self.wait()

    async def kill(self, reason: str = "the worker was killed") -> None:
        """Stop; what still runs after half a second is cancelled and given back."""
        self._begin_to_stop()
        self._running_pool.begin_shutdown(reason)
        await asyncio.wait((self._ended,), timeout=KILL_AFTER)
        self._running_pool.force_shutdown(reason)
        await self.wait()

    # -- for signals ---------------------------------------------------------------------------------------

    def stop_by_signal(self, message: str) -> None:
        """Stop gracefully in the background."""
        self._begin_to_stop()
        self._running_pool.begin_shutdown(message)

    def kill_by_signal(self, message: str) -> None:
        """Stop by force in the background."""
        self._running_pool.force_shutdown(message)

    # -- life ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything; if that fails nothing is left running."""
        parts = self._parts
        try:
            with translate_errors(parts.options.schema_name):
                if parts.options.handle_signals:
                    signal_handling().check()
                if parts.cron_items and not self._once:
                    self._cron = parts.make_cron()
                    await self._cron.start()
                self._pool = parts.make_pool(once=self._once)
                if parts.is_anything_waiting:
                    self._recovery = parts.make_recovery(self._pool)
                    await self._recovery.register()
                    await self._pool.start()
                    self._recovery.start()
                else:  # a run that ends when nothing is left
                    await self._pool.start(nothing_waits=True)
                if parts.options.handle_signals:
                    signal_handling().add(self, self.events)
        except BaseException:
            if self._pool is not None:
                await self._pool.discard()
            if self._recovery is not None:
                await self._recovery.stop()
            if self._cron is not None:
                await self._cron.stop()
            await parts.resources.aclose()
            raise
        if not self._once:
            self._stale_locks = parts.make_stale_locks(self._pool.id)
            self._stale_locks.start()
            parts.say_ready(self._pool.id)
        self._end = asyncio.get_running_loop().create_task(self._until_end(), name="graphile-worker runner")

    @property
    def _running_pool(self) -> WorkerPool:
        if self._pool is None:
            raise WorkerStoppedError("the worker was not started")
        return self._pool

    @property
    def _ended(self) -> asyncio.Task[None]:
        if self._end is None:
            raise WorkerStoppedError("the worker was not started")
        return self._end

    def _begin_to_stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.events.emit(Stopped())
            if self._stale_locks is not None:
                self._stale_locks.begin_to_stop()
            if self._recovery is not None:
                self._recovery.begin_to_stop()

    async def _until_end(self) -> None:
        try:
            await self._wait_for_parts()
        except asyncio.CancelledError:
            # The program ends without having stopped us, as when `asyncio.run` cancels what is left over.
            self._begin_to_stop()
            await self._running_pool.salvage("the program ended")
            raise
        finally:
            handling = signal_handling()
            self.signal = handling.received if self._parts.options.handle_signals else None
            handling.remove(self)
            if self._recovery is not None:
                await self._recovery.stop()
            await self.events.drain()
            await self._parts.resources.aclose()

    async def _wait_for_parts(self) -> None:
        """The pool and the scheduler end together; whichever fails first takes the other with it."""
        pool = self._running_pool
        waiting: set[asyncio.Future[None]] = {asyncio.ensure_future(pool.wait())}
        if self._cron is not None:
            waiting.add(asyncio.ensure_future(self._cron.wait()))
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        self._begin_to_stop()
        pool.begin_shutdown("recurring jobs cannot be scheduled any more")
        if self._cron is not None:
            await self._cron.stop()
        if self._stale_locks is not None:
            with suppress(TimeoutError):  # it waits for a statement, and the server may not answer any more
                await asyncio.wait_for(self._stale_locks.stop(), CLOSE_WITHIN)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for result in (*(future.exception() for future in done), *results):
            if isinstance(result, BaseException):
                raise result


class _Parts:
    """What a worker is built from, checked but not started."""

    def __init__(
        self,
        options: WorkerOptions,
        database: Pool,
        resources: AsyncExitStack,
        tasks: TaskRegistry,
        cron_items: Sequence[ParsedCronItem],
        hooks: Hooks,
        log: LogPlugin,
        *,
        database_name: str,
        clock: Clock,
        extensions: Iterable[object] | Mapping[type[Any], object],
        forbidden_flags: FlagSource,
        dsn: Dsn | None,
        has_tables: bool,
        is_anything_waiting: bool,
    ) -> None:
        self.options = options
        self.dsn = dsn
        self.has_tables = has_tables
        self.is_anything_waiting = is_anything_waiting
        self.database = database
        self.resources = resources
        self.tasks = tasks
        self.cron_items = cron_items
        self.hooks = hooks
        self.log = log
        self.database_name = database_name
        self.clock = clock
        self.forbidden_flags = forbidden_flags
        self.client = WorkerUtils(
            database,
            schema=options.schema_name,
            use_local_time=options.use_local_time,
            hooks=hooks,
            clock=clock,
        )
        kept = SESSIONS_WITH_LISTENER + _kept_for_recovery(options, database, dsn)
        self._for_tasks = asyncio.Semaphore(max(1, database.get_max_size() - kept))
        self.services = WorkerServices(
            client=self.client,
            acquire=self._lend_to_task,
            queue_names=QueueNames(self._queue_names, delay=options.get_queue_name_batch_delay, clock=clock),
            loop=asyncio.get_running_loop(),
            extensions=Extensions(extensions),
        )

    @asynccontextmanager
    async def _lend_to_task(self) -> AsyncIterator[Connection]:
        """Never the last ones: when the worker loses its own connections it must find others."""
        async with self._for_tasks, lend(self.database) as connection:
            yield connection

    @asynccontextmanager
    async def _lend_in_time(self) -> AsyncIterator[Connection]:
        """For a while only: a server that has gone silent must not stop whoever waits for it for ever."""
        # The limit for acquiring holds for giving back too.
        async with (
            asyncio.timeout(SILENT_FOR),
            self.database.acquire(timeout=SILENT_FOR) as connection,
        ):
            yield connection

    def make_pool(self, *, once: bool) -> WorkerPool:
        return WorkerPool(
            self.options,
            self.database,
            self.tasks,
            self.services,
            self.hooks,
            self.clock,
            forbidden_flags=self.forbidden_flags,
            once=once,
            has_queue_indexes=self.has_tables,
            reserved=_kept_for_recovery(self.options, self.database, self.dsn),
        )

    def make_recovery(self, pool: WorkerPool) -> Recovery:
        from .recovery.service import Recovery

        return Recovery(
            pool,
            self.options,
            self.database,
            self.dsn,
            tuple(self.tasks),
            self.hooks,
            self.clock,
            has_tables=self.has_tables,
        )

    def make_cron(self) -> CronScheduler:
        from .cron import CronScheduler

        return CronScheduler(
            self._lend_in_time,
            self.options.schema_name,
            self.cron_items,
            events=self.hooks.events,
            clock=self.clock,
            known_tasks=tuple(self.tasks),
        )

    def make_stale_locks(self, pool_id: str) -> StaleLocks:
        options = self.options
        return StaleLocks(
            self.database,
            options.schema_name,
            self.hooks.events,
            self.clock,
            pool_id=pool_id,
            min_interval=options.min_reset_locked_interval,
            max_interval=options.max_reset_locked_interval,
            use_local_time=options.use_local_time,
        )

    def say_ready(self, pool_id: str) -> None:
        self.log.ready(
            version=__version__,
            pool_id=pool_id,
            tasks=tuple(self.tasks),
            cron_items=len(self.cron_items),
            concurrency=self.options.concurrency,
            database=self.database_name,
            schema=self.options.schema,
        )

    async def _queue_names(self, ids: Sequence[int]) -> list[str | None]:
        async with self.database.acquire() as connection:
            return await get_queue_names(connection, self.options.schema_name, ids)


def run(
    *,
    pg_pool: AnyPool | None = None,
    task_list: TaskList | None = None,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    forbidden_flags: FlagSource = None,
    events: Events | None = None,
    hooks: Hooks | None = None,
    plugins: Iterable[Plugin] = (),
    extensions: Iterable[object] | Mapping[type[Any], object] = (),
    logger: logging.Logger | None = None,
    clock: Clock | None = None,
    options: WorkerOptions | None = None,
    **values: Any,
) -> Opening[Runner]:
    """A worker that runs until it is stopped: `async with run(…) as runner: await runner.wait()`.

    `values` are options by the names of `WorkerOptions`; what is not given comes from `options` if there is
    such an object, else from the environment and the configuration file. Entering installs or upgrades the
    schema, loads the tasks, and starts; leaving stops gracefully. `await run(…)` gives the Runner and leaves
    stopping to the caller.
    """
    given = _Given(
        pg_pool, task_list, crontab, parsed_cron_items, forbidden_flags, events, hooks, plugins, extensions,
        logger, clock, options, values,
    )  # fmt: skip

    async def open_() -> Runner:
        runner = Runner(await given.parts(once=False), once=False)
        await runner.start()
        return runner

    return Opening(open_, _close)


async def run_once(
    *,
    pg_pool: AnyPool | None = None,
    task_list: TaskList | None = None,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    forbidden_flags: FlagSource = None,
    events: Events | None = None,
    hooks: Hooks | None = None,
    plugins: Iterable[Plugin] = (),
    extensions: Iterable[object] | Mapping[type[Any], object] = (),
    logger: logging.Logger | None = None,
    clock: Clock | None = None,
    options: WorkerOptions | None = None,
    **values: Any,
) -> None:
    """Run every job that can run now, named queues to their end, and return; recurring jobs are not added.

    Jobs that fail are no error; an unreachable database is.
    """
    given = _Given(
        pg_pool, task_list, crontab, parsed_cron_items, forbidden_flags, events, hooks, plugins, extensions,
        logger, clock, options, values,
    )  # fmt: skip
    runner = Runner(await given.parts(once=True), once=True)
    await runner.start()
    try:
        await runner.wait()
    except asyncio.CancelledError:
        await runner.kill("the run was cancelled")
        raise
    if runner.signal is not None:  # the handlers from before are back; what they make of it is up to them
        signal.raise_signal(runner.signal)


def end_by_signal(number: int) -> None:
    """End the process as the signal would have done, so that whoever started it sees why.

    A handler that the program had installed before is called instead; if it returns, this does too.
    """
    if signal.getsignal(number) in (signal.SIG_IGN, signal.default_int_handler, None):
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


async def _close(runner: Runner) -> None:
    if not runner._is_stopped:
        await runner.stop()
    else:
        await runner.wait()


def _kept_for_recovery(options: WorkerOptions, database: Pool, dsn: Dsn | None) -> int:
    """How many connections of a caller's pool recovery takes for itself; none if we know the address."""
    if dsn is not None:
        return 0
    from .recovery.service import Recovery

    return Recovery.connections_kept(options, database, dsn)


class _Given:
    """The arguments of `run` and `run_once` as they came."""

    def __init__(
        self,
        pg_pool: AnyPool | None,
        task_list: TaskList | None,
        crontab: str | None,
        parsed_cron_items: Sequence[ParsedCronItem] | None,
        forbidden_flags: FlagSource,
        events: Events | None,
        hooks: Hooks | None,
        plugins: Iterable[Plugin],
        extensions: Iterable[object] | Mapping[type[Any], object],
        logger: logging.Logger | None,
        clock: Clock | None,
        options: WorkerOptions | None,
        values: dict[str, Any],
    ) -> None:
        if task_list is not None and "task_directory" in values:
            raise ConfigError("both task_list and task_directory are set; give exactly one of them")
        if events is not None and hooks is not None:
            raise ConfigError("both events and hooks are set; give Hooks(events=...) alone")
        self.options = combine(options, values)
        self.has_crontab_file = self.options.crontab_file != WorkerOptions().crontab_file
        self.connection_string = self.options.connection_string
        if pg_pool is not None and values.get("connection_string") is None:
            self.connection_string = None  # one from the environment gives way to a pool that was given
        self.pg_pool = pg_pool
        self.task_list = task_list
        self.crontab = crontab
        self.parsed_cron_items = parsed_cron_items
        self.forbidden_flags = forbidden_flags
        self.hooks = hooks if hooks is not None else Hooks(events=events)
        self.plugins = tuple(plugins)
        self.extensions = extensions
        self.log = LogPlugin(logger)
        self.clock = clock if clock is not None else SystemClock()

    async def parts(self, *, once: bool) -> _Parts:
        """Everything read and checked, the database open and its schema installed."""
        options = self.options
        found = resolve_connection(self.connection_string, self.pg_pool)
        tasks = self._tasks()
        cron_items = self._cron_items()
        for plugin in (self.log, *self.plugins):
            plugin.install(self.hooks)
        async with AsyncExitStack() as resources:
            if isinstance(found, Dsn):
                database = await open_pool(
                    found,
                    max_pool_size=max(options.max_pool_size, CONNECTIONS),
                    prepared_statements=options.prepared_statements,
                )
                resources.push_async_callback(close_pool, database, within=CLOSE_WITHIN)
            else:
                database = found
            async with database.acquire() as connection:
                with translate_errors(options.schema_name):
                    report = await migrate(connection, options.schema_name)
                    waiting = not once or await is_anything_waiting(connection, options.schema_name)
            return _Parts(
                options,
                database,
                resources.pop_all(),
                tasks,
                cron_items,
                self.hooks,
                self.log,
                database_name=found.name if isinstance(found, Dsn) else "the given pool",
                clock=self.clock,
                extensions=self.extensions,
                forbidden_flags=self.forbidden_flags,
                dsn=found if isinstance(found, Dsn) else None,
                has_tables=report.has_extensions,
                is_anything_waiting=waiting,
            )

    def _tasks(self) -> TaskRegistry:
        if self.task_list is not None:
            return build_registry(self.task_list)
        return load_tasks(self.options.task_directory)

    def _cron_items(self) -> Sequence[ParsedCronItem]:
        """A program that gives its tasks itself has no crontab file unless it names one."""
        if self.crontab is None and self.parsed_cron_items is None and not self.has_crontab_file:
            if self.task_list is not None:
                return ()
            if not Path(self.options.crontab_file).exists():
                self.log.no_crontab(self.options.crontab_file)
                return ()
        from .cron import collect_cron_items

        return collect_cron_items(
            crontab=self.crontab,
            parsed_cron_items=self.parsed_cron_items,
            crontab_file=self.options.crontab_file,
        )
