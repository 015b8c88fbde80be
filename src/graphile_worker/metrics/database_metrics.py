"""DatabaseMetrics: gauges about the database in a registry of `prometheus_client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..client import make_worker_utils
from ..database.connections.connection import Connection
from ..errors import ConfigError
from ..values.options import WorkerOptions
from .catalogue import MAX_TASKS
from .database_reader import DatabaseReader
from .families import Family
from .prometheus import REGISTRY, Collector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ..client import WorkerUtils
    from ..hooks import Hooks, WorkerContext

EVERY = 15.0
STATEMENT_TIMEOUT = 5.0


def collector_of(reader: DatabaseReader, more: Sequence[Family] = ()) -> Collector:
    """Gives a registry what was read last, and `more`.

    It describes nothing: a registry takes the gauge `jobs` for the counter `jobs_total` of workers.
    """
    return Collector(lambda: (*more, *reader.gauges()))


class DatabaseMetrics:
    """Reads gauges about the database in the background: `async with DatabaseMetrics(utils): …`.

    Let one process do it: what is waiting is the same for all. `graphile-worker exporter` is such a process.
    """

    def __init__(
        self,
        utils: WorkerUtils,
        *,
        every: float = EVERY,
        statement_timeout: float = STATEMENT_TIMEOUT,
        max_tasks: int = MAX_TASKS,
        queues: Collection[str] = (),
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`every` and `statement_timeout` are seconds.

        `max_tasks`: tasks with a label of their own. `queues`: named queues with a label of their own; if
        there are none, all queues have one, as long as they are few.
        """
        if every <= 0 or statement_timeout <= 0:
            raise ConfigError("every and statement_timeout: must be more than 0 seconds")
        self._registry = registry or REGISTRY
        self._reader = DatabaseReader(
            utils.pool.acquire,
            utils.schema,
            every=every,
            statement_timeout=statement_timeout,
            max_tasks=max_tasks,
            queues=queues,
        )
        self._collector = collector_of(self._reader)

    async def __aenter__(self) -> Self:
        self._reader.start()
        self._registry.register(self._collector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._registry.unregister(self._collector)
        await self._reader.stop()


class DatabaseMetricsPlugin:
    """The gauges about the database from a worker: of several workers, the one that holds a lock has them."""

    def __init__(self) -> None:
        self._reader: DatabaseReader | None = None
        self._collector: Collector | None = None

    def install(self, hooks: Hooks) -> None:
        """Nothing to observe."""

    async def start(self, worker: WorkerContext) -> None:
        """Read on a connection of its own, which holds the lock."""
        self._reader = own_reader(worker.options, is_exclusive=True)
        self._collector = collector_of(self._reader)
        REGISTRY.register(self._collector)
        self._reader.start()

    async def stop(self) -> None:
        """Read no more; another worker takes over."""
        if self._reader is not None and self._collector is not None:
            REGISTRY.unregister(self._collector)
            await self._reader.stop()


def own_reader(options: WorkerOptions, *, is_exclusive: bool = False, **more: Any) -> DatabaseReader:
    """A reader with a connection of its own. The database need not answer yet when the reader starts."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Connection]:
        own = options.with_values(plugins=[])
        async with make_worker_utils(options=own, max_pool_size=1) as utils, utils.pool.acquire() as found:
            yield found

    values = {"every": EVERY, "statement_timeout": STATEMENT_TIMEOUT, "max_tasks": MAX_TASKS} | more
    return DatabaseReader(
        connect, options.schema_name, keeps_connection=True, is_exclusive=is_exclusive, **values
    )
