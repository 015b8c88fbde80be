"""Why does a job not run? One situation for each explanation, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from graphile_worker import JobSpec, Limit, WorkerUtils, make_worker_utils
from graphile_worker.tasks import task
from recovery.dead import Graveyard
from support.working import SCHEMA, Jobs, Workers, until

from .test_overview import Past


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as found:
        yield found


class Situation:
    """What the dashboard says about jobs, and rows that stand for workers."""

    def __init__(self, http: httpx.AsyncClient, jobs: Jobs) -> None:
        self._http = http
        self._jobs = jobs

    async def kind(self, job_id: int) -> str:
        return str((await self.explanation(job_id))["kind"])

    async def explanation(self, job_id: int) -> dict[str, Any]:
        answer = await self._http.get(f"/api/v1/jobs/{job_id}/explanation")
        assert answer.status_code == 200, answer.text
        page = await self._http.get(f"/jobs/{job_id}")
        assert page.status_code == 200, page.text
        found: dict[str, Any] = answer.json()
        assert found["headline"].endswith((".", "?"))
        return found

    async def worker(self, *tasks: str, slots: int = 2, running: str = "[]", **columns: Any) -> None:
        """A pool that is alive by its heartbeat, for as long as a test takes."""
        await self._jobs.connection.execute(
            f"insert into {SCHEMA}._private_py_workers "
            "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, "
            "jobs_held, running) "
            "values ('pool', 'web-a', 7, '1', $1, $2, 'heartbeat', '1 hour', '1 hour', 0, $3::text::jsonb)",
            list(tasks), slots, running,
        )  # fmt: skip
        for name, value in columns.items():
            await self._jobs.connection.execute(
                f"update {SCHEMA}._private_py_workers set {name} = $1::text::jsonb", value
            )

    async def set(self, job_id: int, values: str) -> None:
        await self._jobs.connection.execute(f"update {SCHEMA}._private_jobs set {values} where id = {job_id}")


@pytest.fixture
def situation(http: httpx.AsyncClient, jobs: Jobs) -> Situation:
    return Situation(http, jobs)


async def test_jobs_that_are_locked(situation: Situation, jobs: Jobs, utils: WorkerUtils) -> None:
    job = await jobs.add("a")
    graveyard = Graveyard(jobs.connection)
    await graveyard.give("node-1", job)
    assert await situation.kind(job) == "unknown_worker"
    await situation.set(job, "locked_at = now() - interval '5 hours'")
    assert await situation.kind(job) == "stale_lock"
    await graveyard.bury("pool-dead", lost_for=0.0, grace=3600.0)
    await graveyard.give("pool-dead", job)
    dead = await situation.explanation(job)
    assert dead["kind"] == "dead_worker"
    assert "comes back in" in dead["headline"]
    await situation.worker("a", running=f"[[{job}, 1700000000]]")
    await graveyard.give("pool", job)
    running = await situation.explanation(job)
    assert (running["kind"], running["worker"]) == ("running", "pool")
    await jobs.connection.execute(f"update {SCHEMA}._private_py_workers set running = '[]'")
    assert await situation.kind(job) == "prefetched"
    await utils.cancel_jobs([job])
    assert await situation.kind(job) == "cancelling"


async def test_a_real_worker_runs_it(situation: Situation, jobs: Jobs, workers: Workers) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def wait(payload: Any) -> None:
        started.set()
        await may_end.wait()

    job = await jobs.add("wait")
    await workers.start({"wait": wait}, heartbeat_interval=0.8)
    await started.wait()

    async def is_reported() -> bool:
        return await situation.kind(job) == "running"

    try:
        await until(is_reported)
        assert "web" not in (await situation.explanation(job))["headline"]
    finally:
        may_end.set()


async def test_jobs_that_are_not_due(situation: Situation, jobs: Jobs) -> None:
    job = await jobs.add("a")
    await situation.set(job, "run_at = now() + interval '1 hour'")
    assert await situation.kind(job) == "later"
    await situation.set(job, "attempts = 3")
    retry = await situation.explanation(job)
    assert retry["kind"] == "retry_later"
    assert retry["remedies"] == [{"label": "Run now", "action": "run_now", "name": "", "page": ""}]
    await situation.set(job, "attempts = max_attempts")
    assert await situation.kind(job) == "no_attempts"
    await jobs.connection.execute(f"insert into {SCHEMA}._private_py_cancels (job_id) values ({job})")
    assert await situation.kind(job) == "cancelled"


async def test_jobs_that_an_operator_holds(situation: Situation, jobs: Jobs, utils: WorkerUtils) -> None:
    job = await jobs.add("a", queue="q")
    await situation.worker("a")
    await utils.queues.pause("q", until=timedelta(hours=1), reason="the bank is down")
    paused = await situation.explanation(job)
    assert paused["kind"] == "paused_queue"
    assert "the bank is down" in paused["headline"]
    await utils.queues.resume("q")
    await utils.pause(task="a")
    assert await situation.kind(job) == "paused_task"
    await utils.resume(task="a")
    await utils.pause(all=True)
    assert await situation.kind(job) == "paused_everything"


async def test_jobs_whose_queue_is_busy(situation: Situation, jobs: Jobs) -> None:
    first, job = await jobs.add("a", queue="q"), await jobs.add("a", queue="q")
    graveyard = Graveyard(jobs.connection)
    await situation.worker("a", running=f"[[{first}, 1700000000]]")
    await graveyard.give("pool", first)
    busy = await situation.explanation(job)
    assert (busy["kind"], busy["job_id"], busy["worker"]) == ("queue_busy", first, "pool")
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs where id = {first}")
    await jobs.connection.execute(f"update {SCHEMA}._private_py_workers set running = '[]', jobs_held = 0")
    assert await situation.kind(job) == "queue_lock_lost"
    await jobs.connection.execute(f"update {SCHEMA}._private_job_queues set locked_by = 'node-1'")
    assert await situation.kind(job) == "queue_lock_lost"


async def test_jobs_that_no_worker_can_run(situation: Situation, jobs: Jobs, utils: WorkerUtils) -> None:
    job = await jobs.add("send_emial")
    assert await situation.kind(job) == "no_worker"
    await situation.worker("send_email", "resize")
    unknown = await situation.explanation(job)
    assert unknown["kind"] == "unknown_task"
    assert "did you mean 'send_email'?" in unknown["headline"]
    await jobs.connection.execute(f"update {SCHEMA}._private_py_workers set tasks = '{{send_emial}}'")
    assert await situation.kind(job) == "soon"
    await utils.workers.pause("pool")
    assert await situation.kind(job) == "workers_paused"


async def test_jobs_that_a_limit_holds(
    situation: Situation, jobs: Jobs, workers: Workers, utils: WorkerUtils
) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def wait(payload: Any) -> None:
        started.set()
        await may_end.wait()

    limited = task("limited", limit=Limit("bank", concurrency=1))(wait)
    await utils.add_job(JobSpec("limited"))
    await workers.start([limited])
    await started.wait()
    second = await utils.add_job(JobSpec("limited"))
    try:
        found = await situation.explanation(second.id)
        assert found["kind"] == "limit_concurrency", found
        assert "bank" in found["headline"]
    finally:
        may_end.set()


async def test_jobs_that_may_not_start_yet(
    situation: Situation, workers: Workers, utils: WorkerUtils
) -> None:
    started = asyncio.Event()

    async def note(payload: Any) -> None:
        started.set()

    limited = task("limited", limit=Limit("bank", rate=(1, timedelta(hours=1)), burst=1))(note)
    first = await utils.add_job(JobSpec("limited"))
    await workers.start([limited])
    await started.wait()
    await until(lambda: _is_gone(utils, first.id))
    second = await utils.add_job(JobSpec("limited"))
    found = await situation.explanation(second.id)
    assert found["kind"] == "limit_rate", found
    assert "The limit bank has no start left: it allows 1 start in 1 h" in found["headline"]


async def _is_gone(utils: WorkerUtils, job_id: int) -> bool:
    return await utils.jobs.get(job_id) is None


async def test_jobs_that_run_longer_than_usual(situation: Situation, jobs: Jobs) -> None:
    job = await jobs.add("a")
    await situation.worker("a", running=f"[[{job}, 1700000000]]")
    await Graveyard(jobs.connection).give("pool", job)
    assert await situation.kind(job) == "running"
    await Past(jobs.connection).statistics("a", completed=10, failed=0, minutes=range(1, 5))
    found = await situation.explanation(job)
    assert (found["kind"], found["tone"]) == ("running_long", "warn")
    assert "longer than usual" in found["headline"]
    assert [remedy["action"] for remedy in found["remedies"]] == ["cancel"]


async def test_jobs_whose_flags_workers_forbid(situation: Situation, jobs: Jobs) -> None:
    job = await jobs.add("a", flags=["slow", "eu"])
    await situation.worker("a")
    flags = f"update {SCHEMA}._private_py_workers set flag_rules = $1::text::jsonb"
    for rules, why in (
        ('{"forbidden": ["slow"]}', "forbids slow"),
        ('{"accepted": ["gpu"]}', "takes only jobs with the flag gpu"),
        ('{"allowlist": ["slow"]}', "does not allow eu"),
        ('{"allowlist": ["slow"], "changing": ["forbidden_flags"]}', "does not allow eu"),
    ):
        await jobs.connection.execute(flags, rules)
        found = await situation.explanation(job)
        assert found["headline"] == "The worker with the task refuses the flags eu, slow."
        assert f"{why}." in found["evidence"][0]
    await situation.set(job, "run_at = now() - interval '1 hour', created_at = now() - interval '1 hour'")
    await jobs.connection.execute(flags, "{}")
    assert await situation.kind(job) == "overdue"
    await jobs.connection.execute(flags, None)
    assert "do not say which flags they refuse" in (await situation.explanation(job))["evidence"][0]
    await jobs.connection.execute(flags, '{"changing": ["forbidden_flags"]}')
    assert "do not say which flags they refuse" in (await situation.explanation(job))["evidence"][0]


async def test_jobs_that_wait_for_a_slot_or_for_trouble_to_end(situation: Situation, jobs: Jobs) -> None:
    first, job = await jobs.add("a"), await jobs.add("a")
    await situation.worker("a", slots=1, running="[[77, 1700000000]]")
    line = await situation.explanation(job)
    assert line["kind"] == "in_line"
    assert "1 job before it" in line["headline"]
    assert await situation.kind(first) == "slots_busy"
    await jobs.connection.execute(f"update {SCHEMA}._private_py_workers set running = '[]'")
    assert await situation.kind(job) == "soon"
    for one in (first, job):
        await situation.set(one, "run_at = now() - interval '1 hour', created_at = now() - interval '1 hour'")
    assert await situation.kind(job) == "overdue"
    await situation.set(job, "flags = '{\"slow\": true}'")
    assert await situation.kind(job) == "flags"
    await situation.set(job, "flags = null")
    for state, kind in (
        ('{"is_listening": false}', "not_listening"),
        ('{"is_listening": true, "clock": 30}', "clock"),
    ):
        await jobs.connection.execute(
            f"update {SCHEMA}._private_py_workers set state = $1::text::jsonb", state
        )
        assert await situation.kind(job) == kind
    await jobs.connection.execute(
        f"update {SCHEMA}._private_py_workers set blocked = "
        '\'{"task": "a", "job": 77, "since": 1700000000}\''
    )
    assert await situation.kind(job) == "blocked_loop"


async def test_jobs_in_a_schema_that_does_not_know_workers(situation: Situation, jobs: Jobs) -> None:
    job = await jobs.add("a")
    await situation.set(job, "run_at = now() - interval '1 hour', created_at = now() - interval '1 hour'")
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_workers cascade")
    assert await situation.kind(job) == "workers_unknown"
