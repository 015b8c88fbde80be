"""TaskNameCheck: warns if a job was added for a task that no worker knows, which is probably misspelt.

Each name is checked once per process, in the background after its first job was added, on a connection of the
client: never in a transaction of the caller. A failed check is only logged for debugging.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..values.job import Job
from ..values.schema_name import SchemaName

CHECK_WITHIN = 10.0  # seconds
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
                warning = await _warning(connection, self._schema, name, job_id)
        except Exception as error:  # perhaps the role may not read the tables, or the pool was closed
            logger.debug("could not check whether the task %r is known: %s", name, error)
            return
        if warning is not None:
            logger.warning("%s", warning)


async def _warning(connection: Connection, schema: SchemaName, name: str, job_id: int) -> str | None:
    from ..database.statements.fetch import known_task_names, was_task_known, worker_task_names
    from ..values.text import did_you_mean, similar_names

    try:
        of_workers = await worker_task_names(connection, schema)
    except Exception as error:
        if sqlstate_of(error) != sqlstates.UNDEFINED_TABLE:  # no Python worker has run here
            raise
        of_workers = set()
    if name in of_workers:
        return None
    if await was_task_known(connection, schema, name, job_id):
        meant, verb = similar_names(name, of_workers), "no running worker has"
        if not meant:  # its worker is not running now
            return None
    else:
        recorded = await known_task_names(connection, schema) - {name}
        meant = similar_names(name, of_workers) or similar_names(name, recorded)
        verb = "no worker has run yet"
    return f"job {job_id} waits for the task {name!r}, which {verb}{did_you_mean(meant)}"
