"""A task whose row was deleted and added again has another id; workers notice when its next job comes."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import JobHelpers, Limit, task
from support.working import SCHEMA, Jobs, Workers, until_listening

CLEAN_UP = f"""
delete from {SCHEMA}._private_tasks task
where not exists (select from {SCHEMA}._private_jobs job where job.task_id = task.id)
"""
"""As Node does it, without asking which tasks Python workers have."""


@pytest.fixture(autouse=True)
def never_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphile_worker.worker.context.REFRESH_TASKS", 3600.0)


@pytest.mark.parametrize("mode", [{}, {"local_queue": {"size": 5}}], ids=["default", "local queue"])
async def test_a_job_after_a_clean_up_of_names_runs_at_once(
    workers: Workers, jobs: Jobs, connection: Any, recorder: Any, mode: dict[str, Any]
) -> None:
    ran: list[int] = []

    async def step(payload: Any, helpers: Any) -> None:
        ran.append(helpers.job.id)

    await workers.start({"step": step, "other": step}, events=recorder.events, **mode)
    await until_listening(recorder, connection)
    for _ in range(3):
        await connection.execute(CLEAN_UP)
        first, second = await jobs.add("step"), await jobs.add("other")
        await jobs.until_gone()
        assert sorted(ran[-2:]) == [first, second]


async def test_tasks_with_limits_are_found_after_it_too(
    workers: Workers, jobs: Jobs, connection: Any, recorder: Any
) -> None:
    """Their lanes ask together, and read their ids together."""
    ran: list[int] = []

    async def step(payload: Any, helpers: JobHelpers) -> None:
        ran.append(helpers.job.id)

    limited = [task(name, limit=Limit(name, concurrency=2))(step) for name in ("step", "other", "third")]
    await workers.start(limited, events=recorder.events)
    await until_listening(recorder, connection)
    for _ in range(3):
        await connection.execute(CLEAN_UP)
        first, second = await jobs.add("step"), await jobs.add("other")
        await jobs.until_gone()
        assert sorted(ran[-2:]) == [first, second]
