"""`max_attempts` of a task holds for jobs that were added without it: in SQL, by name, or by Node."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import JobHelpers, make_worker_utils, task
from graphile_worker.hooks.events import JobErrored, JobFailed
from graphile_worker.testing.recorder import EventRecorder
from support.working import SCHEMA, Gate, Jobs, Workers, headline

SMALL, LARGE, DEFAULT = 4, 30, 25


def failing(limit: int | None) -> Any:
    """A task with this limit that always fails; a batch keeps the items that are negative."""

    @task("failing", max_attempts=limit)
    async def failing(payload: Any, helpers: JobHelpers) -> Any:
        if isinstance(payload, list):
            return [ValueError("negative") if item < 0 else None for item in payload]
        raise RuntimeError(f"attempt {helpers.job.attempts} of {helpers.job.max_attempts}")

    return failing


async def set_attempts(jobs: Jobs, attempts: int) -> None:
    """As if the job had failed this often before."""
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set attempts = $1", attempts)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "named queue": {"queue": "one"},
    "batch": {"payload": [1, -2, 3]},
    "keyed": {"key": "k"},
    "keyed batch in a queue": {"payload": [-1], "key": "k", "queue": "one"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("limit", "before", "is_final"),
    [
        (SMALL, SMALL - 2, False),  # retried in 20 seconds, so not within this test
        (SMALL, SMALL - 1, True),
        (SMALL, SMALL + 2, True),  # the task had another limit before
        (LARGE, DEFAULT - 1, False),
        (1, 0, True),
    ],
)
async def test_a_failed_job_with_the_databases_default_gets_the_limit_of_its_task(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, kind: str, limit: int, before: int, is_final: bool
) -> None:
    await jobs.add("failing", **KINDS[kind])
    await set_attempts(jobs, before)
    await workers.once([failing(limit)], events=recorder.events)
    row = await jobs.one()
    assert (row["attempts"], row["max_attempts"]) == (before + 1, limit)
    assert row["is_available"] is not is_final
    if kind == "batch":
        assert row["payload"] == "[-2]"
    if kind in ("plain", "keyed", "named queue"):
        assert headline(row) == f"RuntimeError: attempt {before + 1} of {limit}"
    assert await jobs.locked() == 0
    errored = recorder.of(JobErrored)[0]
    assert (errored.will_retry, errored.job.max_attempts) == (not is_final, limit)
    assert [event.is_cut_off for event in recorder.of(JobFailed)] == ([False] if is_final else [])


@pytest.mark.parametrize("own", [3, 24, 26, 40])
async def test_a_job_with_a_limit_of_its_own_keeps_it(jobs: Jobs, workers: Workers, own: int) -> None:
    await jobs.add("failing", max_attempts=own)
    await workers.once([failing(SMALL)])
    assert (await jobs.one())["max_attempts"] == own


async def test_a_task_without_a_limit_changes_nothing(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("failing")
    await workers.once([failing(None), task("other", max_attempts=2)(lambda: None)])
    assert (await jobs.one())["max_attempts"] == DEFAULT


@pytest.mark.parametrize("limit", [SMALL, LARGE])
async def test_every_way_of_adding_a_job_leads_to_the_same_limit(
    jobs: Jobs, workers: Workers, database_url: str, limit: int
) -> None:
    it = failing(limit)
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_job(it, {})
        await utils.add_job("failing", {})
        await utils.add_jobs([it.spec({})])
        await jobs.add("failing")
        await set_attempts(jobs, 2)
        await workers.once([it])
        rows = await jobs.all()
        assert [(row["attempts"], row["max_attempts"]) for row in rows] == [(3, limit)] * 4


async def test_a_job_whose_key_is_removed_while_it_runs_gets_no_attempts_back(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add("held", key="k")
    await workers.start([task("held", max_attempts=LARGE)(gate)], events=recorder.events)
    await gate.until_inside(1)
    await jobs.connection.execute(f"select {SCHEMA}.remove_job('k')")
    gate.open(RuntimeError("failed after its key was removed"))
    event = await recorder.wait_for(JobFailed)
    assert event.is_cut_off
    row = await jobs.one()
    assert (row["attempts"], row["max_attempts"], row["is_available"]) == (DEFAULT, DEFAULT, False)
