"""What a task may return: nothing is dropped silently, and answers of hooks are no success."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from graphile_worker import FailJob, Hooks, Job, LeaveLocked, Outcome, SkipJob, get_current_job, task
from support.working import Jobs, Workers, headline


@pytest.mark.parametrize("kind", ["async", "plain", "async twice", "a task of asyncio"])
async def test_a_coroutine_that_a_task_returns_is_awaited(jobs: Jobs, workers: Workers, kind: str) -> None:
    done: list[Any] = []
    results: list[Any] = []
    hooks = Hooks()

    @hooks.after_run
    def keep(job: Job, outcome: Outcome) -> None:
        results.append(getattr(outcome, "result", None))

    async def work() -> str:
        await asyncio.sleep(0)
        done.append((threading.current_thread() is threading.main_thread(), get_current_job().id))
        return "result"

    async def in_coroutine() -> Any:
        return work()

    def in_thread() -> Any:
        return work()

    async def twice() -> Any:
        return in_coroutine()

    async def as_task() -> Any:
        return asyncio.get_running_loop().create_task(work())

    functions = {
        "async": in_coroutine,
        "plain": in_thread,
        "async twice": twice,
        "a task of asyncio": as_task,
    }
    job_id = await jobs.add("returns", max_attempts=1)
    await workers.once({"returns": functions[kind]}, hooks=hooks)
    assert done == [(True, job_id)]
    assert results == ["result"]
    assert await jobs.count() == 0


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_an_error_in_a_returned_coroutine_fails_the_job(
    jobs: Jobs, workers: Workers, kind: str
) -> None:
    async def work() -> None:
        raise RuntimeError("not done")

    async def in_coroutine() -> Any:
        return work()

    def in_thread() -> Any:
        return work()

    await jobs.add("returns", max_attempts=1)
    await workers.once({"returns": in_coroutine if kind == "async" else in_thread})
    assert headline(await jobs.one()) == "RuntimeError: not done"


async def test_a_returned_coroutine_may_give_the_results_of_a_batch(jobs: Jobs, workers: Workers) -> None:
    async def results() -> list[Any]:
        return [None, ValueError("no")]

    async def batch(payload: Any) -> Any:
        return results()

    await jobs.add("batch", [1, 2], max_attempts=1)
    await workers.once({"batch": batch})
    assert (await jobs.one())["payload"] == "[2]"


@pytest.mark.parametrize("answer", [FailJob("declined"), SkipJob("later"), LeaveLocked()])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_an_answer_of_hooks_fails_the_job_and_says_what_to_do(
    jobs: Jobs, workers: Workers, answer: Any, kind: str
) -> None:
    @task("in_coroutine")
    async def in_coroutine() -> Any:
        return answer

    @task("in_thread")
    def in_thread() -> Any:
        return answer

    await jobs.add("answers", max_attempts=1)
    await workers.once({"answers": in_coroutine if kind == "async" else in_thread})
    name = type(answer).__name__
    assert headline(await jobs.one()) == (
        f"the task returned {name}, which only hooks may return; to fail the job, raise an exception"
    )
