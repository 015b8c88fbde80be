"""`max_attempts` of a task holds for jobs that were added without it: in SQL, by name, or by Node."""

from __future__ import annotations

from typing import Any

from graphile_worker import JobHelpers, make_worker_utils, task
from graphile_worker.hooks.events import JobErrored, JobFailed
from graphile_worker.testing.results import EventRecorder
from support.cases import Cases
from support.working import IN_ONE_MODE, SCHEMA, Gate, Jobs, Workers, headline

SMALL, LARGE, DEFAULT = 4, 30, 25


def failing(limit: int | None) -> Any:
    """A task with this limit that always fails; a batch keeps the items that are negative."""

    @task(f"failing {limit}", max_attempts=limit)
    async def failing(payload: Any, helpers: JobHelpers) -> Any:
        if isinstance(payload, list):
            return [ValueError("negative") if item < 0 else None for item in payload]
        raise RuntimeError(f"attempt {helpers.job.attempts} of {helpers.job.max_attempts}")

    return failing


async def set_attempts(jobs: Jobs, attempts: int, *job_ids: int) -> None:
    """As if these jobs had failed this often before."""
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = $1 where id = any ($2)", attempts, job_ids
    )


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "named queue": {"queue": "one"},
    "batch": {"payload": [1, -2, 3]},
    "keyed": {"key": "k"},
    "keyed batch in a queue": {"payload": [-1], "key": "k", "queue": "one"},
}
LIMITS = [
    (SMALL, SMALL - 2, False),  # retried in 20 seconds, so not within this test
    (SMALL, SMALL - 1, True),
    (SMALL, SMALL + 2, True),  # the task had another limit before
    (LARGE, DEFAULT - 1, False),
    (1, 0, True),
]
OWN = (3, 24, 26, 40)


async def test_a_failed_job_with_the_databases_default_gets_the_limit_of_its_task(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """Every kind of job with every limit, and jobs that have one of their own, in one run."""
    added: dict[int, tuple[str, int, int, bool]] = {}
    for kind, options in KINDS.items():
        for number, (limit, before, is_final) in enumerate(LIMITS):
            own = {name: f"{value} {number} {kind}" for name, value in options.items() if name != "payload"}
            job_id = await jobs.add(f"failing {limit}", **{**options, **own})
            await set_attempts(jobs, before, job_id)
            added[job_id] = (kind, limit, before, is_final)
    with_own = {await jobs.add(f"failing {SMALL}", max_attempts=limit): limit for limit in OWN}
    unlimited = await jobs.add("failing None")
    tasks = [failing(limit) for limit in (SMALL, LARGE, 1, None)]
    await workers.once(tasks, events=recorder.events)
    rows = {row["id"]: row for row in await jobs.all()}
    errored = {event.job.id: event for event in recorder.of(JobErrored)}
    failed = {event.job.id: event for event in recorder.of(JobFailed)}
    with Cases() as cases:
        for job_id, (kind, limit, before, is_final) in added.items():
            with cases(kind, limit, before):
                row = rows[job_id]
                assert (row["attempts"], row["max_attempts"]) == (before + 1, limit)
                assert row["is_available"] is not is_final
                if kind == "batch":
                    assert row["payload"] == "[-2]"
                if "batch" not in kind:
                    assert headline(row) == f"RuntimeError: attempt {before + 1} of {limit}"
                event = errored[job_id]
                assert (event.will_retry, event.job.max_attempts) == (not is_final, limit)
                assert (job_id in failed) is is_final
                assert not is_final or not failed[job_id].is_cut_off
    assert {job_id: rows[job_id]["max_attempts"] for job_id in with_own} == with_own
    assert rows[unlimited]["max_attempts"] == DEFAULT
    assert await jobs.locked() == 0


@IN_ONE_MODE
async def test_every_way_of_adding_a_job_leads_to_the_same_limit(
    jobs: Jobs, workers: Workers, database_url: str
) -> None:
    tasks = [failing(SMALL), failing(LARGE)]
    async with make_worker_utils(connection_string=database_url) as utils:
        for it in tasks:
            await utils.add_job(it, {})
            await utils.add_job(it.identifier, {})
            await utils.add_jobs([it.spec({})])
            await jobs.add(it.identifier)
    await set_attempts(jobs, 2, *(row["id"] for row in await jobs.all()))
    await workers.once(tasks)
    rows = await jobs.all()
    assert [(row["attempts"], row["max_attempts"]) for row in rows] == [(3, SMALL)] * 4 + [(3, LARGE)] * 4


@IN_ONE_MODE
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
