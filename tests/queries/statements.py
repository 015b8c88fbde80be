"""Statements of the worker, called as it calls them, one by one."""

from __future__ import annotations

from typing import Any

from graphile_worker.job import Job
from graphile_worker.queries.fetch import get_announced_jobs, get_jobs, get_plain_jobs
from graphile_worker.queries.names import register_tasks
from graphile_worker.queries.write import Failure, Outcomes, Written, return_jobs, write_outcomes
from graphile_worker.schema_name import SchemaName


class Statements:
    """What one pool does, on a connection of the test."""

    def __init__(self, connection: Any, tasks: dict[int, str], pool_id: str = "pool-1") -> None:
        self.connection = connection
        self.tasks = tasks
        self.pool_id = pool_id
        self.schema = SchemaName()

    def of(self, pool_id: str, connection: Any | None = None) -> Statements:
        """The same for another pool."""
        return Statements(connection or self.connection, self.tasks, pool_id)

    async def fetch(self, limit: int = 1, **options: Any) -> list[Job]:
        return await get_jobs(
            self.connection, self.schema, pool_id=self.pool_id, tasks=self.tasks, limit=limit, **options
        )

    async def fetch_plain(self, limit: int = 1, **options: Any) -> list[Job]:
        """The short way, which is for the time while no job of a named queue can be next."""
        return list(
            await get_plain_jobs(
                self.connection, self.schema, pool_id=self.pool_id, tasks=self.tasks, limit=limit, **options
            )
        )

    async def fetch_announced(self, limit: int = 1, **options: Any) -> list[Job]:
        """The shortest way, which is for the time while jobs of one priority wait and none in a queue."""
        return list(
            await get_announced_jobs(
                self.connection, self.schema, pool_id=self.pool_id, tasks=self.tasks, limit=limit, **options
            )
        )

    async def write(
        self,
        *,
        completed: list[Job] | None = None,
        failed: list[tuple[Any, ...]] | None = None,
        **options: Any,
    ) -> list[Job]:
        """Write outcomes; a failure is a job, its message and maybe what is left of its payload."""
        return list((await self.written(completed=completed, failed=failed, **options)).jobs)

    async def written(
        self,
        *,
        completed: list[Job] | None = None,
        failed: list[tuple[Any, ...]] | None = None,
        **options: Any,
    ) -> Written:
        """The same, with all that became of the write."""
        done = completed or []
        failures = failed or []
        touched = [*done, *(failure[0] for failure in failures)]
        outcomes = Outcomes(
            completed=[job.id for job in done],
            failed=[Failure(failure[0].id, *failure[1:]) for failure in failures],
            queues=[job.job_queue_id for job in touched if job.job_queue_id is not None],
        )
        return await write_outcomes(self.connection, self.schema, self.pool_id, outcomes, **options)

    async def give_back(self, jobs: list[Job], **options: Any) -> set[int]:
        return set(await return_jobs(self.connection, self.schema, self.pool_id, jobs, **options))


async def statements_on(connection: Any) -> Statements:
    """Those of a pool that knows the tasks `hello` and `other`."""
    return Statements(connection, await register_tasks(connection, SchemaName(), ["hello", "other"]))
