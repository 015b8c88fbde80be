"""A scratch schema that benchmarks fill and clear. Not a benchmark itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
from benchmarks.worker_process import TASK

from graphile_worker.cli.commands.bench import scratch_schema
from graphile_worker.options import WorkerOptions

FOREIGN, PROBE, LOAD = "bench_foreign", "bench_probe", "bench_load"
BETTER = -10
"""The priority of jobs that come before those that can run."""
DAY = 86400.0
FILL = """
insert into {schema}._private_jobs (task_id, payload, job_queue_id, priority, run_at, attempts, max_attempts)
select
  task.id, json_build_object('id', number), queue.id, $5::integer + number % $6::integer,
  now() + make_interval(secs => $4::double precision) + number * interval '1 microsecond',
  $8::integer, $9::integer
from generate_series($2::integer, $3::integer) as number
join {schema}._private_tasks as task on task.identifier = $1
left join {schema}._private_job_queues as queue
  on queue.queue_name = case when $7::integer > 0 then 'bench ' || number % $7::integer end
"""
QUEUES = """
insert into {schema}._private_job_queues (queue_name, locked_by, locked_at)
select 'bench ' || number, $2::text, case when $2 is not null then now() end
from generate_series(0, $1::integer - 1) as number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Jobs to fill the table with."""

    task: str = TASK
    delay: float = -10.0
    """Seconds from now; a job with a negative delay is ready."""
    lowest_priority: int = 0
    priorities: int = 1
    queues: int = 0
    """The number of named queues that the jobs are spread over."""
    attempts: int = 0
    max_attempts: int = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A kind of jobs that cannot run."""

    name: str
    jobs: Jobs
    busy_queue: bool = False
    """Their queue is locked by another worker."""
    dead: bool = False
    """The jobs are deleted, but a long transaction keeps their dead rows."""


BACKLOGS = (
    Backlog(name="future jobs", jobs=Jobs(delay=DAY)),
    Backlog(name="future jobs, 100 priorities", jobs=Jobs(delay=DAY, lowest_priority=-50, priorities=100)),
    Backlog(name="jobs of other workers", jobs=Jobs(task=FOREIGN, lowest_priority=BETTER)),
    Backlog(name="permanently failed jobs", jobs=Jobs(attempts=25)),
    Backlog(name="jobs of a busy queue", jobs=Jobs(lowest_priority=BETTER, queues=1), busy_queue=True),
    Backlog(name="dead rows", jobs=Jobs(delay=-DAY), dead=True),
)


class Scratch:
    """The schema of one run, on a connection for preparing measurements."""

    def __init__(self, connection: asyncpg.Connection, options: WorkerOptions) -> None:
        self.options = options
        """Connection and schema; everything else has its default."""
        self.schema = options.schema
        self._connection = connection

    async def clear(self, *, queues: int = 0, held_by: str | None = None) -> None:
        """Remove all jobs and queues; create named queues for jobs to be spread over."""
        await self._connection.execute(
            f"truncate {self.schema}._private_jobs, {self.schema}._private_job_queues"
        )
        await self._connection.execute(QUEUES.format(schema=self.schema), queues, held_by)

    async def fill(self, jobs: Jobs, first: int, last: int) -> None:
        """Add the jobs with these numbers, without a notification."""
        await self._connection.execute(
            FILL.format(schema=self.schema),
            jobs.task,
            first,
            last,
            jobs.delay,
            jobs.lowest_priority,
            jobs.priorities,
            jobs.queues,
            jobs.attempts,
            jobs.max_attempts,
        )

    async def delete_jobs(self) -> None:
        """Delete all jobs and leave dead rows for vacuum to remove."""
        await self._connection.execute(f"delete from {self.schema}._private_jobs")

    async def settle(self) -> None:
        """Vacuum and analyze."""
        await self._connection.execute(
            f"vacuum (analyze) {self.schema}._private_jobs, {self.schema}._private_job_queues"
        )

    @asynccontextmanager
    async def beside(self, backlog: Backlog) -> AsyncIterator[None]:
        """An empty table, prepared for a backlog; the dead rows of one stay until the end of the block."""
        await self.clear(queues=int(backlog.busy_queue), held_by="another pool")
        if not backlog.dead:
            yield
            return
        other = await asyncpg.connect(self.options.connection_string)
        try:
            async with other.transaction(isolation="repeatable_read"):
                await other.fetchval("select 1")  # takes the snapshot
                yield
        finally:
            await other.close(timeout=5)

    async def grow(self, backlog: Backlog, present: int, size: int) -> None:
        """Let a backlog grow from `present` to `size`."""
        await self.fill(backlog.jobs, present + 1, size)
        if backlog.dead:
            await self.delete_jobs()


@asynccontextmanager
async def scratch(url: str) -> AsyncIterator[Scratch]:
    """A schema with a unique name, which is always dropped at the end."""
    async with scratch_schema(WorkerOptions(connection_string=url)) as options:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(
                f"insert into {options.schema}._private_tasks (identifier) "
                f"values ('{FOREIGN}'), ('{PROBE}'), ('{LOAD}')"
            )
            yield Scratch(connection, options)
        finally:
            await connection.close(timeout=5)
