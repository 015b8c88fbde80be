"""What a worker is built from: makes each of its parts, and lends connections to tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..client import WorkerUtils
from ..clock import Clock
from ..db.connection import Connection, Pool
from ..db.dsn import Dsn
from ..db.open import lend
from ..hooks import Events, Hooks
from ..observability.log_plugin import LogPlugin
from ..options import WorkerOptions
from ..queries.names import get_queue_names
from ..recovery.stale_locks import StaleLocks
from ..tasks.extensions import Extensions
from ..tasks.queue_names import QueueNames
from ..tasks.services import WorkerServices
from ..version import __version__
from ..worker.fetcher import FlagSource
from ..worker.pool import SESSIONS_WITH_LISTENER, WorkerPool

if TYPE_CHECKING:
    from ..cron import CronScheduler
    from ..recovery.service import Recovery
    from .arguments import Opened

SILENT_FOR = 120.0  # seconds after which recurring jobs give a connection up


class Parts:
    """What a worker is built from, checked but not started."""

    def __init__(
        self,
        options: WorkerOptions,
        opened: Opened,
        resources: AsyncExitStack,
        hooks: Hooks,
        events: Events,
        log: LogPlugin,
        *,
        clock: Clock,
        extensions: Iterable[object] | Mapping[type[Any], object],
        forbidden_flags: FlagSource,
    ) -> None:
        self.options = options
        self.resources = resources
        self.database = database = opened.database
        self.database_name = opened.database_name
        self.dsn = opened.dsn
        self.has_tables = opened.has_tables
        self.tasks = opened.tasks
        self.cron_items = opened.cron_items
        self.hooks = hooks
        self.events = events
        """Where the user observes; the same object may serve other runs."""
        self.log = log
        self.clock = clock
        self.forbidden_flags = forbidden_flags
        self.client = WorkerUtils(
            database,
            schema=options.schema_name,
            use_local_time=options.use_local_time,
            hooks=hooks,
            clock=clock,
            source="worker",
        )
        kept = SESSIONS_WITH_LISTENER + _kept_for_recovery(options, database, self.dsn)
        self._for_tasks = asyncio.Semaphore(max(1, database.get_max_size() - kept))
        self.services = WorkerServices(
            client=self.client,
            acquire=self._lend_to_task,
            queue_names=QueueNames(self._queue_names, delay=options.get_queue_name_batch_delay, clock=clock),
            loop=asyncio.get_running_loop(),
            extensions=Extensions(extensions),
            executables_inherit_database=options.executables_inherit_database,
            logger=log.job_logger,
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
        from ..recovery.service import Recovery

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
        from ..cron import CronScheduler

        return CronScheduler(
            self._lend_in_time,
            self.options.schema_name,
            self.cron_items,
            hooks=self.hooks,
            clock=self.clock,
            known_tasks=tuple(self.tasks),
            logger=self.log.cron_logger,
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


def _kept_for_recovery(options: WorkerOptions, database: Pool, dsn: Dsn | None) -> int:
    """How many connections of a caller's pool recovery takes for itself; none if we know the address."""
    if dsn is not None:
        return 0
    from ..recovery.service import Recovery

    return Recovery.connections_kept(options, database, dsn)
