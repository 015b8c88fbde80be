"""A large fetch leaves later named queues to the next fetch, which must not need another announcement."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.testing.results import EventRecorder
from support.working import SCHEMA, Jobs, Workers, until_listening

SLOTS = 200


@pytest.mark.parametrize("options", [{}, {"local_queue": {"size": SLOTS}}], ids=["default", "local queue"])
async def test_one_announcement_is_enough_for_all(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, options: dict[str, Any]
) -> None:
    async def step() -> None:
        pass

    await workers.start([step], events=recorder.events, concurrency=SLOTS, **options)
    await until_listening(recorder, jobs.connection)
    async with jobs.connection.transaction():
        await jobs.connection.execute(
            f"insert into {SCHEMA}._private_job_queues (queue_name) "
            "select 'queue ' || n from generate_series(1, 20) n"
        )
        for count, queue, run_at in ((60, "null", "now() - interval '1 minute'"), (20, "n", "now()")):
            await jobs.connection.execute(
                f"insert into {SCHEMA}._private_jobs (task_id, job_queue_id, run_at) "
                f"select task.id, {queue}, {run_at} "
                f"from {SCHEMA}._private_tasks task, generate_series(1, {count}) n where identifier = 'step'"
            )
        await jobs.connection.execute("select pg_notify('jobs:insert', '{\"count\":1}')")
    await recorder.wait_for(JobSucceeded, count=80)
