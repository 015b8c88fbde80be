"""The lease lapses while a write has got no answer: was it committed, or has another worker the job?"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from faults.scene import BRIEF
from graphile_worker.hooks.events import JobCompleted, JobInterrupted, PoolEvicted
from graphile_worker.testing.results import EventRecorder
from support.proxy import Proxy, proxy_to
from support.working import SCHEMA, Gate, Jobs, Workers, until


class Scene:
    """A worker with one job that waits in a gate, and a network that can go away."""

    def __init__(self, pool: Any, proxy: Proxy, jobs: Jobs, recorder: EventRecorder, gate: Gate) -> None:
        self.pool = pool
        self.proxy = proxy
        self.jobs = jobs
        self.recorder = recorder
        self.gate = gate
        self.job_id = 0

    @property
    def write_session(self) -> Any:
        return self.pool._sessions.write

    @asynccontextmanager
    async def lapse(self) -> AsyncIterator[None]:
        """The lease lapses, and the network is back after the block."""
        await self.proxy.go_away()
        yield
        await until(lambda: not self.pool.lease.is_open)
        self.proxy.is_away = False

    async def is_gone(self) -> bool:
        return await self.jobs.count() == 0

    async def is_write_blocked(self) -> bool:
        """Whether the write waits for a lock."""
        pid = self.write_session._connection.get_server_pid()
        return await self.jobs.connection.fetchval(
            "select exists (select from pg_locks where pid = $1 and not granted)", pid
        )

    async def until_completed(self) -> None:
        await self.recorder.wait_for(JobCompleted)
        assert [event.job.id for event in self.recorder.of(JobCompleted)] == [self.job_id]
        assert self.recorder.count(PoolEvicted) == self.recorder.count(JobInterrupted) == 0
        await self.goes_on()

    async def until_evicted(self) -> None:
        await self.recorder.wait_for(JobInterrupted)
        assert [[job.id for job in event.jobs] for event in self.recorder.of(PoolEvicted)] == [[self.job_id]]
        assert self.recorder.count(JobCompleted) == 0
        await self.goes_on()

    async def goes_on(self) -> None:
        completed = self.recorder.count(JobCompleted)
        await self.jobs.add("work")
        await self.gate.until_inside(1)
        self.gate.open()
        await until(lambda: self.recorder.count(JobCompleted) == completed + 1)


@pytest.fixture
async def scene(
    workers: Workers, jobs: Jobs, database_url: str, recorder: EventRecorder
) -> AsyncIterator[Scene]:
    gate = Gate()
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        async with proxy_to(database_url, Path(folder)) as (proxy, url):
            runner = await workers.start(
                {"work": gate}, connection_string=url, events=recorder.events, **BRIEF
            )
            scene = Scene(runner._pool, proxy, jobs, recorder, gate)
            await jobs.add("work")  # so that the sessions are open
            await gate.until_inside(1)
            gate.open()
            await recorder.wait_for(JobCompleted)
            scene.job_id = await jobs.add("work")
            await gate.until_inside(1)
            recorder.clear()
            yield scene
            proxy.is_away = False
            await workers.close()


async def test_a_job_that_was_written_without_an_answer_counts_as_completed(scene: Scene) -> None:
    scene.proxy.is_away = True  # for new connections
    scene.proxy.needle = b"DELETE 1"
    scene.gate.open()
    await until(lambda: scene.proxy.cuts == 1)
    async with scene.lapse():
        assert await scene.is_gone()
    await scene.until_completed()


async def test_a_job_whose_write_was_never_sent_is_lost_if_its_row_is_gone(scene: Scene) -> None:
    """Another worker has recovered and completed it."""
    async with scene.lapse():
        await until(lambda: not scene.write_session.is_connected)
        scene.gate.open()
        await until(lambda: scene.pool._sink.last_error is not None)
        await scene.jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    await scene.until_evicted()


async def test_a_job_whose_write_came_too_late_is_lost(scene: Scene) -> None:
    """Another worker has it, although the write was sent."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(scene.jobs.connection.transaction())
        await scene.jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set locked_by = 'another', key = 'unique'"  # without: deleted
        )
        scene.gate.open()
        await until(scene.is_write_blocked)
        async with scene.lapse():
            await stack.aclose()
    await scene.until_evicted()
    assert [row["locked_by"] for row in await scene.jobs.all()] == ["another"]
