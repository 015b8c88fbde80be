"""Jobs that a fetch has locked although its answer was lost: they and their queues are free again."""

from __future__ import annotations

from typing import Any

from graphile_worker.recovery.orphaned_jobs import reclaim_jobs
from queries.statements import statements_on
from support.working import SCHEMA, Jobs

QUEUES = f"select queue_name, locked_by from {SCHEMA}._private_job_queues"


async def test_what_the_pool_does_not_know_of_is_returned(connection: Any, jobs: Jobs) -> None:
    statements = await statements_on(connection)
    known, in_queue, lost = [await jobs.add("hello", queue=queue) for queue in (None, "known", "lost")]
    assert {job.id for job in await statements.fetch(3)} == {known, in_queue, lost}
    await reclaim_jobs(connection, statements.schema, statements.pool_id, [known, in_queue])
    rows = {row["id"]: (row["locked_by"], row["attempts"]) for row in await jobs.all()}
    ours = statements.pool_id
    assert rows == {known: (ours, 1), in_queue: (ours, 1), lost: (None, 0)}
    assert dict(await connection.fetch(QUEUES)) == {"known": ours, "lost": None}
