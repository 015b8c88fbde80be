"""Workers that are dead already, as rows: without a process there is nothing to wait for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.working import SCHEMA, Jobs, until

QUICK: dict[str, Any] = {"heartbeat_interval": 0.8, "recovery_grace": 2.5, "sweep_interval": 0.2}
"""Options that make seconds of what takes half a minute otherwise; less would be too little for a machine
on which a heartbeat may be late by half a second.
"""
QUICK_ENVIRONMENT = {f"GRAPHILE_WORKER_{name.upper()}": str(value) for name, value in QUICK.items()}


class Graveyard:
    """Creates dead workers, and jobs that they hold."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._jobs = Jobs(connection)

    async def bury(
        self, pool_id: str, *, lost_for: float | None = 60.0, grace: float = 12.0, liveness: str = "lock"
    ) -> None:
        """Register a worker that does not hold its lock."""
        await self._connection.execute(
            f"insert into {SCHEMA}._private_py_workers "
            "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, started_at, "
            "last_seen_at, lost_at, backend_pid) "
            "values ($1, 'somewhere', 1, '0', '{}', 1, $2, '4 seconds', $3, now() - interval '1 hour', "
            "now() - interval '1 hour', now() - $4::interval, case when $2 = 'lock' then 1 end)",
            pool_id,
            liveness,
            timedelta(seconds=grace),
            None if lost_for is None else timedelta(seconds=lost_for),
        )

    async def give(self, pool_id: str, *job_ids: int, attempts: int = 1) -> None:
        """Let a pool have these jobs, and their queues, as a fetch does."""
        await self._connection.execute(
            f"with job as (update {SCHEMA}._private_jobs "
            "set locked_by = $1, locked_at = now(), attempts = $3 where id = any ($2) "
            "returning job_queue_id) "
            f"update {SCHEMA}._private_job_queues set locked_by = $1, locked_at = now() "
            "where id in (select job_queue_id from job)",
            pool_id,
            list(job_ids),
            attempts,
        )

    async def workers(self) -> dict[str, Any]:
        """The rows of workers, by pool id."""
        rows = await self._connection.fetch(f"select * from {SCHEMA}._private_py_workers")
        return {row["id"]: row for row in rows}

    async def only_worker(self) -> Any:
        """The row of the only worker that there is."""
        (row,) = (await self.workers()).values()
        return row

    async def holding(self) -> Any:
        """The same, once that worker holds its lock."""

        async def is_so() -> bool:
            return (await self.only_worker())["backend_pid"] is not None

        await until(is_so)
        return await self.only_worker()

    async def recoveries(self) -> dict[int, int]:
        """How often jobs were recovered."""
        rows = await self._connection.fetch(f"select * from {SCHEMA}._private_py_recoveries")
        return {row["job_id"]: row["recoveries"] for row in rows}
