"""What a task may return: nothing is dropped silently, and answers of hooks are no success."""

from __future__ import annotations

import asyncio
from typing import Any

from graphile_worker import Job
from graphile_worker.hooks import FailJob, Hooks, Outcome
from support.working import Jobs, Workers, headline


async def test_what_a_task_returns_is_awaited_and_judged(jobs: Jobs, workers: Workers) -> None:
    hooks, results = Hooks(), dict[str, Any]()

    @hooks.after_run
    def keep(job: Job, outcome: Outcome) -> None:
        results[job.task_identifier] = getattr(outcome, "result", None)

    async def work() -> str:
        await asyncio.sleep(0)
        return "result"

    async def breaks() -> None:
        raise RuntimeError("not done")

    async def returns() -> Any:
        return work()

    def returns_from_thread() -> Any:
        return work()

    async def returns_error() -> Any:
        return breaks()

    def answers_like_a_hook() -> Any:
        return FailJob("declined")

    for name in ("returns", "returns_from_thread", "returns_error", "answers_like_a_hook"):
        await jobs.add(name, max_attempts=1)
    await workers.once([returns, returns_from_thread, returns_error, answers_like_a_hook], hooks=hooks)
    assert (results["returns"], results["returns_from_thread"]) == ("result", "result")
    assert {row["identifier"]: headline(row) for row in await jobs.all()} == {
        "returns_error": "RuntimeError: not done",
        "answers_like_a_hook": (
            "the task returned FailJob, which only hooks may return; to fail the job, raise an exception"
        ),
    }
