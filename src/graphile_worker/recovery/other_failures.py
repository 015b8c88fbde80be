"""Tells the handlers of `@task(on_failure=…)` of failures that no worker of this package has written.

A worker adds the handler's job with the failure itself. Node and Rust workers, and people who fail jobs by
hand, do not know of handlers; one pool looks for their failures every minute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ..db.connection import Connection
from ..failure_handler import FailureHandler
from ..job import Job
from ..queries.add_many import add_jobs
from ..queries.write_plan import CUT_OFF
from ..schema_name import SchemaName
from ..sql import load

STEP = 200  # failures per transaction
PURGE = 1_000  # notes per transaction
NO_ERROR = "no error was stored"


class NotifyFailureHandlers:
    """A maintenance task of pools whose tasks have handlers: see `maintenance_tasks.py`."""

    interval = 60.0

    def __init__(self, schema: SchemaName, handlers: Mapping[str, FailureHandler]) -> None:
        """`handlers`: by the identifier of the task that fails."""
        self._schema = schema
        self._handlers = handlers
        tasks = hashlib.blake2b("\0".join(sorted(handlers)).encode(), digest_size=4).hexdigest()
        # Pools with the same handlers share the maintenance task; others have their own.
        self.name = f"failures of others ({tasks})"

    async def run(self, connection: Connection) -> bool:
        """Tell some; return whether there may be more."""
        schema, identifiers = self._schema, sorted(self._handlers)
        async with connection.transaction():
            await connection.execute(load("recovery/follow_failures", schema), identifiers)
            rows = await connection.fetch(
                load("recovery/unnotified_failures", schema), identifiers, CUT_OFF, STEP
            )
            jobs = [Job(*row) for row in rows]
            specs = [
                self._handlers[job.task_identifier].spec(job, job.last_error or NO_ERROR) for job in jobs
            ]
            await add_jobs(connection, schema, specs, return_jobs=False)
            await connection.execute(load("recovery/purge_notified_failures", schema), PURGE)
        return len(jobs) >= STEP
