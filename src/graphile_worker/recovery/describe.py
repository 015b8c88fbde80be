"""What a worker pool says about itself beyond its registration, once per start.

That is its version, lanes, crontab, forbidden flags, and what it knows about its tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import explained, sqlstate_of
from ..queries.schedules import ScheduleDefinition, register_schedules
from ..queries.task_descriptions import TaskDescription, describe_tasks
from ..schema_name import SchemaName
from ..sql import load

REFUSED = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.READ_ONLY_SQL_TRANSACTION,
)

logger = logging.getLogger("graphile_worker.recovery")


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a pool."""

    name: str
    slots: int
    tasks: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """More about a pool, for those who look at workers. It works without."""

    app_version: str | None = None
    lanes: Sequence[LaneDescription] = ()
    schedules: Sequence[ScheduleDefinition] = ()
    forbidden_flags: Sequence[str] | None = None
    """None if they may change."""
    tasks: Sequence[tuple[str, TaskDescription]] = ()


async def describe_worker(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    description: Description,
    *,
    timeout: float | None = None,
) -> None:
    """Write it beside the row of a pool that is registered. A refusal is no reason not to work."""
    try:
        await connection.execute(
            load("recovery/describe_worker", schema),
            pool_id,
            description.app_version,
            msgspec.json.encode(list(description.lanes)).decode(),
            timeout=timeout,
        )
        if description.schedules:
            await register_schedules(connection, schema, pool_id, description.schedules, timeout=timeout)
        await describe_tasks(
            connection,
            schema,
            pool_id,
            forbidden_flags=description.forbidden_flags,
            tasks=description.tasks,
            timeout=timeout,
        )
    except Exception as error:
        if sqlstate_of(error) not in REFUSED:
            raise
        logger.debug("this worker cannot say more about itself: %s", explained(error))
