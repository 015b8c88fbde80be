"""Whatever code of the application raises, and wherever the worker calls it, the worker goes on.

A trap raises once in the hook that a test has set. Where each hook is set in turn, it needs a job that runs:
so each proves that the worker has survived the one before it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from graphile_worker import Job, JobHelpers, Retry, task
from graphile_worker.hooks import Events, Hooks
from graphile_worker.hooks.events import Event, PoolFatalError
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.clock import SystemClock
from support.held_load import ARE_LEFT, ROUNDS, SMALL_LOAD, Holding, never_slow
from support.trap import FAULTS, Trap, TrapWatcher
from support.working import MODES, PATIENCE, Gate, Jobs, Workers, until

KINDS: dict[str, dict[str, Any]] = {
    "default": MODES["default"],
    "direct": MODES["direct"],
    "local queue": {
        **MODES["local queue"],
        "local_queue": {"size": 4, "ttl": 0.05, "refetch_delay": {"duration": 0.02, "threshold": 1}},
    },
}

BY_LISTENING = ["pool:listen:notification"]
BY_WAITING = ["worker:getJob:empty"]
BY_LOCAL_QUEUE = [
    "localQueue:setMode", "localQueue:getJobs:complete", "localQueue:refetchDelay:start",
    "localQueue:refetchDelay:expired",
]  # fmt: skip
BY_FAILURES = ["job:error", "job:failed", "redact error", "retry", "log"]
BY_ADDS = ["before_add", "before_add, async", "watch_adds before", "watch_adds after", "jobs:add"]
BY_PAYLOADS = ["payload", "result"]
OF_OBSERVERS = [
    "pool:fetch", "pool:write", "worker:getJob:start", "job:start", "job:success", "job:complete",
    "pool:fetch, async", "job:start, async", "job:success, async", "watch_runs before", "watch_runs after",
]  # fmt: skip
OF_RUNS = [
    "before_run", "before_run, async", "after_run", "after_run, async", "around_run before",
    "around_run after", "redact result",
]  # fmt: skip
OF_THE_CLOCK = ["clock.monotonic", "clock.sleep"]
ALL = [
    *OF_OBSERVERS, *OF_RUNS, *BY_FAILURES, *BY_ADDS, *BY_PAYLOADS, *OF_THE_CLOCK, *BY_WAITING, *BY_LISTENING,
]  # fmt: skip


class Setup:
    """A worker's tasks, and hooks that call the trap."""

    def __init__(self) -> None:
        self.trap = trap = Trap()
        self.ran: list[str] = []
        self.hooks = hooks = Hooks(events=Events())
        hooks.events.on(Event, lambda event: trap(event.name))
        for name in ("pool:fetch", "job:start", "job:success"):
            hooks.events.on(name, self._observe_later)
        hooks.watch_runs(TrapWatcher(trap, "watch_runs"))
        hooks.watch_adds(TrapWatcher(trap, "watch_adds"))  # type: ignore[arg-type]
        hooks.before_add(self._async("before_add, async"))
        hooks.before_add(lambda spec: trap("before_add"))
        hooks.before_run(self._async("before_run, async"))
        hooks.before_run(lambda job: trap("before_run"))
        hooks.after_run(self._async("after_run, async"))
        hooks.after_run(lambda job, outcome: trap("after_run"))
        hooks.redact(self._redact)

        @hooks.around_run
        async def around(job: Job, call_next: Any) -> Any:
            trap("around_run before")
            outcome = await call_next()
            trap("around_run after")
            return outcome

    async def _observe_later(self, event: Event) -> None:
        await asyncio.sleep(0)
        self.trap(f"{event.name}, async")

    def _async(self, name: str) -> Callable[..., Any]:
        async def hook(*_: Any) -> None:
            await asyncio.sleep(0)
            self.trap(name)

        return hook

    def _redact(self, part: str, task_identifier: str, value: Any) -> Any:
        self.trap(f"redact {part}")
        return value

    def flags(self) -> list[str]:
        self.trap("forbidden_flags")
        return []

    async def flags_later(self) -> list[str]:
        await asyncio.sleep(0)
        self.trap("forbidden_flags, async")
        return []

    @property
    def tasks(self) -> dict[str, Any]:
        trap = self.trap

        @dataclass
        class Named:
            n: str

            def __post_init__(self) -> None:
                trap("payload")

        class Result(BaseModel):
            @model_serializer
            def as_json(self) -> dict[str, bool]:
                trap("result")
                return {"kept": True}

        def delay(attempt: int, error: BaseException) -> float:
            trap("retry")
            return 3600.0

        @task(keep=True, max_attempts=1)
        async def works(payload: Named) -> Any:
            self.ran.append(payload.n)
            return Result()

        @task(retry=Retry(delay))
        async def fails() -> None:
            raise ValueError("no")

        @task(max_attempts=1)
        def ends() -> None:
            raise ValueError("no more")

        @task(max_attempts=1)
        async def adds(helpers: JobHelpers) -> None:
            await helpers.add_job("works", {"n": "added"})

        return {"works": works, "fails": fails, "ends": ends, "adds": adds}


class TrapClock(SystemClock):
    """A clock of the application."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    def now(self) -> datetime:
        self._trap("clock.now")
        return super().now()

    def monotonic(self) -> float:
        self._trap("clock.monotonic")
        return super().monotonic()

    async def sleep(self, seconds: float) -> None:
        self._trap("clock.sleep")
        await super().sleep(seconds)


class TrapFilter(logging.Filter):
    """A filter of log records, which no handler guards."""

    def __init__(self, trap: Trap) -> None:
        super().__init__()
        self._trap = trap

    def filter(self, record: logging.LogRecord) -> bool:
        self._trap("log")
        return True


@pytest.fixture
def setup() -> Iterator[Setup]:
    setup = Setup()
    log_filter, logger = TrapFilter(setup.trap), logging.getLogger("graphile_worker.worker")
    logger.addFilter(log_filter)
    yield setup
    logger.removeFilter(log_filter)


def jobs_for(hook: str) -> list[str]:
    """The tasks of jobs that lead to this hook."""
    if hook in BY_LOCAL_QUEUE:
        return ["works"] * 6  # more than fit
    if hook in BY_FAILURES:
        return ["works", "fails", "ends"]
    return ["adds"] if hook in BY_ADDS else ["works"]


async def spring(setup: Setup, jobs: Jobs, fault: type[BaseException], hook: str) -> None:
    """Set the trap in a hook, and run jobs until it has sprung."""
    setup.trap.set(fault, hook)

    async def has_sprung() -> bool:
        for name in jobs_for(hook):
            await jobs.add(name, {"n": hook})
        await asyncio.sleep(0.01)  # timing: between two jobs of a poll
        return not setup.trap.unsprung

    try:
        await until(has_sprung)
    except TimeoutError:
        pytest.fail(f"{hook!r} is not called, or {fault.__name__} in the hook before it broke the worker")


async def check_alive(setup: Setup, jobs: Jobs) -> None:
    """Another job runs, and none stays locked."""
    count = setup.ran.count("proof")
    await jobs.add("works", {"n": "proof"})
    await until(lambda: setup.ran.count("proof") > count)

    async def is_unlocked() -> bool:
        return await jobs.locked() == 0

    await until(is_unlocked)


def plans() -> Iterator[Any]:
    """Every fault in every hook; in the other modes, which only fetch in another way, one fault in each."""
    for fault in FAULTS:
        yield pytest.param("default", [(hook, fault) for hook in ALL], id=f"default-{fault.__name__}")
    in_turn = list(zip(ALL, itertools.cycle(FAULTS), strict=False))
    of_the_queue = [(hook, fault) for fault in FAULTS for hook in BY_LOCAL_QUEUE]
    yield pytest.param("direct", in_turn, id="direct")
    yield pytest.param("local queue", [*in_turn, *of_the_queue], id="local queue")


@pytest.mark.parametrize(("kind", "plan"), list(plans()))
async def test_a_worker_survives_what_its_hooks_raise(
    database_url: str, jobs: Jobs, setup: Setup, kind: str, plan: list[tuple[str, type[BaseException]]]
) -> None:
    workers = Workers(database_url, KINDS[kind])
    recorder = EventRecorder(setup.hooks.events)
    try:
        runner = await workers.start(
            setup.tasks, hooks=setup.hooks, concurrency=3, poll_interval=0.1, clock=TrapClock(setup.trap)
        )
        for hook, fault in plan:
            await spring(setup, jobs, fault, hook)
        await check_alive(setup, jobs)
        assert recorder.count(PoolFatalError) == 0
        await workers.stop(runner)
    finally:
        await workers.close()
    assert await jobs.locked() == 0


@pytest.mark.parametrize("kind", ["default", "local queue"])
async def test_a_worker_fetches_again_whatever_forbidden_flags_raises(
    database_url: str, jobs: Jobs, setup: Setup, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    workers = Workers(database_url, KINDS[kind])
    try:
        for name, flags in (("forbidden_flags", setup.flags), ("forbidden_flags, async", setup.flags_later)):
            runner = await workers.start(setup.tasks, hooks=setup.hooks, forbidden_flags=flags)
            for fault in FAULTS:
                caplog.clear()
                await spring(setup, jobs, fault, name)
                await check_alive(setup, jobs)
                assert "the function of forbidden_flags failed" in caplog.text
                assert "in __call__" in caplog.text  # the traceback
            await workers.stop(runner)
    finally:
        await workers.close()
    assert await jobs.locked() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_starts_and_stops_whatever_its_observers_raise(
    database_url: str, jobs: Jobs, setup: Setup, kind: str
) -> None:
    """Each event of a whole run fails at the same time, the first time that it is emitted."""
    for fault in [None, *FAULTS]:
        workers = Workers(database_url, KINDS[kind])
        if fault is not None:
            setup.trap.set(fault, *(name for name in setup.trap.seen if ":" in name))
        try:
            runner = await workers.start(setup.tasks, hooks=setup.hooks, concurrency=2)
            await check_alive(setup, jobs)
            await workers.stop(runner)
        finally:
            await workers.close()
        assert await jobs.locked() == 0
    assert {"pool:create", "worker:create", "pool:listen:success", "pool:release"} <= setup.trap.seen


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_drain_ends_whatever_its_hooks_raise(
    jobs: Jobs, workers: Workers, setup: Setup, fault: type[BaseException]
) -> None:
    for name in ("works", "fails", "ends", "adds"):
        for _ in range(10):
            await jobs.add(name, {"n": "once"})
    hooks = [hook for hook in ALL if hook not in (*BY_LISTENING, *OF_THE_CLOCK, "log")]
    setup.trap.set(fault, *hooks)
    await workers.once(setup.tasks, hooks=setup.hooks, concurrency=3)
    assert setup.trap.unsprung == []
    assert await jobs.locked() == 0
    assert all(row["attempts"] == 1 for row in await jobs.all())


async def test_a_drain_fails_whatever_forbidden_flags_raises(
    jobs: Jobs, workers: Workers, setup: Setup
) -> None:
    await jobs.add("works", {"n": "once"})
    for fault in FAULTS:
        setup.trap.set(fault, "forbidden_flags, async")
        with pytest.raises(fault if fault is ValueError else RuntimeError, match="as asked"):
            await workers.once(setup.tasks, hooks=setup.hooks, forbidden_flags=setup.flags_later)
        assert await jobs.locked() == 0


async def test_held_batches_survive_what_hooks_raise(
    monkeypatch: pytest.MonkeyPatch, jobs: Jobs, workers: Workers, setup: Setup
) -> None:
    never_slow(monkeypatch)
    holding = Holding(jobs, workers, EventRecorder(setup.hooks.events))
    runner = await holding.start({}, hooks=setup.hooks, events=None)

    async def is_done() -> bool:
        return not await jobs.connection.fetchval(ARE_LEFT, "quick")

    for fault in FAULTS:
        before = len(holding.held_fetches)
        for _ in range(ROUNDS):
            setup.trap.set(fault, *OF_OBSERVERS)
            await holding.add_load(SMALL_LOAD)
            await until(is_done, every=0.02)
            if len(holding.held_fetches) > before and not setup.trap.unsprung:
                break
        else:
            pytest.fail(f"nothing was held after {fault.__name__}")
    assert await jobs.locked() == 0
    await workers.stop(runner)


def cancel(is_chosen: Callable[[str], bool]) -> set[str]:
    """Cancel asyncio tasks of the worker, as code that cancels all tasks of its loop does; their names."""
    named = {each.get_name(): each for each in asyncio.all_tasks()}
    chosen = {name for name in named if name.startswith(("graphile-worker", "worker-")) and is_chosen(name)}
    for name in chosen:
        named[name].cancel()
    return chosen


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_survives_that_its_asyncio_tasks_are_cancelled(
    database_url: str, jobs: Jobs, setup: Setup, kind: str
) -> None:
    workers = Workers(database_url, KINDS[kind])
    gate = Gate()
    try:
        runner = await workers.start({**setup.tasks, "waits": gate}, hooks=setup.hooks, concurrency=3)
        for _ in range(3):
            await jobs.add("waits", max_attempts=1)
            await gate.until_inside(1)
            names = cancel(lambda name: name != "graphile-worker runner")
            await check_alive(setup, jobs)
        source = "local queue" if kind == "local queue" else "source"
        expected = {source, "listener", "sink", "poll", "control"}
        assert {f"graphile-worker {name}" for name in expected} <= names
        stopping = asyncio.create_task(runner.stop())
        while not cancel(lambda name: name == "graphile-worker shutdown"):  # in each turn, or it may be over
            assert not stopping.done()
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await stopping
    finally:
        await workers.close()
    assert await jobs.locked() == 0
