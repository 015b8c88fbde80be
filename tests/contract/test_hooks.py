"""Hooks: observers cannot break anything, interceptors decide."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from graphile_worker import Job, JobSpec, make_worker_utils
from graphile_worker.errors import JobRefusedError
from graphile_worker.hooks import Events, FailJob, Hooks, SkipJob
from graphile_worker.hooks.events import Event, JobErrored, JobStarted, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.outcome import Outcome
from support.working import IN_ONE_MODE, PATIENCE, Jobs, Workers, headline


@IN_ONE_MODE
async def test_observers_that_raise_do_not_break_the_worker(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(event: Any) -> None:
        raise RuntimeError(f"cannot bear {event.name}")

    async def raises_later(event: Any) -> None:
        await asyncio.sleep(0)
        raise RuntimeError(f"cannot bear {event.name} later")

    events = Events()
    events.on(Event, raises)
    events.on(JobStarted, raises_later)
    recorder = EventRecorder(events)

    async def job1(payload: Any) -> None:
        if payload["n"] == 3:
            raise ValueError("three")

    await jobs.add_many("job1", 6)
    await jobs.add_many("job1", 3, queue="serial")
    runner = await workers.start({"job1": job1}, events=events, concurrency=2)
    await recorder.wait_for(JobSucceeded, count=8)
    await recorder.wait_for(JobErrored)
    await workers.stop(runner)
    assert headline(await jobs.one()) == "ValueError: three"
    assert "cannot bear job:start later" in caplog.text
    assert "cannot bear pool:create" in caplog.text


async def test_an_observer_may_stop_the_worker(jobs: Jobs, workers: Workers) -> None:
    events = Events()

    async def job1() -> None:
        pass

    runner = await workers.start({"job1": job1}, events=events)

    async def stop(_event: JobSucceeded) -> None:
        await runner.stop()

    events.on(JobSucceeded, stop)
    await jobs.add("job1")
    async with asyncio.timeout(PATIENCE):
        await runner.wait()
    assert await jobs.count() == 0


@IN_ONE_MODE
async def test_plugins_bring_observers_and_interceptors(jobs: Jobs, workers: Workers) -> None:
    steps: list[str] = []

    class Plugin:
        def install(self, hooks: Hooks) -> None:
            hooks.events.on(JobSucceeded, lambda event: steps.append(event.name))
            hooks.before_run(lambda job: steps.append(f"before {job.task_identifier}"))
            hooks.after_run(lambda job, outcome: steps.append(f"after {outcome.error}"))

    async def job1() -> None:
        steps.append("task")

    await jobs.add("job1")
    await workers.once({"job1": job1}, plugins=[Plugin()])
    assert steps == ["before job1", "task", "after None", "job:success"]


async def test_hooks_before_and_after_a_run_decide_what_becomes_of_the_job(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    hooks = Hooks(events=recorder.events)
    ran: list[str] = []

    @hooks.before_run
    async def decide(job: Job) -> SkipJob | FailJob | None:
        await asyncio.sleep(0)
        if job.payload["name"] == "exit":
            raise SystemExit("broken hook")
        decisions: dict[str, SkipJob | FailJob] = {
            "skip": SkipJob("not needed"),
            "fail": FailJob("not today"),
        }
        return decisions.get(job.payload["name"])

    @hooks.after_run
    async def note(job: Job, outcome: Outcome) -> None:
        if job.payload["name"] == "lose":
            raise RuntimeError("the receipt was lost")

    async def job1(payload: Any) -> None:
        ran.append(payload["name"])

    for name in ("skip", "fail", "exit", "lose", "run"):
        await jobs.add("job1", {"name": name}, queue=name, max_attempts=1)
    await workers.once({"job1": job1}, hooks=hooks)
    assert ran == ["lose", "run"]
    rows = await jobs.all()
    assert {row["queue_name"]: headline(row) for row in rows} == {
        "fail": "not today",
        "exit": "SystemExit: broken hook",
        "lose": "RuntimeError: the receipt was lost",
    }
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(1, None)}
    assert recorder.count(JobSucceeded) == 2


tenant: ContextVar[str] = ContextVar("tenant", default="none")


@IN_ONE_MODE
async def test_a_context_variable_set_before_a_run_is_seen_by_that_run_only(
    jobs: Jobs, workers: Workers
) -> None:
    hooks = Hooks()
    seen: list[str] = []

    @hooks.before_run
    def enter(job: Job) -> None:
        seen.append(f"before: {tenant.get()}")
        tenant.set(f"tenant {job.payload['n']}")

    async def in_coroutine() -> None:
        seen.append(tenant.get())

    def in_thread() -> None:
        seen.append(tenant.get())

    await jobs.add("in_coroutine", {"n": 0}, priority=0)
    await jobs.add("in_thread", {"n": 1}, priority=1)
    await workers.once({"in_coroutine": in_coroutine, "in_thread": in_thread}, hooks=hooks)
    assert seen == ["before: none", "tenant 0", "before: none", "tenant 1"]


@IN_ONE_MODE
async def test_before_add_may_change_or_refuse_a_job(jobs: Jobs, workers: Workers, database_url: str) -> None:
    hooks = Hooks()
    ran: list[Any] = []

    @hooks.before_add
    async def check(spec: JobSpec) -> JobSpec | None:
        if spec.payload == {"name": "refuse"}:
            raise JobRefusedError("not this one")
        if spec.payload == {"name": "change"}:
            return msgspec.structs.replace(spec, payload={"name": "changed"}, queue_name="changed")
        return None

    async def job1(payload: Any) -> None:
        ran.append(payload["name"])

    async def adds(payload: Any, helpers: Any) -> None:
        for name in ("keep", "change"):
            await helpers.add_job("job1", {"name": name})
        await helpers.add_jobs([JobSpec("job1", {"name": "change"})])
        with pytest.raises(JobRefusedError):
            await helpers.add_job("job1", {"name": "refuse"})

    await jobs.add("adds")
    await workers.once({"job1": job1, "adds": adds}, hooks=hooks)
    assert sorted(ran) == ["changed", "changed", "keep"]
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        job = await utils.add_job("job1", {"name": "change"})
        assert job.payload == {"name": "changed"}
        assert job.job_queue_id is not None


@IN_ONE_MODE
async def test_a_coroutine_that_observes_is_waited_for_at_the_end(jobs: Jobs, workers: Workers) -> None:
    events = Events()
    noted: list[str] = []

    @events.on("job:complete")
    async def note(event: Any) -> None:
        await asyncio.sleep(0.05)  # timing: so that there is something to wait for
        noted.append(event.name)

    async def job1() -> None:
        pass

    await jobs.add("job1")
    await workers.once({"job1": job1}, events=events)
    assert noted == ["job:complete"]
