"""The worker's statements, one by one, called as the worker does."""

from __future__ import annotations

from typing import Any

from graphile_worker.database.statements.fetch import (
    get_announced_jobs,
    get_jobs,
    get_plain_jobs,
    register_tasks,
)
from graphile_worker.database.statements.write import Written, write
from graphile_worker.database.statements.write_plan import Continuation, Failure, Outcomes, WritePlanner
from graphile_worker.values.job import Job
from graphile_worker.values.schema_name import SchemaName


class Statements:
    """The statements of one pool, on a connection of the test."""

    def __init__(self, connection: Any, tasks: dict[int, str], pool_id: str = "pool-1") -> None:
        self.connection = connection
        self.tasks = tasks
        self.pool_id = pool_id
        self.schema = SchemaName()

    def of(self, pool_id: str, connection: Any | None = None) -> Statements:
        """The same for another pool."""
        return Statements(connection or self.connection, self.tasks, pool_id)

    async def add_together(self, count: int) -> None:
        """Add jobs of the first task with one statement: they have the same run_at."""
        await self.connection.execute(
            f"insert into {self.schema.quoted}._private_jobs (task_id) "
            "select $1 from generate_series(1, $2::integer)",
            next(iter(self.tasks)),
            count,
        )

    async def fetch(self, limit: int = 1, **options: Any) -> list[Job]:
        return await get_jobs(
            self.connection, self.schema, pool_id=self.pool_id, tasks=self.tasks, limit=limit, **options
        )

    async def fetch_plain(self, limit: int = 1, **options: Any) -> list[Job]:
        """The fast path while no job of a named queue can be next."""
        return list(
            await get_plain_jobs(
                self.connection, self.schema, pool_id=self.pool_id, tasks=self.tasks, limit=limit, **options
            )
        )

    async def fetch_announced(self, limit: int = 1, **options: Any) -> list[Job]:
        """The fast path while all waiting jobs have one priority and none waits in a named queue."""
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
        continuation: Continuation | None = None,
    ) -> list[Job]:
        """Write outcomes; a failure is a job, its message and maybe what is left of its payload."""
        written = await self.written(completed=completed, failed=failed, continuation=continuation)
        return list(written.jobs)

    async def written(
        self,
        *,
        completed: list[Job] | None = None,
        failed: list[tuple[Any, ...]] | None = None,
        continuation: Continuation | None = None,
    ) -> Written:
        """The same, with the whole result."""
        done = completed or []
        failures = failed or []
        touched = [*done, *(failure[0] for failure in failures)]
        outcomes = Outcomes(
            completed=[job.id for job in done],
            failed=[Failure(failure[0].id, *failure[1:]) for failure in failures],
            queues=[job.job_queue_id for job in touched if job.job_queue_id is not None],
        )
        plan = WritePlanner(self.pool_id).plan(outcomes, continuation)
        return await write(self.connection, self.schema, plan)

    async def return_jobs(self, jobs: list[Job], **options: Any) -> set[int]:
        """Return jobs; the ids that were unlocked."""
        queues = [job.job_queue_id for job in jobs if job.job_queue_id is not None]
        outcomes = Outcomes(returned=[job.id for job in jobs], queues=queues, **options)
        written = await write(self.connection, self.schema, WritePlanner(self.pool_id).plan(outcomes))
        return set(outcomes.returned).difference(written.missing)


async def statements_on(connection: Any) -> Statements:
    """The statements of a pool with the tasks `hello` and `other`."""
    return Statements(connection, await register_tasks(connection, SchemaName(), ["hello", "other"]))
