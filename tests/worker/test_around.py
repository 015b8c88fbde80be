"""Interceptors around a run: they enclose every kind of task, and no outcome is lost in them. No database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import Job
from graphile_worker.hooks import CallNext, Completed, Failed, Hooks, Interrupted, Outcome
from graphile_worker.tasks import load_tasks
from graphile_worker.values.outcome import COMPLETED
from support.cases import Cases
from support.executing import Attempts, headline_of
from support.working import Gate

scope: ContextVar[str] = ContextVar("scope", default="none")


async def test_interceptors_nest_in_the_order_of_installation() -> None:
    hooks, steps = Hooks(), list[str]()

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

    with Attempts([job1], hooks) as attempt:
        assert await attempt("job1") is COMPLETED
    completed = Completed("done")
    assert steps == [
        *("outer in", "inner in", "before", "task", "after"),
        *(f"inner out: {completed}", f"outer out: {completed}"),
    ]


async def test_every_kind_of_task_runs_inside(tmp_path: Path) -> None:
    hooks, seen, outcomes = Hooks(), dict[str, str](), dict[str, Outcome]()

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
    tasks = {"coroutine": coroutine, "thread": thread, "batch": batch, "executable": executable}
    with Attempts(tasks, hooks) as attempt:
        for name in tasks:
            outcome = await attempt(name, [1, 2, 3] if name == "batch" else {})
            assert type(outcome) is type(outcomes[name])
    assert seen == {"coroutine": "coroutine", "thread": "thread", "batch": "batch"}
    assert (outcomes["coroutine"], outcomes["thread"]) == (Completed(1), Completed(2))
    batch_outcome, executable_outcome = outcomes["batch"], outcomes["executable"]
    assert isinstance(batch_outcome, Failed)
    assert batch_outcome.remaining_payload == "[1,3]"
    assert isinstance(executable_outcome, Failed)
    assert "exited with status 3" in executable_outcome.message


async def test_a_context_manager_gets_the_error_and_the_job_keeps_it() -> None:
    hooks, ended = Hooks(), list[str]()

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
        if payload == "fails":
            raise ValueError("one")

    with Attempts([job1], hooks) as attempt:
        assert await attempt("job1", "works") is COMPLETED
        assert headline_of(await attempt("job1", "fails")) == "ValueError: one"
    assert ended == ["committed", "rolled back: one"]


# -- interceptors that are wrong ---------------------------------------------------------------------------


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


async def forgets_to_return(job: Job, call_next: CallNext) -> None:
    await call_next()


async def returns_another(job: Job, call_next: CallNext) -> Outcome:
    await call_next()
    return Completed("another")


OWN = "ValueError: the task's own"
WRONG: dict[Any, tuple[str | None, str | None]] = {
    # the error of a job whose task succeeds, and of one whose task fails; None if the job completes
    before: ("RuntimeError: broken", "RuntimeError: broken"),
    after: ("RuntimeError: broken", OWN),
    exits: ("SystemExit: broken", OWN),
    never_calls: ("did not await call_next() and returned no outcome",) * 2,
    calls_twice: ("RuntimeError: call_next() was called twice", OWN),
    returns_nonsense: ("returned str; expected the outcome", OWN),
    forgets_to_return: (None, OWN),
    returns_another: (None, None),
}


async def test_a_wrong_interceptor_fails_the_job_and_a_failed_job_keeps_its_own_error() -> None:
    async def job1(payload: Any) -> None:
        if payload == "fails":
            raise ValueError("the task's own")

    with Cases() as cases:
        for around, expected in WRONG.items():
            hooks = Hooks()
            hooks.around_run(around)
            with Attempts([job1], hooks) as attempt:
                for name, message in zip(("works", "fails"), expected, strict=True):
                    with cases(around.__name__, name):
                        outcome = await attempt("job1", name)
                        if message is None:
                            assert outcome is COMPLETED
                        else:
                            assert message in headline_of(outcome)


# -- interruptions -----------------------------------------------------------------------------------------


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
async def test_an_interruption_cannot_be_suppressed(around: Callable[[Gate, CallNext], Any]) -> None:
    hooks, gate, ended = Hooks(), Gate(), list[str]()
    hooks.around_run(lambda job, call_next: around(gate, call_next))

    async def job1() -> None:
        await gate()
        ended.append("task")

    with Attempts([job1], hooks) as attempt:
        running = asyncio.create_task(attempt("job1"))
        await gate.until_inside(1)
        attempt.interrupt(running, "Interrupted: time to go")
        outcome = await running
    assert isinstance(outcome, Interrupted)
    assert outcome.message == "Interrupted: time to go"
    assert running.cancelling() == 0
    assert ended == []


async def test_a_completed_job_stays_completed_when_cancelled_too_late() -> None:
    hooks, gate = Hooks(), Gate()

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

    with Attempts([job1], hooks) as attempt:
        running = asyncio.create_task(attempt("job1"))
        await gate.until_inside(1)
        attempt.interrupt(running, "Interrupted: time to go")
        assert await running is COMPLETED
