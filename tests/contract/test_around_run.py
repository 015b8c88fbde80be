"""Interceptors around a run: they enclose every kind of task, and no outcome is lost in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import Completed, Failed, Hooks, Interrupted, Job, Outcome
from graphile_worker.hooks import CallNext
from graphile_worker.hooks.events import JobInterrupted
from graphile_worker.tasks import load_tasks
from graphile_worker.testing.recorder import EventRecorder
from support.working import PATIENCE, Gate, Jobs, Workers, headline

scope: ContextVar[str] = ContextVar("scope", default="none")


async def test_interceptors_nest_in_the_order_of_installation(jobs: Jobs, workers: Workers) -> None:
    hooks = Hooks()
    steps: list[str] = []

    def layer(name: str) -> Any:
        async def around(job: Job, call_next: CallNext) -> Outcome:
            steps.append(f"{name} in")
            outcome = await call_next()
            steps.append(f"{name} out: {outcome}")
            return outcome

        return around

    hooks.around_run(layer("outer"))
    hooks.before_run(lambda job: steps.append("before"))
    hooks.after_run(lambda job, outcome: steps.append("after"))
    hooks.around_run(layer("inner"))

    async def job1() -> str:
        steps.append("task")
        return "done"

    await jobs.add("job1")
    await workers.once({"job1": job1}, hooks=hooks)
    completed = Completed("done")
    assert steps == [
        *("outer in", "inner in", "before", "task", "after"),
        *(f"inner out: {completed}", f"outer out: {completed}"),
    ]
    assert await jobs.count() == 0


async def test_every_kind_of_task_runs_inside(jobs: Jobs, workers: Workers, tmp_path: Path) -> None:
    hooks = Hooks()
    seen: dict[str, str] = {}
    outcomes: dict[str, Outcome] = {}

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome:
        token = scope.set(job.task_identifier)
        try:
            outcomes[job.task_identifier] = outcome = await call_next()
        finally:
            scope.reset(token)
        return outcome

    async def coroutine() -> int:
        seen["coroutine"] = scope.get()
        return 1

    def thread() -> int:
        assert threading.current_thread() is not threading.main_thread()
        seen["thread"] = scope.get()
        return 2

    async def batch(payload: list[int]) -> list[Any]:
        seen["batch"] = scope.get()
        return [ValueError("odd") if item % 2 else None for item in payload]

    script = tmp_path / "executable"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    executable = load_tasks(tmp_path)["executable"]
    await jobs.add("coroutine")
    await jobs.add("thread")
    await jobs.add("executable")
    await jobs.add("batch", [1, 2, 3])
    tasks = {"coroutine": coroutine, "thread": thread, "batch": batch, "executable": executable}
    await workers.once(tasks, hooks=hooks)
    assert seen == {"coroutine": "coroutine", "thread": "thread", "batch": "batch"}
    assert (outcomes["coroutine"], outcomes["thread"]) == (Completed(1), Completed(2))
    batch_outcome, executable_outcome = outcomes["batch"], outcomes["executable"]
    assert isinstance(batch_outcome, Failed)
    assert batch_outcome.remaining_payload == "[1,3]"
    assert isinstance(executable_outcome, Failed)
    assert "exited with status 3" in executable_outcome.message
    assert {row["identifier"]: row["payload"] for row in await jobs.all()} == {
        "batch": "[1,3]",
        "executable": "{}",
    }


async def test_a_context_manager_gets_the_error_and_the_job_keeps_it(jobs: Jobs, workers: Workers) -> None:
    hooks = Hooks()
    ended: list[str] = []

    @asynccontextmanager
    async def transaction() -> Any:
        try:
            yield
        except ValueError as error:
            ended.append(f"rolled back: {error}")
            raise
        else:
            ended.append("committed")

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome:
        async with transaction():
            outcome = await call_next()
            if outcome.error is not None:
                raise outcome.error
            return outcome

    async def job1(payload: Any) -> None:
        if payload["n"] == 1:
            raise ValueError("one")

    await jobs.add_many("job1", 2)
    await workers.once({"job1": job1}, hooks=hooks)
    assert ended == ["committed", "rolled back: one"]
    row = await jobs.one()
    assert (headline(row), row["attempts"]) == ("ValueError: one", 1)


async def before(job: Job, call_next: CallNext) -> Outcome:
    raise RuntimeError("broken")


async def after(job: Job, call_next: CallNext) -> Outcome:
    await call_next()
    raise RuntimeError("broken")


async def exits(job: Job, call_next: CallNext) -> Outcome:
    await call_next()
    raise SystemExit("broken")


async def never_calls(job: Job, call_next: CallNext) -> None:
    pass


async def calls_twice(job: Job, call_next: CallNext) -> Outcome:
    await call_next()
    return await call_next()


async def returns_nonsense(job: Job, call_next: CallNext) -> Any:
    await call_next()
    return "fine"


@pytest.mark.parametrize(
    ("around", "error"),
    [
        (before, "RuntimeError: broken"),
        (after, "RuntimeError: broken"),
        (exits, "SystemExit: broken"),
        (never_calls, "did not await call_next() and returned no outcome"),
        (calls_twice, "RuntimeError: call_next() was called twice"),
        (returns_nonsense, "returned str; expected the outcome"),
    ],
)
async def test_a_broken_interceptor_fails_the_job_only(
    jobs: Jobs, workers: Workers, around: Any, error: str
) -> None:
    hooks = Hooks()
    hooks.around_run(lambda job, call_next: around(job, call_next) if job.payload["n"] == 0 else call_next())
    (first, _) = await jobs.add_many("job1", 2)

    async def job1() -> None:
        pass

    await workers.once({"job1": job1}, hooks=hooks)
    row = await jobs.one()
    assert (row["id"], row["attempts"], row["locked_by"]) == (first, 1, None)
    assert error in headline(row)


@pytest.mark.parametrize("around", [after, exits, calls_twice, returns_nonsense])
async def test_a_failed_job_keeps_its_own_error(jobs: Jobs, workers: Workers, around: Any) -> None:
    hooks = Hooks()
    hooks.around_run(around)

    async def job1() -> None:
        raise ValueError("the task's own")

    await jobs.add("job1")
    await workers.once({"job1": job1}, hooks=hooks)
    assert headline(await jobs.one()) == "ValueError: the task's own"


async def test_an_interceptor_may_forget_to_return_the_outcome_or_return_another(
    jobs: Jobs, workers: Workers
) -> None:
    hooks = Hooks()

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome | None:
        outcome = await call_next()
        return Completed() if isinstance(outcome, Failed) and job.payload["n"] == 0 else None

    async def job1(payload: Any) -> None:
        raise ValueError(f"number {payload['n']}")

    await jobs.add_many("job1", 2)
    await workers.once({"job1": job1}, hooks=hooks)
    assert headline(await jobs.one()) == "ValueError: number 1"


async def swallows_inside(gate: Gate, call_next: CallNext) -> Outcome:
    outcome = await call_next()
    assert isinstance(outcome, Interrupted)
    return Completed("never mind")


async def raises_after(gate: Gate, call_next: CallNext) -> Outcome:
    await call_next()
    raise RuntimeError("broken")


async def swallows_before(gate: Gate, call_next: CallNext) -> Outcome:
    try:
        await gate()
    except asyncio.CancelledError:
        return await call_next()
    raise AssertionError("not cancelled")


async def completes_instead(gate: Gate, call_next: CallNext) -> Outcome:
    try:
        await gate()
    except asyncio.CancelledError:
        return Completed()
    raise AssertionError("not cancelled")


async def is_cancelled_before(gate: Gate, call_next: CallNext) -> Outcome:
    await gate()
    raise AssertionError("not cancelled")


@pytest.mark.parametrize(
    "around", [swallows_inside, raises_after, swallows_before, completes_instead, is_cancelled_before]
)
async def test_an_interruption_cannot_be_suppressed(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, around: Callable[[Gate, CallNext], Any]
) -> None:
    hooks = Hooks(events=recorder.events)
    gate = Gate()
    hooks.around_run(lambda job, call_next: around(gate, call_next))
    ended: list[str] = []

    async def job1() -> None:
        await gate()
        ended.append("task")

    await jobs.add("job1", queue="serial", max_attempts=1)
    runner = await workers.start(
        {"job1": job1}, hooks=hooks, graceful_shutdown_abort_timeout=0.01, grace=0.05
    )
    await gate.until_inside(1)
    async with asyncio.timeout(PATIENCE):
        await runner.stop(reason="time to go")
    row = await jobs.one()
    assert (row["attempts"], row["locked_by"], row["last_error"]) == (0, None, "Interrupted: time to go")
    assert recorder.count(JobInterrupted) == 1
    assert await jobs.locked() == 0
    assert ended == []


async def test_a_completed_job_stays_completed_when_cancelled_too_late(jobs: Jobs, workers: Workers) -> None:
    hooks = Hooks()
    gate = Gate()

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next()
        try:
            await gate()
        except asyncio.CancelledError:
            return outcome
        raise AssertionError("not cancelled")

    async def job1() -> None:
        pass

    await jobs.add("job1")
    runner = await workers.start(
        {"job1": job1}, hooks=hooks, graceful_shutdown_abort_timeout=0.01, grace=0.05
    )
    await gate.until_inside(1)
    async with asyncio.timeout(PATIENCE):
        await runner.stop()
    assert await jobs.count() == 0


async def test_an_interceptor_installed_while_the_worker_runs_takes_effect(
    jobs: Jobs, workers: Workers
) -> None:
    hooks = Hooks()
    seen: list[int] = []

    async def job1(payload: Any) -> int:
        return payload["n"]

    runner = await workers.start({"job1": job1}, hooks=hooks)
    await jobs.add_many("job1", 1)
    await jobs.until_gone()

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next()
        assert isinstance(outcome, Completed)
        seen.append(outcome.result)
        return outcome

    await jobs.add_many("job1", 3)
    await jobs.until_gone()
    await workers.stop(runner)
    assert sorted(seen) == [0, 1, 2]
