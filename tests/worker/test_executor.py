"""What becomes of an attempt by what the task returns and raises, and by what hooks say. No database.

`tests/contract` has a few of these in a worker of each mode.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from graphile_worker import Job, JobHelpers, get_current_job, task
from graphile_worker.errors import BatchFailureError, JobInterruptedError
from graphile_worker.errors.text import MAX_MESSAGE
from graphile_worker.hooks import FailJob, Hooks, LeaveLocked, Outcome, SkipJob
from graphile_worker.values.outcome import COMPLETED, Completed, Failed, Interrupted
from graphile_worker.values.spec import DEFAULT_MAX_ATTEMPTS
from support.cases import Cases
from support.executing import Attempts, headline_of

ITEMS = [{"a": 1}, {"a": 2}, {"a": 3}]


def in_thread(function: Any) -> Any:
    """A plain function that calls this coroutine function, and does not await what it returns."""
    return lambda: function()


# -- what a task returns -----------------------------------------------------------------------------------


async def test_a_coroutine_that_a_task_returns_is_awaited() -> None:
    hooks, results, places = Hooks(), list[Any](), list[Any]()
    hooks.after_run(lambda job, outcome: results.append((job.task_identifier, outcome)))

    async def work() -> str:
        await asyncio.sleep(0)
        places.append((threading.current_thread() is threading.main_thread(), get_current_job().id))
        return "result"

    async def in_coroutine() -> Any:
        return work()

    async def twice() -> Any:
        return in_coroutine()

    async def as_task() -> Any:
        return asyncio.get_running_loop().create_task(work())

    tasks = {"async": in_coroutine, "plain": in_thread(work), "async twice": twice, "as task": as_task}
    with Attempts(tasks, hooks) as attempt:
        for name in tasks:
            assert await attempt(name) is COMPLETED  # the result would stay in memory
    assert results == [(name, Completed("result")) for name in tasks]
    assert places == [(True, number) for number in range(1, len(tasks) + 1)]


async def test_an_error_in_a_returned_coroutine_fails_the_job() -> None:
    async def work() -> None:
        raise RuntimeError("not done")

    async def in_coroutine() -> Any:
        return work()

    with Attempts({"async": in_coroutine, "plain": in_thread(work)}) as attempt:
        assert headline_of(await attempt("async")) == "RuntimeError: not done"
        assert headline_of(await attempt("plain")) == "RuntimeError: not done"


async def test_an_answer_of_hooks_fails_the_job_and_says_what_to_do() -> None:
    answers = {"FailJob": FailJob("declined"), "SkipJob": SkipJob("later"), "LeaveLocked": LeaveLocked()}

    async def in_coroutine(payload: Any) -> Any:
        return answers[payload]

    def plain(payload: Any) -> Any:
        return answers[payload]

    with Attempts([in_coroutine, plain]) as attempt, Cases() as cases:
        for kind in ("in_coroutine", "plain"):
            for name in answers:
                with cases(kind, name):
                    assert headline_of(await attempt(kind, name)) == (
                        f"the task returned {name}, which only hooks may return; "
                        "to fail the job, raise an exception"
                    )


async def test_whatever_else_a_task_returns_is_success() -> None:
    results = [42, "text", object(), {"a": 1}, [], range(3), [None], (1, 2)]

    async def returns(payload: Any) -> Any:
        return result

    with Attempts([returns]) as attempt, Cases() as cases:
        for result in results:
            for payload in (ITEMS, {"a": 1}):
                with cases(result, payload):
                    assert await attempt("returns", payload) is COMPLETED


# -- batch jobs --------------------------------------------------------------------------------------------


async def _later(item: Any) -> Any:
    if item["a"] != 2:
        raise RuntimeError(f"item {item['a']} failed")
    return item


@pytest.mark.compat("BAT-2", "BAT-3", "BAT-4", "BAT-5", "BJ3")
async def test_a_batch_job_keeps_the_items_that_failed() -> None:
    async def coroutines(payload: Any) -> list[Any]:
        return [_later(item) for item in payload]

    def plain(payload: Any) -> list[Any]:
        return [_later(item) for item in payload]

    async def exceptions(payload: Any) -> list[Any]:
        return [None if item["a"] == 2 else RuntimeError(f"item {item['a']} failed") for item in payload]

    async def returned_coroutine(payload: Any) -> Any:
        return coroutines(payload)

    async def nothing(payload: Any) -> None:
        assert payload == ITEMS

    async def raises(payload: Any) -> None:
        raise RuntimeError("all of it")

    async def too_few(payload: Any) -> list[Any]:
        return [None]

    tasks = [coroutines, plain, exceptions, returned_coroutine, nothing, raises, too_few]
    with Attempts(tasks) as attempt:
        for name in ("coroutines", "plain", "exceptions", "returned_coroutine"):
            outcome = await attempt(name, ITEMS)
            assert isinstance(outcome, Failed), name
            assert json.loads(outcome.remaining_payload or "") == [{"a": 1}, {"a": 3}]
            assert [line.partition(" at ")[0] for line in outcome.message.split("\n")] == [
                "Batch failures:",
                "RuntimeError: item 1 failed",
                "RuntimeError: item 3 failed",
            ]
            assert isinstance(outcome.error, BatchFailureError)
            assert [str(error) for error in outcome.batch_errors or ()] == ["item 1 failed", "item 3 failed"]
        assert await attempt("nothing", ITEMS) is COMPLETED
        assert await attempt("too_few", ITEMS) is COMPLETED
        whole = await attempt("raises", ITEMS)
        assert isinstance(whole, Failed)
        assert (headline_of(whole), whole.remaining_payload) == ("RuntimeError: all of it", None)


# -- what a task raises ------------------------------------------------------------------------------------


class OddError(BaseException):
    """Neither an Exception nor an exit."""


class SilentError(Exception):
    def __str__(self) -> str:
        return ""


RAISED: list[tuple[BaseException, str]] = [
    (RuntimeError("plain"), "RuntimeError: plain"),
    (KeyError("sku"), "KeyError: 'sku'"),
    (SilentError(), f"{__name__}.SilentError"),
    (RuntimeError(), "RuntimeError"),
    (RuntimeError("a\0b"), r"RuntimeError: a\x00b"),
    (RuntimeError("lone \ud800 surrogate"), r"RuntimeError: lone \ud800 surrogate"),
    (RuntimeError("ümläut 🙂"), "RuntimeError: ümläut 🙂"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (OddError("base"), f"{__name__}.OddError: base"),
    (asyncio.CancelledError(), "the task was cancelled, but not by the worker"),
    (TimeoutError(), "TimeoutError"),
    (StopAsyncIteration("stop"), "StopAsyncIteration: stop"),
    (ExceptionGroup("several", [ValueError("one")]), "ExceptionGroup: several (1 sub-exception)"),
    (JobInterruptedError("not asked to"), "JobInterruptedError: not asked to"),
]


async def test_whatever_a_task_raises_fails_its_job() -> None:
    async def in_coroutine(payload: Any) -> None:
        await asyncio.sleep(0)
        raise RAISED[payload][0].with_traceback(None)

    def in_a_thread(payload: Any) -> None:
        raise RAISED[payload][0].with_traceback(None)

    with Attempts([in_coroutine, in_a_thread]) as attempt, Cases() as cases:
        for name in ("in_coroutine", "in_a_thread"):
            for number, (error, message) in enumerate(RAISED):
                if name == "in_a_thread" and isinstance(error, GeneratorExit):
                    continue  # it closes the coroutine that waits for the thread, and the slot fails the job
                with cases(name, error):
                    outcome = await attempt(name, number)
                    assert headline_of(outcome) == message
                    assert isinstance(outcome, Failed)
                    if not isinstance(error, asyncio.CancelledError):
                        place = rf"^  at .*test_executor\.py, line \d+, in {name}$"
                        assert re.search(place, outcome.message, re.M)
                    assert outcome.error.__traceback__ is None  # its frames would keep locals alive


async def test_a_huge_message_is_cut_and_an_exit_is_a_failure() -> None:
    async def talks() -> None:
        raise RuntimeError("x" * 5_000_000)

    async def leaves() -> None:
        sys.exit("no more")

    with Attempts([talks, leaves]) as attempt:
        talked = await attempt("talks")
        assert isinstance(talked, Failed)
        assert len(talked.message) == MAX_MESSAGE
        assert headline_of(await attempt("leaves")) == "SystemExit: no more"


async def test_a_task_that_cancels_itself_has_failed() -> None:
    async def cancels(payload: Any) -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)

    with Attempts([cancels]) as attempt:
        running = asyncio.create_task(attempt("cancels"))
        assert headline_of(await running) == "the task was cancelled, but not by the worker"


async def test_a_task_that_the_worker_cancels_is_interrupted() -> None:
    entered = asyncio.Event()

    async def waits(payload: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    with Attempts([waits]) as attempt:
        running = asyncio.create_task(attempt("waits"))
        await entered.wait()
        attempt.interrupt(running, "Interrupted: time to go")
        outcome = await running
    assert isinstance(outcome, Interrupted)
    assert outcome.message == "Interrupted: time to go"
    assert running.cancelling() == 0  # or the slot would be cancelled, too


@pytest.mark.compat("RUN-10")
async def test_a_task_that_heeds_the_abort_signal_is_interrupted() -> None:
    async def abortable(helpers: JobHelpers) -> None:
        await helpers.abortable(asyncio.Event().wait())

    async def raises(helpers: JobHelpers) -> None:
        await helpers.abort_signal.wait()
        helpers.raise_if_aborted()

    async def fails(helpers: JobHelpers) -> None:
        await helpers.abort_signal.wait()
        raise RuntimeError("gave up")

    with Attempts([abortable, raises, fails]) as attempt:
        running = [asyncio.create_task(attempt(name)) for name in ("abortable", "raises", "fails")]
        await asyncio.sleep(0)
        attempt.executor.services.abort_signal.set("time to go")
        *interrupted, failed = await asyncio.gather(*running)
    for outcome in interrupted:
        assert isinstance(outcome, Interrupted)
        assert outcome.message == "Interrupted: time to go"
    assert headline_of(failed) == "RuntimeError: gave up"


@dataclass
class Letter:
    to: str
    copies: int = 1


async def test_a_payload_of_the_wrong_type_fails_the_job_without_calling_the_task() -> None:
    called: list[Letter] = []

    async def send(payload: Letter) -> None:
        called.append(payload)

    with Attempts([send]) as attempt:
        assert "copies" in headline_of(await attempt("send", {"to": "a", "copies": "many"}))
        assert await attempt("send", {"to": "b", "copies": 2}) is COMPLETED
        assert "'unknown'" in headline_of(await attempt("unknown"))
    assert called == [Letter("b", 2)]


# -- hooks before and after --------------------------------------------------------------------------------


async def test_before_run_may_skip_or_fail_a_job() -> None:
    hooks, ran = Hooks(), list[str]()
    answers: dict[str, Any] = {
        "skip": SkipJob("not needed"),
        "fail": FailJob("not today"),
        "run": None,
        "nonsense": "yes",
        "raise": SystemExit("broken hook"),
        "close": GeneratorExit("broken hook"),
    }

    @hooks.before_run
    async def decide(job: Job) -> Any:
        await asyncio.sleep(0)
        answer = answers[job.payload]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def job1(payload: Any) -> None:
        ran.append(payload)

    with Attempts([job1], hooks) as attempt:
        assert await attempt("job1", "skip") is COMPLETED
        assert await attempt("job1", "run") is COMPLETED
        assert headline_of(await attempt("job1", "fail")) == "not today"
        assert "SkipJob" in headline_of(await attempt("job1", "nonsense"))
        assert headline_of(await attempt("job1", "raise")) == "SystemExit: broken hook"
        assert headline_of(await attempt("job1", "close")) == "GeneratorExit: broken hook"
    assert ran == ["run"]


async def test_after_run_gets_the_outcome_and_its_own_error_fails_the_job() -> None:
    hooks, seen = Hooks(), list[tuple[str, Outcome]]()

    @hooks.after_run
    async def note(job: Job, outcome: Outcome) -> None:
        seen.append((job.payload, outcome))
        if job.payload == "lost" or job.payload == "both":
            raise RuntimeError("the receipt was lost")
        if job.payload == "exit":
            raise SystemExit("out")
        if job.payload == "close":
            raise GeneratorExit("out")

    async def job1(payload: Any) -> Any:
        if payload == "fails" or payload == "both":
            raise ValueError("its own")
        return {"sum": 2} if payload == "result" else None

    with Attempts([job1], hooks) as attempt:
        assert await attempt("job1", "nothing") is COMPLETED
        assert await attempt("job1", "result") is COMPLETED
        assert headline_of(await attempt("job1", "lost")) == "RuntimeError: the receipt was lost"
        assert headline_of(await attempt("job1", "exit")) == "SystemExit: out"
        assert headline_of(await attempt("job1", "close")) == "GeneratorExit: out"
        assert headline_of(await attempt("job1", "fails")) == "ValueError: its own"
        assert headline_of(await attempt("job1", "both")) == "ValueError: its own"
    assert [outcome for _, outcome in seen[:2]] == [Completed(None), Completed({"sum": 2})]
    assert [(name, str(outcome.error)) for name, outcome in seen[5:]] == [
        ("fails", "its own"),
        ("both", "its own"),
    ]


# -- options of tasks --------------------------------------------------------------------------------------


async def test_only_tasks_with_another_number_of_attempts_than_the_database_set_it() -> None:
    tasks = [
        task("few", max_attempts=4)(lambda: None),
        task("default", max_attempts=DEFAULT_MAX_ATTEMPTS)(lambda: None),
        task("none")(lambda: None),
    ]
    with Attempts(tasks) as attempt:
        assert attempt.executor.max_attempts == {"few": 4}
        attempt.executor.learn_options({"few": task("few")(lambda: None)})
        assert attempt.executor.max_attempts == {}
