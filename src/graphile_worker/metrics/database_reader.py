"""Gauges about a database: reading them once, and at intervals.

    ready = await read_ready_gauges(connection, schema)      # 200 pages of the jobs table; every few seconds
    table = await read_table_gauges(connection, schema)      # as many, and the queues; once a minute will do

The cost does not depend on the number of jobs. `DatabaseReader` reads them in the background. A scrape shows
what was read last, so it never waits for the database, however often it comes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from ..database.connections.connection import Connection
from ..database.connections.errors import explained
from ..database.connections.statement import bounded_transaction
from ..database.sql import load
from ..database.statements.inspection import count_by_task
from ..hooks.faults import Supervised
from ..values.schema_name import SchemaName
from . import catalogue
from .backlog import read_backlog, read_queue_depths
from .families import Family, family, single

COUNTED_PAGES = 100
"""Of the jobs table that are read to count jobs by task; of a larger table, as many are a sample."""
LABELS = {"running": "locked"}
"""Values of the label `state` that differ from the state: dashboards and alerts of users have them."""


async def read_ready_gauges(connection: Connection, schema: SchemaName) -> list[Family]:
    """What changes quickly: ready jobs, the oldest of them, and worker pools."""
    backlog = await read_backlog(connection, schema)
    found = ready_gauges(backlog.ready, backlog.oldest_wait)
    if await connection.fetchval(load("statistics/has_workers", schema), schema.name):
        pools = await count_pools(connection, schema)
        found += pool_gauges(pools["alive"], pools["unreachable"])
    return found


async def read_table_gauges(
    connection: Connection,
    schema: SchemaName,
    *,
    queues: Collection[str] = (),
    max_tasks: int = catalogue.MAX_TASKS,
) -> list[Family]:
    """What changes slowly: jobs by task and state, waiting jobs by queue, the size of the table.

    `queues`: names of queues with a label of their own. Without names, all queues if they are few.
    """
    counts, is_estimate = await count_by_task(connection, schema, COUNTED_PAGES)
    depths = await read_queue_depths(connection, schema, queues)
    (row,) = await connection.fetch(load("statistics/table_state", schema), f"{schema.quoted}._private_jobs")
    by_task = [
        ((task, LABELS.get(state, state)), float(count))
        for task, states in bounded(counts, max_tasks).items()
        for state, count in states.items()
    ]
    by_queue = [((name,), float(depth)) for name, depth in depths.items()]
    return [
        family(catalogue.JOBS_IN_TABLE, by_task),
        single(catalogue.JOBS_ARE_ESTIMATED, float(is_estimate)),
        *([family(catalogue.QUEUE_JOBS, by_queue)] if by_queue else []),
        single(catalogue.TABLE_BYTES, row["bytes"]),
        single(catalogue.DEAD_ROWS, row["dead_rows"]),
    ]


def ready_gauges(ready: int, oldest_wait: float) -> list[Family]:
    """How many jobs are ready, and since when the oldest is."""
    return [
        single(catalogue.OLDEST_READY, oldest_wait),
        single(catalogue.READY, min(ready, catalogue.READY_CAP)),
        single(catalogue.READY_IS_CAPPED, float(ready >= catalogue.READY_CAP)),
    ]


def pool_gauges(alive: int, lost: int) -> list[Family]:
    """How many worker pools there are."""
    return [family(catalogue.WORKERS, [(("alive",), float(alive)), (("lost",), float(lost))])]


async def count_pools(connection: Connection, schema: SchemaName) -> dict[str, int]:
    """Pools: `alive`, `unreachable`; and of those that are alive `slots`, `held` and `running` jobs."""
    (row,) = await connection.fetch(load("statistics/count_workers", schema), schema.name)
    return dict(row.items())


def bounded(counts: Mapping[str, Mapping[str, int]], most: int) -> dict[str, Counter[str]]:
    """The tasks with the most jobs; the rest is `other`."""
    found: dict[str, Counter[str]] = {}
    for task in sorted(counts, key=lambda task: -sum(counts[task].values())):
        name = task if len(found) < most else catalogue.OTHER
        found.setdefault(name, Counter()).update(counts[task])
    return found


TABLE_EVERY = 60.0  # seconds between two counts of jobs by task and queue, which change slowly
WITHDRAWN_AFTER = 3.0  # intervals without a success

logger = logging.getLogger("graphile_worker.metrics")

Connect = Callable[[], AbstractAsyncContextManager[Connection]]


class DatabaseReader:
    """What the database said last, and when."""

    def __init__(
        self,
        connect: Connect,
        schema: SchemaName,
        *,
        every: float,
        statement_timeout: float,
        max_tasks: int,
        queues: Collection[str] = (),
        keeps_connection: bool = False,
        is_exclusive: bool = False,
    ) -> None:
        """`keeps_connection`: use one connection as long as it works.

        `is_exclusive`: read only while this process holds the lock of the exporter, so that one of several
        workers does. It needs a connection that is kept.
        """
        self._connect = connect
        self._schema = schema
        self._every = every
        self._statement_timeout = statement_timeout
        self._max_tasks = max_tasks
        self._queues = queues
        self._keeps_connection = keeps_connection
        self._is_exclusive = is_exclusive
        self._ready: Sequence[Family] = ()
        self._table: Sequence[Family] = ()
        self._table_read_at = -TABLE_EVERY
        self._succeeded_at: float | None = None  # by the monotonic clock
        self._last_success = 0.0  # by the wall clock, for people
        self._has_turn = not is_exclusive
        self._is_failing = False
        self._loop = Supervised(self._run, "metrics")
        self.is_up = False
        """Whether the last attempt to read succeeded."""

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    def gauges(self) -> list[Family]:
        """What is known; may be called from any thread. Old values are withdrawn."""
        if not self._has_turn:
            return []
        found = [
            single(catalogue.EXPORTER_UP, float(self.is_up)),
            single(catalogue.LAST_SUCCESS, self._last_success),
        ]
        since = self._succeeded_at
        if since is None or time.monotonic() - since > WITHDRAWN_AFTER * self._every:
            return found
        return [*self._ready, *self._table, *found]

    async def _run(self) -> None:
        while True:
            try:
                async with self._connect() as connection:
                    await self._follow(connection)
            except Exception as error:
                if not self._is_failing:  # one line for each outage
                    logger.warning(
                        "metrics of the database cannot be read: %s", explained(error, self._schema)
                    )
                self._is_failing = True
                self.is_up = False
                self._has_turn = not self._is_exclusive
            await asyncio.sleep(self._every)

    async def _follow(self, connection: Connection) -> None:
        """Read once, or as long as the connection works."""
        while True:
            if not self._has_turn:
                lock = load("statistics/lock_exporter", self._schema)
                self._has_turn = bool(await connection.fetchval(lock, self._schema.name))
            if self._has_turn:
                await self._read(connection)
            if not self._keeps_connection:
                return
            await asyncio.sleep(self._every)

    async def _read(self, connection: Connection) -> None:
        bound = str(round(self._statement_timeout * 1000))
        async with (
            asyncio.timeout(4 * self._statement_timeout),
            bounded_transaction(connection, self._schema, bound, bound, readonly=True),
        ):
            self._ready = await read_ready_gauges(connection, self._schema)
            if time.monotonic() - self._table_read_at >= TABLE_EVERY:
                self._table = await read_table_gauges(
                    connection, self._schema, queues=self._queues, max_tasks=self._max_tasks
                )
                self._table_read_at = time.monotonic()
        self._succeeded_at = time.monotonic()
        self._last_success = time.time()
        if self._is_failing:
            self._is_failing = False
            logger.info("metrics of the database can be read again")
        self.is_up = True
