"""What the tasks of a worker get through their helpers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..client import WorkerUtils
from ..clock import Clock
from ..hooks import Hooks
from ..options import WorkerOptions
from ..queries.names import get_queue_names
from ..tasks.extensions import Extensions
from ..tasks.overrides import Overrides
from ..tasks.queue_names import QueueNames
from ..tasks.services import WorkerServices
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
