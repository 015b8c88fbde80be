"""Tasks that have ready jobs, found in the first jobs of each priority: cheap with a million jobs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load
from ..text import count

READ_JOBS = 500
"""How many ready jobs of each priority are read."""


class ReadyTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its ready jobs, as far as they were read."""

    task_identifier: str
    jobs: int
    has_more: bool
    """Whether some ready jobs, perhaps of this task, were not read."""
    age: float
    """Seconds since the oldest could have run."""
    in_locked_queues: int
    """Jobs that wait until a named queue is unlocked; the next two fields are about the oldest."""
    queue_name: str | None
    locked_by: str | None
    free_age: float | None
    """Seconds since the oldest of the other jobs could have run; the next fields are about these too."""
    flagged: int
    """Jobs with flags."""
    flags: list[str]

    @property
    def number(self) -> str:
        """The number of jobs, for people."""
        return f"at least {count(self.jobs, 'job')}" if self.has_more else count(self.jobs, "job")

    @property
    def waiting(self) -> str:
        """The beginning of a sentence: `2 jobs wait`."""
        return f"{self.number} {'waits' if self.jobs == 1 else 'wait'}"


async def ready_tasks(
    connection: Connection, schema: SchemaName, *, now: datetime | None = None, limit: int = READ_JOBS
) -> list[ReadyTask]:
    """Tasks with ready jobs, the oldest job first. `now` replaces the server's clock.

    `limit`: how many jobs of each priority to read.
    """
    rows = await connection.fetch(load("names/ready_tasks", schema), now, limit)
    return [ReadyTask(**dict(row.items())) for row in rows]
