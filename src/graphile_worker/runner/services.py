"""Small parts of a worker: what tasks get, context variables, sizes of pools, the application's clock.

What the tasks of a worker get through their helpers.

The context variables of the engine: those of the program that starts it, and what plugins set for it.

asyncio tasks inherit the context in which they are created, so it is enough to create the first ones in it.

Divides the connections that `max_pool_size` allows between the pool and the heartbeat.

GuardedClock: a clock that the application passed. Where it fails, the machine's clock is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from datetime import datetime
from typing import Any, TypeVar

from ..client import WorkerUtils
from ..database.statements.fetch import get_queue_names
from ..errors import ConfigError
from ..hooks import Hooks
from ..hooks.faults import is_our_end, report
from ..tasks.queue_names import QueueNames
from ..tasks.services import Extensions, Overrides, WorkerServices
from ..values.clock import Clock, SystemClock
from ..values.options import SMALLEST_POOL, SMALLEST_POOL_FOR_RECOVERY, WorkerOptions
from .connection_budget import ConnectionBudget


def make_services(
    options: WorkerOptions,
    client: WorkerUtils,
    connection_budget: ConnectionBudget,
    hooks: Hooks,
    *,
    extensions: Extensions,
    overrides: Overrides | None,
    logger: logging.Logger,
    clock: Clock,
) -> WorkerServices:
    async def queue_names(ids: Sequence[int]) -> list[str | None]:
        async with connection_budget.database.acquire() as connection:
            return await get_queue_names(connection, options.schema_name, ids)

    return WorkerServices(
        client=client,
        acquire=connection_budget.to_task,
        queue_names=QueueNames(queue_names, delay=options.get_queue_name_batch_delay, clock=clock),
        loop=asyncio.get_running_loop(),
        extensions=extensions,
        overrides=overrides,
        executables_inherit_database=options.executables_inherit_database,
        environments=hooks.table.environments,
        logger=logger,
    )


T = TypeVar("T")


class EngineContext:
    """Starts parts of the engine in its context; in that of the caller, if no plugin sets anything."""

    def __init__(self, variables: Sequence[Callable[[], object]]) -> None:
        """`variables`: functions that set context variables."""
        self._context: Context | None = copy_context() if variables else None
        for function in variables:
            self.call(function)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that starts tasks or threads."""
        return function() if self._context is None else self._context.run(function)

    async def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that starts some."""
        if self._context is None:
            return await coroutine
        return await asyncio.get_running_loop().create_task(coroutine, context=self._context.copy())


def pool_size(options: WorkerOptions) -> int:
    """The size of a worker's connection pool; the heartbeat has its own connection.

    With two or three connections there is no heartbeat, and with two the worker polls instead of listening;
    `recovery.service` and `worker.pool` log that.
    """
    most = options.max_pool_size
    if most < SMALLEST_POOL:
        raise ConfigError(
            f"max_pool_size: a worker needs at least {SMALLEST_POOL} database connections, one for itself "
            f"and one for its tasks; got {most}"
        )
    return most - 1 if options.recovery and most >= SMALLEST_POOL_FOR_RECOVERY else most


logger = logging.getLogger("graphile_worker.worker")


class GuardedClock:
    """Whatever the clock raises is logged."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._machine = SystemClock()

    def now(self) -> datetime:
        """The wall time."""
        try:
            return self._clock.now()
        except BaseException as error:
            report(logger, "the clock failed", error=error)
            return self._machine.now()

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        try:
            return self._clock.monotonic()
        except BaseException as error:
            report(logger, "the clock failed", error=error)
            return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds."""
        try:
            await self._clock.sleep(seconds)
        except BaseException as error:
            if is_our_end(error):
                raise
            report(logger, "the clock failed", error=error)
            await asyncio.sleep(seconds)
