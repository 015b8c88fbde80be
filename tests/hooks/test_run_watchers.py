"""Watchers of runs: they enclose everything of a run, and break nothing."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

import pytest

from graphile_worker import Job, run_once
from graphile_worker.errors import ConfigError
from graphile_worker.hooks import CallNext, Hooks
from graphile_worker.values.outcome import Completed, Failed, Outcome
from support.working import Jobs

where: ContextVar[str] = ContextVar("where", default="outside")


class Watcher:
    """Sets a variable, and notes what it sees."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.outcomes: list[Outcome | None] = []

    def before(self, job: Job) -> object:
        self.steps.append(f"before {job.task_identifier}, {where.get()}")
        return where.set(job.task_identifier)

    def after(self, state: object, job: Job, outcome: Outcome | None) -> None:
        assert isinstance(state, Token)
        where.reset(state)
        self.steps.append(f"after {job.task_identifier}")
        self.outcomes.append(outcome)


class Broken:
    """Fails before or after a run."""

    def __init__(self, step: str) -> None:
        self._step = step

    def before(self, job: Job) -> object:
        self._fail("before")
        return None

    def after(self, state: object, job: Job, outcome: Outcome | None) -> None:
        self._fail("after")

    def _fail(self, step: str) -> None:
        if step == self._step:
            raise RuntimeError("cannot watch")


@pytest.mark.parametrize("has_interceptor", [False, True])
async def test_a_watcher_encloses_interceptors_and_the_task(
    database_url: str, jobs: Jobs, has_interceptor: bool
) -> None:
    watcher, hooks = Watcher(), Hooks()
    if has_interceptor:

        @hooks.around_run
        async def around(job: Job, call_next: CallNext) -> Any:
            watcher.steps.append(f"around, {where.get()}")
            return await call_next()

    hooks.before_run(lambda job: watcher.steps.append(f"before_run, {where.get()}"))
    hooks.watch_runs(watcher)

    async def works() -> str:
        watcher.steps.append(f"task, {where.get()}")
        return "result"

    def fails(payload: list[int]) -> None:
        watcher.steps.append(f"thread, {where.get()}")
        raise ValueError("no")

    for name, payload in (("works", None), ("fails", [1]), ("fails", {"n": 1}), ("works", None)):
        await jobs.add(name, payload)
    tasks: dict[str, Any] = {"works": works, "fails": fails}
    await run_once(connection_string=database_url, task_list=tasks, hooks=hooks, concurrency=1)
    inner = ["around, {0}"] if has_interceptor else []

    def run(name: str, *more: str) -> list[str]:
        steps = [*inner, "before_run, {0}", *more]
        return [f"before {name}, outside", *(step.format(name) for step in steps), f"after {name}"]

    assert watcher.steps == [
        *run("works", "task, {0}"),
        *run("fails", "thread, {0}"),
        *run("fails"),  # the payload does not fit
        *run("works", "task, {0}"),
    ]
    first, second, third, _ = watcher.outcomes
    assert isinstance(first, Completed)
    assert first.result == "result"
    assert isinstance(second, Failed)
    assert second.error.__traceback__ is None  # dropped by now, but the watcher could see it
    assert "ValueError: no" in second.traceback
    assert isinstance(third, Failed)


@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_watcher_that_fails_does_not_fail_the_job(
    database_url: str, jobs: Jobs, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    watcher, hooks = Watcher(), Hooks()
    hooks.watch_runs(Broken(step))
    hooks.watch_runs(watcher)

    async def works() -> None: ...

    job_id = await jobs.add("works")
    await run_once(connection_string=database_url, task_list={"works": works}, hooks=hooks)
    assert await jobs.count() == 0
    assert watcher.steps == ["before works, outside", "after works"]
    assert f"a watcher of runs failed for task works (job {job_id}): Broken" in caplog.text


def test_something_that_cannot_watch_is_refused() -> None:
    with pytest.raises(ConfigError, match="methods before and after"):
        Hooks().watch_runs(object())  # type: ignore[arg-type]
