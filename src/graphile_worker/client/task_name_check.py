"""TaskNameCheck: warns if a job was added for a task that no worker has registered.

Each name is checked once per process, in the background after its first job was added, on a connection of the
client: never in a transaction of the caller. A failed check is only logged for debugging. While no worker has
run at all there is nothing to compare a name with, so it is checked again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..values.job import Job
from ..values.schema_name import SchemaName

if TYPE_CHECKING:
    from ..database.statements.inspection import KnownTasks

CHECK_WITHIN = 10.0  # seconds
CHECK_AGAIN_AFTER = 60.0
CLOSE_WITHIN = 1.0
MOST_NAMES = 10_000

logger = logging.getLogger("graphile_worker.client")
_checked: dict[str, set[str]] = {}


def checked_names(schema: SchemaName) -> set[str]:
    """The names that need no check in this process any more."""
    return _checked.setdefault(schema.name, set())


class TaskNameCheck:
    """The checks of one client."""

    def __init__(
        self,
        schema: SchemaName,
        connect: Callable[[], AbstractAsyncContextManager[Connection]],
        context: Callable[[], Context],
    ) -> None:
        """`context` makes the context of a check, which does not belong to the request that adds the job."""
        self._schema = schema
        self._connect = connect
        self._context = context
        self._checks: set[asyncio.Task[None]] = set()

    def check(self, job: Job) -> None:
        """Check the name of a job's task in the background."""
        names = checked_names(self._schema)
        if len(names) >= MOST_NAMES:
            return
        names.add(job.task_identifier)
        check = asyncio.get_running_loop().create_task(
            self._check(job.task_identifier, job.id),
            name="graphile-worker task name",
            context=self._context(),
        )
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def close(self) -> None:
        """Let checks in progress end, for a moment."""
        if self._checks:
            checks = set(self._checks)
            await asyncio.wait(checks, timeout=CLOSE_WITHIN)
            for check in checks:
                check.cancel()
            await asyncio.wait(checks)

    async def _check(self, name: str, job_id: int) -> None:
        try:
            async with asyncio.timeout(CHECK_WITHIN), self._connect() as connection:
                known = await _known(connection, self._schema, job_id, name)
        except Exception as error:  # perhaps the role may not read the tables, or the pool was closed
            logger.debug("could not check whether the task %r is known: %s", name, error)
            return
        if known is None:
            return
        if known.is_empty():  # a program that was started before its first worker
            forget = checked_names(self._schema).discard
            asyncio.get_running_loop().call_later(CHECK_AGAIN_AFTER, forget, name)
        elif (doubt := known.doubt(name)) is not None:
            logger.warning(
                "job %d waits for the task %r, which %s%s", job_id, name, doubt.reason, doubt.question
            )


async def _known(connection: Connection, schema: SchemaName, job_id: int, name: str) -> KnownTasks | None:
    """What is known about the name; None if a running worker has the task."""
    from ..database.statements.fetch import was_task_known, worker_task_names
    from ..database.statements.inspection import known_tasks

    try:
        if name in await worker_task_names(connection, schema):
            return None
    except Exception as error:
        if sqlstate_of(error) != sqlstates.UNDEFINED_TABLE:  # no Python worker has run here
            raise
    known = await known_tasks(connection, schema)
    if await was_task_known(connection, schema, name, job_id):
        return known
    return replace(known, recorded=known.recorded - {name})  # this job has brought it there
