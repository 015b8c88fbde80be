"""The arguments of `run` and `run_once`: combined with the configuration, checked, and made into parts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import Clock, SystemClock
from ..config import combine
from ..db.connection import AnyConnection, AnyPool, Pool
from ..db.dsn import Dsn
from ..db.errors import translate_errors
from ..db.open import close_pool, open_pool, resolve_connection
from ..db.single import SingleConnection, is_connection
from ..errors import ConfigError
from ..hooks import Events, Hooks, Plugin
from ..migrate.run import migrate
from ..observability.log_plugin import LogPlugin
from ..options import WorkerOptions
from ..queries.names import is_anything_waiting
from ..tasks.registry import TaskRegistry, build_registry
from .pool_size import pool_size

if TYPE_CHECKING:
    from ..cron import ParsedCronItem
    from ..tasks.registry import TaskList
    from ..worker.fetcher import FlagSource
    from .parts import Parts

CLOSE_WITHIN = 5.0  # seconds for connections that a task still holds to come back


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What the arguments came to: read, checked, the database open and its schema installed."""

    database: Pool
    dsn: Dsn | None
    tasks: TaskRegistry
    cron_items: Sequence[ParsedCronItem]
    has_tables: bool
    """Whether this package's own tables and indexes are there too."""

    @property
    def database_name(self) -> str:
        return self.dsn.name if self.dsn is not None else "the given pool"


class Arguments:
    """The arguments of `run` and `run_once` as they came."""

    def __init__(
        self,
        pg_pool: AnyPool | AnyConnection | None,
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
        *,
        once: bool = False,
    ) -> None:
        if task_list is not None and "task_directory" in values:
            raise ConfigError("both task_list and task_directory are set; give exactly one of them")
        for name, given in (("crontab", crontab), ("parsed_cron_items", parsed_cron_items)):
            if given is not None and values.get("crontab_file") is not None:
                raise ConfigError(f"both {name} and crontab_file are set; give only one of them")
        if events is not None and hooks is not None:
            raise ConfigError("both events and hooks are set; give Hooks(events=...) alone")
        self.options = combine(options, values)
        self.has_crontab_file = (
            values.get("crontab_file") is not None
            or self.options.crontab_file != WorkerOptions().crontab_file
        )
        self.connection_string = self.options.connection_string
        if pg_pool is not None and values.get("connection_string") is None:
            self.connection_string = None  # one from the environment gives way to a pool that was given
        if once and is_connection(pg_pool):
            pg_pool = SingleConnection(pg_pool)
            # Nothing may stick to a foreign session, and no other session sees what it has not committed.
            self.options = self.options.with_values(recovery=False, prepared_statements=False)
        self.pg_pool = pg_pool
        self.task_list = task_list
        self.crontab = crontab
        self.parsed_cron_items = parsed_cron_items
        self.forbidden_flags = forbidden_flags
        self.given = hooks if hooks is not None else Hooks(events=events)
        self.hooks = self.given.for_run()  # the log and plugins must not pile up in what serves several runs
        self.plugins = tuple(plugins)
        self.extensions = extensions
        self.log = LogPlugin(logger)
        self.clock = clock if clock is not None else SystemClock()

    async def parts(self) -> Parts:
        """What the worker is built from."""
        async with AsyncExitStack() as resources:
            opened = await self._open(resources)
            return self._parts(opened, resources.pop_all())

    async def parts_if_any_job_waits(self) -> Parts | None:
        """The same for a run that ends when nothing is left; None if nothing waits and nobody looks on."""
        is_watched = bool(self.plugins or self.hooks.events.observed)
        async with AsyncExitStack() as resources:
            opened = await self._open(resources)
            async with opened.database.acquire() as connection:
                with translate_errors(self.options.schema_name):
                    waits = await is_anything_waiting(
                        connection, self.options.schema_name, tuple(opened.tasks)
                    )
            if waits or is_watched:
                return self._parts(opened, resources.pop_all())
            if opened.dsn is not None:
                opened.database.terminate()  # nothing is under way, so there is nothing to wait for
        self.log.nothing_waits()
        return None

    async def _open(self, resources: AsyncExitStack) -> Opened:
        options = self.options
        found = resolve_connection(self.connection_string, self.pg_pool)
        tasks = self._tasks()
        cron_items = self._cron_items()
        for plugin in (self.log, *self.plugins):
            plugin.install(self.hooks)
        if isinstance(found, Dsn):
            database = await open_pool(
                found,
                max_pool_size=pool_size(options),
                prepared_statements=options.prepared_statements,
            )
            resources.push_async_callback(close_pool, database, within=CLOSE_WITHIN)
        else:
            database = found
        async with database.acquire() as connection:
            with translate_errors(options.schema_name):
                report = await migrate(connection, options.schema_name)
        return Opened(
            database=database,
            dsn=found if isinstance(found, Dsn) else None,
            tasks=tasks,
            cron_items=cron_items,
            has_tables=report.has_tables,
        )

    def _parts(self, opened: Opened, resources: AsyncExitStack) -> Parts:
        from .parts import Parts  # with all of a worker, which is only loaded when there is something to do

        return Parts(
            self.options,
            opened,
            resources,
            self.hooks,
            self.given.events,
            self.log,
            clock=self.clock,
            extensions=self.extensions,
            forbidden_flags=self.forbidden_flags,
        )

    def _tasks(self) -> TaskRegistry:
        if self.task_list is not None:
            return build_registry(self.task_list)
        from ..tasks.load import load_tasks

        return load_tasks(self.options.task_directory)

    def _cron_items(self) -> Sequence[ParsedCronItem]:
        """A program that gives its tasks itself has no crontab file unless it names one."""
        if self.crontab is None and self.parsed_cron_items is None and not self.has_crontab_file:
            if self.task_list is not None:
                return ()
            if not Path(self.options.crontab_file).exists():
                self.log.no_crontab(self.options.crontab_file)
                return ()
        from ..cron import collect_cron_items

        return collect_cron_items(
            crontab=self.crontab,
            parsed_cron_items=self.parsed_cron_items,
            crontab_file=self.options.crontab_file,
            must_exist=self.has_crontab_file,
        )
