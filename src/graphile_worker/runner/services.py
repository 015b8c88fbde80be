"""What the tasks of a worker get through their helpers, and the context variables of the engine.

The variables are those of the program that starts it, and what plugins set for it. asyncio tasks inherit the
context in which they are created, so it is enough to create the first ones in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar

from ..client import WorkerUtils
from ..database.statements.fetch import get_queue_names
from ..hooks import Hooks
from ..tasks.queue_names import QueueNames
from ..tasks.services import Extensions, Overrides, WorkerServices
from ..values.clock import Clock
from ..values.options import WorkerOptions
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
