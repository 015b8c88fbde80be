"""Adding jobs to a test's database and looking at what became of them."""

from __future__ import annotations

from typing import Any


async def add(connection: Any, task: str, payload: str = "{}", *, count: int = 1, queues: int = 0) -> list[int]:
    """Add jobs in one statement; with `queues`, spread over so many named queues."""
    rows = await connection.fetch(
        """
        select added.id from graphile_worker.add_jobs(array(
          select (
            $1, $2::json, case when $4 > 0 then 'queue ' || (number % $4) end, null, null, null, null, null
          )::graphile_worker.job_spec
          from generate_series(1, $3) number
        )) added
        """,
        task, payload, count, queues,
    )  # fmt: skip
    return [row["id"] for row in rows]


async def left(connection: Any) -> list[Any]:
    """What is left of the jobs, by id."""
    rows = await connection.fetch(
        "select id, attempts, last_error, locked_by, run_at > now() as is_later "
        "from graphile_worker._private_jobs order by id"
    )
    return list(rows)


async def locks(connection: Any) -> int:
    """How many jobs and queues are locked."""
    return await connection.fetchval(
        """
        select (select count(*) from graphile_worker._private_jobs where locked_by is not null or locked_at is not null)
          + (select count(*) from graphile_worker._private_job_queues where locked_by is not null or locked_at is not null)
        """
    )  # fmt: skip


async def sessions(connection: Any) -> int:
    """How many connections of workers the server has to this database."""
    return await connection.fetchval(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and application_name = 'graphile_worker'"
    )
