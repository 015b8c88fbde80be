"""What a test sees of the database that the peers share: jobs, locks, and the recorded runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from peers.protocol import SCHEMA
from support.working import PATIENCE, until

HEARTBEATS = {"_private_workers": "last_heartbeat_at", "_private_py_workers": "last_seen_at"}
JOBS = "graphile_worker._private_jobs"
QUEUES = "graphile_worker._private_job_queues"

OVERLAPS = """
    SELECT a.runtime, b.runtime, a.job_id, b.job_id, a.queue
    FROM public.peer_runs a
    JOIN public.peer_runs b ON (b.job_id = a.job_id OR b.queue = a.queue) AND b.id <> a.id
    LEFT JOIN public.peer_deaths death ON death.process = a.process
    WHERE a.began < b.began AND b.began < coalesce(a.ended, death.step, 9223372036854775807)
"""
"""Runs of one job, or of two jobs of one queue, of which the second began before the first had ended or its
process was about to be killed."""


@dataclass(frozen=True)
class Run:
    """One call of a task."""

    runtime: str
    process: int
    job_id: int
    task: str
    queue: int | None
    attempt: int
    key: str | None
    payload: Any
    began: int
    ended: int | None
    outcome: str | None


async def prepare(connection: Any) -> None:
    """Create what the tasks of the peers use."""
    await connection.execute(SCHEMA)
    await connection.execute(
        "CREATE TABLE public.peer_deaths (process integer PRIMARY KEY, step bigint NOT NULL)"
    )


class Shared:
    """One database."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    # -- runs ------------------------------------------------------------------------------------------------

    async def runs(self) -> list[Run]:
        """Every run so far, in the order in which they began."""
        columns = ", ".join(Run.__dataclass_fields__)
        rows = await self.connection.fetch(f"SELECT {columns} FROM public.peer_runs ORDER BY began")
        return [Run(**dict(row) | {"payload": json.loads(row["payload"])}) for row in rows]

    async def until_runs(self, count: int, *, ended: bool = True) -> list[Run]:
        """Wait for so many runs."""
        condition = "ended IS NOT NULL" if ended else "true"
        statement = f"SELECT count(*) >= $1 FROM public.peer_runs WHERE {condition}"
        await until(lambda: self.connection.fetchval(statement, count), every=0.02)
        return await self.runs()

    async def open(self, gate: str) -> None:
        """Let tasks pass that wait at this gate."""
        await self.connection.execute(
            "INSERT INTO public.peer_gates VALUES ($1) ON CONFLICT DO NOTHING", gate
        )

    async def close(self, gate: str) -> None:
        """Let tasks wait there again."""
        await self.connection.execute("DELETE FROM public.peer_gates WHERE name = $1", gate)

    async def overlaps(self) -> list[tuple[Any, ...]]:
        """Runs that were not in series, though they had to be."""
        return [tuple(row) for row in await self.connection.fetch(OVERLAPS)]

    async def about_to_die(self, process: int) -> None:
        """Note that this process is killed from now on: what it runs may begin elsewhere after this step."""
        await self.connection.execute(
            "INSERT INTO public.peer_deaths VALUES ($1, nextval('public.peer_steps'))", process
        )

    # -- jobs ------------------------------------------------------------------------------------------------

    async def job(self, job_id: int) -> Any:
        """The row of a job, None if it is gone; the payload as text."""
        return await self.connection.fetchrow(f"SELECT * FROM {JOBS} WHERE id = $1", job_id)

    async def until_gone(self, *job_ids: int, timeout: float = PATIENCE) -> None:
        """Wait until these jobs are gone, or all of them."""
        condition = "WHERE id = ANY ($1::bigint[])" if job_ids else "WHERE $1::bigint[] IS NOT NULL"
        statement = f"SELECT NOT EXISTS (SELECT FROM {JOBS} {condition})"
        await until(lambda: self.connection.fetchval(statement, list(job_ids)), timeout=timeout, every=0.02)

    async def until_count(self, count: int) -> None:
        """Wait until so many jobs are left."""
        await until(lambda: self.connection.fetchval(f"SELECT count(*) = $1 FROM {JOBS}", count), every=0.02)

    async def until_job(self, job_id: int, condition: str) -> Any:
        """Wait until the row of this job fulfils a condition; the row."""
        statement = f"SELECT EXISTS (SELECT FROM {JOBS} WHERE id = $1 AND {condition})"
        await until(lambda: self.connection.fetchval(statement, job_id), every=0.02)
        return await self.job(job_id)

    async def until_failed(self, job_id: int, attempts: int) -> Any:
        """Wait until so many attempts have failed; the row."""
        return await self.until_job(
            job_id, f"attempts = {attempts} AND last_error IS NOT NULL AND locked_at IS NULL"
        )

    async def make_due(self) -> None:
        await self.connection.execute(f"UPDATE {JOBS} SET run_at = now() WHERE locked_at IS NULL")

    async def now(self) -> Any:
        return await self.connection.fetchval("SELECT clock_timestamp()")

    async def locks(self) -> list[str]:
        """Who has locked jobs and queues."""
        rows = await self.connection.fetch(
            f"SELECT locked_by FROM {JOBS} WHERE locked_by IS NOT NULL "
            f"UNION ALL SELECT locked_by FROM {QUEUES} WHERE locked_by IS NOT NULL"
        )
        return [row["locked_by"] for row in rows]

    async def age_locks(self, worker_id: str) -> None:
        """Let a worker have locked its jobs an hour ago."""
        for table in (JOBS, QUEUES):
            await self.connection.execute(
                f"UPDATE {table} SET locked_at = locked_at - interval '1 hour' WHERE locked_by = $1",
                worker_id,
            )

    async def age(self, worker_id: str) -> None:
        """Let a dead worker also have sent its last heartbeat an hour ago, so that nobody has to wait."""
        await self.age_locks(worker_id)
        for name, column in HEARTBEATS.items():
            table = f"graphile_worker.{name}"
            if await self.connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
                await self.connection.execute(
                    f"UPDATE {table} SET {column} = {column} - interval '1 hour' WHERE id = $1", worker_id
                )

    async def until_swept(self) -> None:
        """Wait until a sweep of Rust has looked at the locks: it takes a job whose worker nobody knows."""
        job_id = await self.connection.fetchval("SELECT id FROM graphile_worker.add_job('unknown', '{}')")
        await self.connection.execute(
            f"UPDATE {JOBS} SET locked_by = 'ghost', locked_at = now() - interval '1 hour' WHERE id = $1",
            job_id,
        )
        await self.until_job(job_id, "locked_at IS NULL")
        await self.connection.execute(f"DELETE FROM {JOBS} WHERE id = $1", job_id)
