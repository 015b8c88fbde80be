"""Calling the database functions from tests as anybody with psql would."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

SPEC_FIELDS = (
    "identifier",
    "payload",
    "queue_name",
    "run_at",
    "max_attempts",
    "job_key",
    "priority",
    "flags",
)
CASTS = {"payload": "::json", "run_at": "::timestamptz", "flags": "::text[]"}


async def add_job(connection: Any, identifier: str | None, /, **arguments: Any) -> Any:
    """One call of add_job in named notation; the payload is JSON text."""
    named = {"identifier": identifier, **arguments}
    places = ", ".join(f"{name} => ${place}{CASTS.get(name, '')}" for place, name in enumerate(named, 1))
    return await connection.fetchrow(f"select * from graphile_worker.add_job({places})", *named.values())


async def add_jobs(
    connection: Any, specs: Iterable[dict[str, Any]], preserve: bool | None = False
) -> list[Any]:
    """One call of add_jobs; missing members of a spec are null."""
    rows = [tuple(spec.get(field) for field in SPEC_FIELDS) for spec in specs]
    return list(
        await connection.fetch(
            "select * from graphile_worker.add_jobs($1::graphile_worker.job_spec[], $2)", rows, preserve
        )
    )


async def job_by_id(connection: Any, job_id: int) -> Any:
    return await connection.fetchrow("select * from graphile_worker._private_jobs where id = $1", job_id)


async def all_jobs(connection: Any) -> list[Any]:
    return list(await connection.fetch("select * from graphile_worker._private_jobs order by id"))


async def names(connection: Any, table: str) -> list[str]:
    """The identifiers of tasks or the names of queues, in the order of their ids."""
    column = {"_private_tasks": "identifier", "_private_job_queues": "queue_name"}[table]
    rows = await connection.fetch(f"select {column} from graphile_worker.{table} order by id")
    return [row[0] for row in rows]


async def set_job(connection: Any, job_id: int, **columns: Any) -> None:
    """Write columns of a job directly, as a worker would; values are SQL expressions."""
    changes = ", ".join(f"{name} = {expression}" for name, expression in columns.items())
    await connection.execute(f"update graphile_worker._private_jobs set {changes} where id = $1", job_id)


LOCKED = {"locked_at": "now()", "locked_by": "'other'", "attempts": "attempts + 1"}
STALE = {"locked_at": "now() - interval '5 hours'", "locked_by": "'other'", "attempts": "attempts + 1"}
FAILED = {"attempts": "max_attempts", "last_error": "'Failed forever'"}


def payload_of(job: Any) -> Any:
    return json.loads(job["payload"])


async def selection_of_jobs(connection: Any) -> dict[str, int]:
    """Five jobs of one task, an hour ahead: failed, regular, locked, regular, untouched; ids by name."""
    ids = {}
    for place, name in enumerate(("failed", "regular1", "locked", "regular2", "untouched"), 1):
        job = await connection.fetchrow(
            "select * from graphile_worker.add_job('job3', json_build_object('a', $1::int), "
            "run_at => now() + interval '1 hour')",
            place,
        )
        ids[name] = job["id"]
    await set_job(connection, ids["failed"], **FAILED)
    await set_job(connection, ids["locked"], locked_at="now()", locked_by="'test'")
    return ids
