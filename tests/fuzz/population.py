"""Jobs in every state that the SQL functions tell apart; made once, and never changed for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from support.working import SCHEMA

STATES = {
    "waiting": "attempts = 0",
    "retried": "attempts = 2, last_error = 'no'",
    "locked": "attempts = 1, locked_at = now(), locked_by = 'pool-1'",
    "stale": "attempts = 1, locked_at = now() - interval '5 hours', locked_by = 'pool-2'",
    "failed": "attempts = max_attempts, last_error = 'never'",
}
PAYLOADS = {"array": '[1, {"b": 1, "a": 2}]', "object": '{"b":1}'}
KEYS = [f"{state} {shape}" for state in STATES for shape in PAYLOADS]
SNAPSHOT = f"""
select job.*, job.payload::text as json, job.flags::text as flag_text, task.identifier, queue.queue_name
from {SCHEMA}._private_jobs job
join {SCHEMA}._private_tasks task on task.id = job.task_id
left join {SCHEMA}._private_job_queues queue on queue.id = job.job_queue_id
"""
QUEUES = f"select * from {SCHEMA}._private_job_queues"


@dataclass(frozen=True, repr=False)
class Population:
    """All jobs and queues at one moment, by id."""

    jobs: dict[int, Any]
    queues: dict[int, Any]

    @property
    def by_key(self) -> dict[str, Any]:
        return {row["key"]: row for row in self.jobs.values() if row["key"] is not None}

    @property
    def free(self) -> set[int]:
        """The jobs that nobody runs: not locked, or locked too long ago."""
        return {
            row["id"]
            for row in self.jobs.values()
            if row["locked_by"] != "pool-1"  # the others' locks are hours old
        }

    def state_of(self, key: str | None) -> str | None:
        """The state of the job that has the key, if one has."""
        return key.split(" ")[0] if key in self.by_key else None


async def settle(connection: Any) -> Population:
    """Add a job for each state and shape with a key, and one for each state in a queue of its own."""
    # Python knows no year 294276; what is stored is compared as text.
    await connection.set_type_codec("timestamptz", schema="pg_catalog", encoder=str, decoder=str)
    for state, changes in STATES.items():
        for shape, payload in PAYLOADS.items():
            await _add(connection, changes, payload, key=f"{state} {shape}")
        await _add(connection, changes, "{}", queue=f"queue of {state}")
    await connection.execute(
        f"update {SCHEMA}._private_job_queues queue set locked_at = job.locked_at, locked_by = job.locked_by "
        f"from {SCHEMA}._private_jobs job where job.job_queue_id = queue.id"
    )
    return await look(connection)


async def look(connection: Any) -> Population:
    """All rows as they are now."""
    return Population(
        {row["id"]: row for row in await connection.fetch(SNAPSHOT)},
        {row["id"]: row for row in await connection.fetch(QUEUES)},
    )


async def _add(
    connection: Any, changes: str, payload: str, *, key: str | None = None, queue: str | None = None
) -> None:
    job_id = await connection.fetchval(
        f"select id from {SCHEMA}.add_job('task', $1::text::json, job_key => $2, queue_name => $3, "
        "run_at => '2100-01-01Z')",
        payload,
        key,
        queue,
    )
    await connection.execute(f"update {SCHEMA}._private_jobs set {changes} where id = $1", job_id)
