"""WorkerBuilder: from the arguments of `run` or `run_once` to an open database and the parts of a worker.

`run_once` with an empty queue ends before the worker is needed, so everything of the worker is imported by
the method that makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..config.calls import call_hooks, call_options
from ..database.connections.connection import Pool
from ..database.connections.dsn import Dsn
from ..database.connections.errors import translate_errors
from ..database.connections.open import close_pool, open_pool, resolve_connection, target_of
from ..database.connections.single import SingleConnection, is_connection
from ..database.connections.wait import when_ready
from ..database.migrations.run import migrate
from ..database.statements.fetch import get_queue_names, is_anything_waiting
from ..errors import ConfigError
from ..hooks import Events, Plugin, WorkerContext
from ..hooks.faults import GuardedClock
from ..logging.log_plugin import LogPlugin
from ..tasks.executables import dismiss_guard
from ..tasks.injection import check_extensions
from ..tasks.registry import TaskRegistry, build_registry
from ..tasks.services import Extensions, Overrides, QueueNames, WorkerServices, overrides_of
from ..values import __version__
from ..values.clock import Clock, SystemClock, is_led
from ..values.concurrency import lanes_of, merged_lanes
from ..values.flags import ALLOWLIST, FLAG_OPTIONS, FORBIDDEN, FlagSources, joined_flags
from ..values.option_groups import executors_of
from ..values.options import WorkerOptions, pool_size
from ..values.retention import Retention, RetentionPolicy
from ..worker.plan import LanePlan, PoolPlan, check_limits, plan_lanes

if TYPE_CHECKING:
    from ..client import WorkerUtils
    from ..cron import CronScheduler, ParsedCronItem
    from ..database.migrations.run import MigrationReport
    from ..database.statements.schedules import ScheduleDefinition
    from ..recovery.maintenance import MaintenanceTask
    from ..recovery.registry.registering import Description
    from ..recovery.service import Recovery
    from ..recovery.sweeper import StaleLocks
    from ..tasks.task import AnyTask
    from ..values.outcome import FailureHandler
    from ..worker.pool import WorkerPool
    from .application import App
    from .arguments import RunArguments, RunOnceArguments
    from .executors import RunExecutors
    from .lifespan import EnteredApp
    from .services import ConnectionBudget

CLOSE_WITHIN = 5.0  # seconds for tasks to return the connections they still hold
OBJECTS = (
    "app",
    "pg_pool",
    "task_list",
    "crontab",
    "parsed_cron_items",
    *FLAG_OPTIONS,
    "events",
    "hooks",
    "plugins",
    "extensions",
    "dependency_overrides",
    "logger",
    "clock",
    "options",
)
"""Arguments that are not options, or not only; `arguments.py` has their types."""

logger = logging.getLogger("graphile_worker.worker")


class WorkerBuilder:
    """Checks the arguments, opens the database, and makes the parts of one worker."""

    usual_wait: ClassVar[float] = 0.0
    """Seconds to wait for the database if the options do not say it; a process that is a worker sets it."""
    tasks: TaskRegistry
    lanes: list[LanePlan]
    cron_items: Sequence[ParsedCronItem]
    database: Pool
    """Opened and closed here; the parts of the worker use that of `_connection_budget`."""
    dsn: Dsn | None
    """The address of the database; None for a pool of the caller."""
    schema_found: MigrationReport
    """Which objects exist in the schema; set by `open`."""

    def __init__(self, arguments: RunArguments | RunOnceArguments, *, once: bool = False) -> None:
        _check_conflicts(arguments)
        self._arguments = arguments
        self.once = once
        self._app = _app_of(arguments)
        self.lifespan: EnteredApp | None = None
        """The lifespan of the app, once it is entered."""
        app_options = None if self._app is None else self._app.options
        self._lanes, slots = lanes_of(arguments.get("lanes"))
        self._executors, executor_settings = executors_of(arguments.get("executors"))
        # The plugins of the call are no option, and neither are functions that return flags.
        functions = [name for name in FLAG_OPTIONS if callable(arguments.get(name))]
        values = {
            **arguments, "lanes": slots, "executors": executor_settings, "plugins": None,
            **dict.fromkeys(functions),
        }  # fmt: skip
        self.options = call_options(values, objects=OBJECTS, app_options=app_options)
        self.executors: RunExecutors | None = None
        """What runs tasks outside of this process; None if no task asks for it."""
        self._pg_pool = arguments.get("pg_pool")
        self._connection_string = self.options.connection_string
        if self._pg_pool is not None and arguments.get("connection_string") is None:
            self._connection_string = None  # the caller's pool wins over a configured connection string
        if once and is_connection(self._pg_pool):
            self._pg_pool = SingleConnection(self._pg_pool)
        if isinstance(self._pg_pool, SingleConnection):
            # Leave no state in the caller's session. Other sessions cannot see what it has not committed.
            self.options = self.options.with_values(
                recovery=False, statistics=False, prepared_statements=False
            )
        hooks = call_hooks(arguments)
        self.events: Events = hooks.events
        """The caller's observers; they may serve other runs too."""
        self.hooks = hooks.for_run()  # plugins must not accumulate in an object that serves several runs
        self._plugins: tuple[Plugin | str, ...] = tuple(arguments.get("plugins", ()))
        self._log = LogPlugin(arguments.get("logger"))
        clock: Clock | None = arguments.get("clock")
        self._clock: Clock = SystemClock() if clock is None else GuardedClock(clock)

    async def open(self) -> None:
        """Load tasks and crontab, open the database and migrate it, enter the app, install the plugins."""
        options = self.options
        found = resolve_connection(self._connection_string, self._pg_pool)
        self.dsn = found if isinstance(found, Dsn) else None
        self.hooks._target = target_of(options.schema, found)
        # Before anything is opened: a mistake is found without a database.
        plugins = self._loaded(self._all_plugins)
        may_yield_tasks = self._app is not None and self._app.lifespan is not None and not self._app.tasks
        if not may_yield_tasks:
            self._load()
        if isinstance(found, Dsn):
            self.database = await self._open_pool(found)
        else:
            self.database = found
        try:
            async with self.database.acquire() as connection:
                with translate_errors(options.schema_name):
                    self.schema_found = found_objects = await migrate(connection, options.schema_name)
            if self._app is not None and self._app.lifespan is not None:
                plugins += self._loaded(await self._enter_app(self._app))
            keeps_flag_rules = found_objects.has_flag_rules or not self._flags.may_be_routed
            check_limits(self.lanes, has_limits=found_objects.has_limits and keeps_flag_rules)
            check_extensions(self.tasks, self._extensions(), self._overrides)
            self._install_plugins(plugins)
        except BaseException:
            await self.close()
            raise

    async def _open_pool(self, dsn: Dsn) -> Pool:
        options = self.options
        wait = self.usual_wait if options.wait_for_database is None else options.wait_for_database
        return await when_ready(
            lambda: open_pool(
                dsn, max_pool_size=pool_size(options), prepared_statements=options.prepared_statements
            ),
            wait,
        )

    async def _enter_app(self, app: App) -> tuple[Plugin | str, ...]:
        """Enter the lifespan; returns the plugins of the apps that it yielded."""
        from .lifespan import EnteredApp

        self.lifespan = EnteredApp(app)
        self._app = whole = await self.lifespan.enter()
        yielded = len(whole.tasks) > len(app.tasks) or len(whole.cron_items) > len(app.cron_items)
        if yielded or not app.tasks:
            self._load()
        return whole.plugins[len(app.plugins) :]

    @property
    def _all_plugins(self) -> tuple[Plugin | str, ...]:
        """The plugins of the configuration, the app and the call."""
        of_app = () if self._app is None else self._app.plugins
        return (*self.options.plugins, *of_app, *self._plugins)

    def _loaded(self, plugins: tuple[Plugin | str, ...]) -> tuple[Plugin, ...]:
        """The same plugins, those that are given by name loaded."""
        if not any(isinstance(plugin, str) for plugin in plugins):
            return plugins  # type: ignore[return-value]
        from ..config.plugins import load_plugins

        return load_plugins(plugins, self.options.plugin_options)

    def _install_plugins(self, plugins: tuple[Plugin, ...]) -> None:
        if self.options.plugin_options:
            from ..config.plugins import warn_about_unused

            warn_about_unused(self._all_plugins, self.options.plugin_options)
        if self._app is not None:
            self.hooks._join(self._app.hooks)
        self._is_observed = bool(
            plugins or self.lifespan or self.hooks._plugins or self.hooks.events.observed
        )
        for plugin in (self._log, *plugins):
            self.hooks.install(plugin)

    async def open_if_needed(self) -> bool:
        """Open for a run that drains the queue; False if no job is waiting and there are no observers."""
        await self.open()
        schema = self.options.schema_name
        try:
            async with self.database.acquire() as connection:
                with translate_errors(schema):
                    if await is_anything_waiting(connection, schema, tuple(self.tasks)) or self._is_observed:
                        return True
            if self.dsn is not None:
                self.database.terminate()  # nothing is in flight, so there is nothing to wait for
        except BaseException:
            await self.close()
            raise
        await self.close()
        self._log.nothing_waits()
        return False

    async def close(self) -> None:
        """Leave the lifespan of the app, and close the database, unless it is the caller's."""
        try:
            if self.executors is not None:
                await self.executors.close()
            dismiss_guard()
            if self.lifespan is not None:
                await self.lifespan.leave()
        finally:
            if self.dsn is not None:
                await close_pool(self.database, within=CLOSE_WITHIN)

    def _load(self) -> None:
        self.tasks = self._load_tasks()
        self.lanes = self._plan_lanes()
        self.executors = self._make_executors()
        self.cron_items = self._load_cron_items()

    def _plan_lanes(self) -> list[LanePlan]:
        of_app = () if self._app is None else self._app.lanes
        lanes = merged_lanes((*of_app, *self._lanes), self.options.lanes)
        return plan_lanes(self.tasks, lanes, self.options.concurrency)

    def _make_executors(self) -> RunExecutors | None:
        if all(task.rules.executor is None for task in self.tasks.values()):
            return None
        from .executors import RunExecutors

        of_app = {} if self._app is None else self._app.executors
        return RunExecutors(
            self.tasks,
            {**of_app, **self._executors},
            self.options.executors,
            concurrency=sum(lane.concurrency for lane in self.lanes),
        )

    def _load_tasks(self) -> TaskRegistry:
        task_list = self._arguments.get("task_list")
        if self._app is not None:
            from .application import tasks_of

            is_named = True if self._arguments.get("task_directory") is not None else None
            return tasks_of(self._app, self.options, task_list=task_list, is_named=is_named)
        if task_list is not None:
            return build_registry(task_list)
        from ..tasks.loading.load import load_tasks

        return load_tasks(self.options.task_directory)

    def _crontab_beside_tasks(self) -> str | None:
        """A crontab next to a task directory elsewhere, which users may expect to be read."""
        tasks = Path(self.options.task_directory)
        found = tasks.parent / WorkerOptions().crontab_file
        return str(found) if tasks.is_dir() and found.is_file() else None

    def _load_cron_items(self) -> Sequence[ParsedCronItem]:
        """The recurring jobs. A program with a task_list has no crontab file unless it names one."""
        own = () if self._app is None else self._app.cron_items
        crontab, items = self._arguments.get("crontab"), self._arguments.get("parsed_cron_items")
        file = self.options.crontab_file
        is_named = self._arguments.get("crontab_file") is not None or file != WorkerOptions().crontab_file
        if crontab is None and items is None and not is_named:
            if self._arguments.get("task_list") is not None:
                return own
            if not Path(file).exists():
                if not own:
                    self._log.no_crontab(file, self._crontab_beside_tasks())
                return own
        from ..cron import collect_cron_items

        found = collect_cron_items(
            crontab=crontab, parsed_cron_items=items, crontab_file=file, must_exist=is_named
        )
        if not own:
            return found
        from ..cron.crontab import check_identifiers

        check_identifiers([*own, *found])
        return [*own, *found]

    # -- the parts of the worker ---------------------------------------------------------------------------

    @cached_property
    def client(self) -> WorkerUtils:
        """Adds jobs for tasks and for the Runner."""
        from ..client import WorkerUtils
        from ..client.connections import ClientConnections

        connections = ClientConnections(
            self._connection_budget.database,
            schema=self.options.schema_name,
            use_local_time=self.options.use_local_time,
            hooks=self.hooks,
            clock=self._clock,
            history_retention=self.options.history.retention,
            taken_connections=self._connection_budget.kept,
        )
        return WorkerUtils(connections, source="worker")

    @cached_property
    def _connection_budget(self) -> ConnectionBudget:
        from .services import ConnectionBudget

        return ConnectionBudget(
            self.database,
            reserved=self._reserved_connections,
            prepared_statements=self.options.prepared_statements,
        )

    @cached_property
    def _reserved_connections(self) -> int:
        """Connections of the caller's pool that recovery occupies; with a DSN it opens its own."""
        if self.dsn is not None:
            return 0
        from ..recovery.service import Recovery

        return Recovery.connections_kept(self.options, self.database, self.dsn)

    def worker_context(self, pool: WorkerPool) -> WorkerContext:
        return WorkerContext(pool_id=pool.id, hooks=self.hooks, options=self.options, pool=pool)

    def make_pool(self) -> WorkerPool:
        from ..worker.pool import WorkerPool

        if (contradiction := self._flags.description.contradiction) is not None:
            logger.warning("%s", contradiction)
        tasks: Mapping[str, AnyTask] = self.tasks
        if self.executors is not None:
            tasks = self.executors.bound(tasks, self.hooks.table.carriers)
        options, has = self.options, self.schema_found
        plan = PoolPlan(
            options=options,
            tasks=tasks,
            lanes=self.lanes,
            flags=self._flags,
            once=self.once,
            reserved=self._reserved_connections,
            has_queue_indexes=has.has_tables,
            has_held_limits=has.has_held_limits,
            retention_policy=self._retention_policy,
            counts_statistics=options.statistics and has.has_statistics,
            has_control=has.has_control,
        )
        budget = self._connection_budget
        pool = WorkerPool(
            plan,
            budget.database,
            self._make_services(),
            self.hooks,
            self._clock,
            spare=budget if has.has_keyed_index else None,
        )
        if self.executors is not None:
            pool.on_concurrency(self.executors.resize)
        return pool

    def _make_services(self) -> WorkerServices:
        """What tasks get through their helpers."""
        budget, options = self._connection_budget, self.options

        async def queue_names(ids: Sequence[int]) -> list[str | None]:
            async with budget.database.acquire() as connection:
                return await get_queue_names(connection, options.schema_name, ids)

        return WorkerServices(
            client=self.client,
            acquire=budget.to_task,
            queue_names=QueueNames(
                queue_names, delay=options.node.get_queue_name_batch_delay, clock=self._clock
            ),
            loop=asyncio.get_running_loop(),
            extensions=self._extensions(),
            overrides=self._overrides,
            executables_inherit_database=options.executables_inherit_database,
            environments=self.hooks.table.environments,
            logger=self._log.job_logger,
        )

    def _extensions(self) -> Extensions:
        """The objects of the app, and those of the call in their place."""
        given = Extensions(self._arguments.get("extensions", ()))
        return given if self._app is None else self._app.extensions._updated(given)

    @cached_property
    def _overrides(self) -> Overrides | None:
        of_app = None if self._app is None else self._app.dependency_overrides
        return overrides_of(of_app, self._arguments.get("dependency_overrides"))

    @cached_property
    def _flags(self) -> FlagSources:
        """The rules for flags. What the app forbids is forbidden too; its other rules are options."""
        sources: dict[str, Any] = {name: self._arguments.get(name) for name in FLAG_OPTIONS}
        app = self._app
        for name, given in sources.items():
            if given is None:
                own = None if app is None or name == FORBIDDEN else getattr(app, name)
                configured = getattr(self.options, name)
                is_unset = configured is None if name == ALLOWLIST else not configured
                sources[name] = own if is_unset and callable(own) else None if is_unset else configured
        if app is not None:
            sources[FORBIDDEN] = joined_flags(app.forbidden_flags, sources[FORBIDDEN])
        return FlagSources(*sources.values())

    @cached_property
    def _retention_policy(self) -> RetentionPolicy | None:
        """Which finished jobs are kept; None if there is no history."""
        if not self.schema_found.has_history:
            return None
        retention = self.options.history.retention
        tasks = {
            name: task.rules.keep.resolved(retention) for name, task in self.tasks.items() if task.rules.keep
        }
        return RetentionPolicy(self.options.history.mode, default=Retention(retention), tasks=tasks)

    def make_recovery(self, pool: WorkerPool) -> Recovery:
        from ..metrics.minutes import StatisticsWriter
        from ..recovery.service import Recovery

        options = self.options
        statistics = None
        if pool.statistics is not None:
            statistics = StatisticsWriter(
                pool.statistics,
                options.schema_name,
                pool.id,
                heartbeat_interval=options.recovery.heartbeat_interval,
            )
        return Recovery(
            pool,
            self.options,
            self._connection_budget.database,
            self.dsn,
            pool.task_identifiers,
            self.hooks,
            self._clock,
            has_tables=self.schema_found.has_tables,
            has_rust_register=self.schema_found.has_rust_register,
            statistics=statistics,
            maintenance_tasks=self._maintenance_tasks(pool),
            retention_policy=self._retention_policy,
            handlers=self._handlers,
            description=self._description(),
            get_places=None if self.executors is None else self.executors.places,
        )

    def _description(self) -> Description | None:
        """What this worker says about itself; a short run says nothing."""
        if self.once:
            return None
        from ..recovery.registry.pool_state import LaneDescription
        from ..recovery.registry.registering import Description

        lanes = [
            LaneDescription(name=lane.name, slots=lane.concurrency, tasks=sorted(lane.tasks))
            for lane in self.lanes
        ]
        schedules: Sequence[ScheduleDefinition] = ()
        if self.cron_items:
            from ..cron.item_jobs import schedule_definitions

            schedules = schedule_definitions(self.cron_items, self.tasks)
        from ..tasks.payload_schema import description_of

        return Description(
            app_version=self.options.app_version,
            lanes=lanes,
            schedules=schedules,
            flags=self._flags.description,
            tasks=[(name, description_of(task)) for name, task in self.tasks.items()],
        )

    @cached_property
    def _handlers(self) -> dict[str, FailureHandler]:
        """What tasks have added when a job has failed permanently."""
        return {
            name: rules.on_failure
            for name, task in self.tasks.items()
            if (rules := task.rules.failure_rules) is not None and rules.on_failure is not None
        }

    def _maintenance_tasks(self, pool: WorkerPool) -> list[MaintenanceTask]:
        """Regular work that one pool does for all."""
        from ..history.upkeep import history_maintenance
        from ..metrics.upkeep import statistics_maintenance

        options = self.options
        maintenance_tasks: list[MaintenanceTask] = []
        if (counter := pool.statistics) is not None:
            maintenance_tasks += statistics_maintenance(options.schema_name, lambda: counter.is_active)
        if self._retention_policy is not None:
            maintenance_tasks += history_maintenance(options, self._retention_policy)
        if self._handlers and self.schema_found.has_failure_handlers:
            from ..recovery.cancelled_jobs import NotifyFailureHandlers

            maintenance_tasks.append(NotifyFailureHandlers(options.schema_name, self._handlers))
        return maintenance_tasks

    def make_cron(self) -> CronScheduler:
        from ..cron import CronScheduler

        return CronScheduler(
            self._connection_budget.to_cron,
            self.options.schema_name,
            self.cron_items,
            hooks=self.hooks,
            clock=self._clock,
            tasks=self.tasks,
            logger=self._log.cron_logger,
            is_registered=self.schema_found.has_schedules,
            by_server_time=not self.options.use_local_time and not is_led(self._clock),
        )

    def make_stale_locks(self, pool_id: str) -> StaleLocks:
        from ..recovery.sweeper import StaleLocks

        database = self._connection_budget.database
        return StaleLocks(database, self.options, self.hooks.events, self._clock, pool_id=pool_id)

    def log_ready(self, pool_id: str) -> None:
        self._log.ready(
            version=__version__,
            pool_id=pool_id,
            tasks=tuple(self.tasks),
            cron_items=len(self.cron_items),
            concurrency=self.options.concurrency,
            lanes={lane.name: lane.concurrency for lane in self.lanes if not lane.is_main},
            database=self.dsn.name if self.dsn is not None else "the given pool",
            schema=self.options.schema,
        )


def _app_of(arguments: RunArguments | RunOnceArguments) -> App | None:
    if (app := arguments.get("app")) is None:
        return None
    from .application import as_app

    return as_app(app)


def _check_conflicts(arguments: RunArguments | RunOnceArguments) -> None:
    if arguments.get("task_list") is not None and "task_directory" in arguments:
        raise ConfigError("both task_list and task_directory are set; give exactly one of them")
    if arguments.get("crontab_file") is None:
        return
    for name in ("crontab", "parsed_cron_items"):
        if arguments.get(name) is not None:
            raise ConfigError(f"both {name} and crontab_file are set; give only one of them")
