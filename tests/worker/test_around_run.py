"""A plugin that opens something around each of many jobs: nothing leaks, and no slot is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from graphile_worker import Job
from graphile_worker.hooks import CallNext, Hooks, Outcome, WorkerContext
from support.working import Jobs, Workers

JOBS = 2_000
FAILING = 100  # one job in a hundred fails
CONCURRENCY = 10

session: ContextVar[Any] = ContextVar("session")


class Session:
    """What a plugin opens for each job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_open = True


class SessionPlugin:
    """As a plugin for spans, scopes or database sessions will do it."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.opened = self.closed = self.rolled_back = 0
        self.open: set[Session] = set()
        self.most_open = 0
        self.slots: set[asyncio.Task[Any] | None] = set()

    def install(self, hooks: Hooks) -> None:
        hooks.around_run(self.around)

    async def start(self, worker: WorkerContext) -> None:
        self.steps.append("started")

    async def stop(self) -> None:
        self.steps.append(f"stopped with {len(self.open)} open")

    async def around(self, job: Job, call_next: CallNext) -> Outcome:
        self.slots.add(asyncio.current_task())
        async with self.session_of(job):
            outcome = await call_next()
            if outcome.error is not None:
                raise outcome.error
            return outcome

    @asynccontextmanager
    async def session_of(self, job: Job) -> AsyncIterator[None]:
        opened = Session(job)
        token = session.set(opened)
        self.open.add(opened)
        self.opened += 1
        self.most_open = max(self.most_open, len(self.open))
        try:
            yield
        except ValueError:
            self.rolled_back += 1
            raise
        finally:
            opened.is_open = False
            self.open.remove(opened)
            self.closed += 1
            session.reset(token)


async def test_sessions_around_many_jobs(jobs: Jobs, workers: Workers) -> None:
    plugin = SessionPlugin()
    ran = 0

    async def step(payload: Any) -> None:
        nonlocal ran
        ran += 1
        mine = session.get()
        assert mine.is_open
        assert mine.job.payload == payload
        if payload["n"] % 7 == 0:
            await asyncio.sleep(0)  # let others run in between
            assert session.get() is mine
        if payload["n"] % FAILING == 0:
            raise ValueError("no")

    await jobs.add_many("step", JOBS, max_attempts=1)  # a retry may be due within the run
    await workers.once({"step": step}, plugins=[plugin], concurrency=CONCURRENCY)
    failed = JOBS // FAILING
    assert (ran, plugin.opened, plugin.closed, plugin.rolled_back) == (JOBS, JOBS, JOBS, failed)
    assert not plugin.open
    assert 1 < plugin.most_open <= CONCURRENCY
    assert len(plugin.slots) == CONCURRENCY
    assert session.get(None) is None
    assert plugin.steps == ["started", "stopped with 0 open"]
    assert await jobs.count() == failed
    assert await jobs.locked() == 0
