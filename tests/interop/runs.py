"""What ran where: the table `interop_runs`, into which the tasks of the Node and the Python workers write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from graphile_worker.values.schema_name import SchemaName
from support.working import until

TABLE = """
    CREATE TABLE IF NOT EXISTS public.interop_runs (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        worker text NOT NULL,
        job_id bigint NOT NULL,
        task text NOT NULL,
        payload json,
        queue text,
        attempt integer NOT NULL,
        key text,
        priority integer NOT NULL,
        flags jsonb,
        started timestamptz NOT NULL DEFAULT clock_timestamp(),
        ended timestamptz
    )
"""

OVERLAPS = """
    SELECT a.queue, a.id, b.id
    FROM public.interop_runs a
    JOIN public.interop_runs b ON b.queue = a.queue AND b.id > a.id
    WHERE a.started < b.ended AND b.started < a.ended
"""


@dataclass(frozen=True)
class Run:
    """One call of a task."""

    worker: str
    job_id: int
    task: str
    payload: Any
    queue: str | None
    attempt: int
    key: str | None
    priority: int
    flags: Any
    started: datetime
    ended: datetime | None


class Runs:
    """The recorded runs of one database, and waiting for them."""

    def __init__(self, connection: Any, schema: str = "graphile_worker") -> None:
        self._connection = connection
        self._jobs = f"{SchemaName(schema).quoted}._private_jobs"

    async def prepare(self) -> None:
        await self._connection.execute(TABLE)

    async def all(self) -> list[Run]:
        """Every run so far, in the order in which they began."""
        columns = ", ".join(Run.__dataclass_fields__)
        rows = await self._connection.fetch(f"SELECT {columns} FROM public.interop_runs ORDER BY started, id")
        return [
            Run(**dict(row) | {"payload": decoded(row["payload"]), "flags": decoded(row["flags"])})
            for row in rows
        ]

    async def overlaps(self) -> list[tuple[Any, ...]]:
        """Pairs of runs of one queue that ran at the same time."""
        return [tuple(row) for row in await self._connection.fetch(OVERLAPS)]

    async def wait_until(self, condition: str, *arguments: Any) -> None:
        """Until this SQL condition holds; `{jobs}` in it stands for the table of jobs."""
        statement = "SELECT " + condition.format(jobs=self._jobs)
        await until(lambda: self._connection.fetchval(statement, *arguments))

    async def wait_until_listening(self) -> None:
        """Until a worker listens for new jobs and migrations in this database."""
        await self.wait_until(
            "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE $1)",
            "LISTEN%",
        )

    async def wait_until_idle(self) -> None:
        """Until nothing is running and nothing is ready to run."""
        ready = "is_available AND run_at <= now()"
        await self.wait_until(f"NOT EXISTS (SELECT FROM {{jobs}} WHERE locked_at IS NOT NULL OR {ready})")


def decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
