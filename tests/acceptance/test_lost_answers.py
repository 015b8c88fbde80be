"""A connection breaks after the server has committed and before the worker gets the answer."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import JobHelpers
from graphile_worker.errors import WorkerStoppedError
from support.proxy import proxy_to
from support.working import PATIENCE, Gate, Jobs, Workers, terminate_workers, until


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Paths of sockets must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("mode", [{}, {"local_queue": {"size": 3}}])
@pytest.mark.parametrize("queue", [None, "named"])
async def test_jobs_locked_by_a_fetch_whose_answer_was_lost_run_all_the_same(
    workers: Workers,
    jobs: Jobs,
    database_url: str,
    short_folder: Path,
    mode: dict[str, Any],
    queue: str | None,
) -> None:
    ran: list[tuple[Any, int]] = []

    async def note(payload: Any, helpers: JobHelpers) -> None:
        ran.append((payload, helpers.job.attempts))

    for number in range(3):
        await jobs.add("note", {"needle": number}, queue=queue)
    async with proxy_to(database_url, short_folder) as (proxy, url):
        proxy.needle = b"needle"
        runner = await workers.start({"note": note}, connection_string=url, **mode)
        await until(lambda: len(ran) == 3)
        assert proxy.cuts == 1
        assert sorted(ran, key=repr) == [({"needle": number}, 1) for number in range(3)]
        await workers.stop(runner)
    assert (await jobs.count(), await jobs.locked()) == (0, 0)


async def test_the_next_job_of_a_queue_runs_once_although_the_answer_that_brought_it_was_lost(
    workers: Workers, jobs: Jobs, database_url: str, short_folder: Path
) -> None:
    """The write of the first outcome also locks the second job."""
    ran: list[Any] = []

    async def note(payload: Any) -> None:
        ran.append(payload)

    async with proxy_to(database_url, short_folder) as (proxy, url):
        runner = await workers.start({"note": note}, connection_string=url, concurrency=2)
        proxy.needle = b"needle"
        async with jobs.connection.transaction():
            for minute, payload in enumerate(["first", "needle", "last"]):
                await jobs.add(
                    "note", payload, queue="named", run_at=datetime(2020, 1, 1, 0, minute, tzinfo=UTC)
                )
        await until(lambda: len(ran) == 3)
        assert proxy.cuts == 1
        assert ran == ["first", "needle", "last"]
        await workers.stop(runner)
    assert (await jobs.count(), await jobs.locked()) == (0, 0)


async def test_a_fetch_whose_answer_is_lost_while_the_worker_stops_leaves_nothing_locked(
    workers: Workers, jobs: Jobs, database_url: str, short_folder: Path
) -> None:
    async with proxy_to(database_url, short_folder) as (proxy, url):
        runner = await workers.start({"note": print}, connection_string=url)
        # Only fetches return this, and the first of them is in flight when the shutdown begins.
        proxy.needle = b"needle"
        await jobs.add("note", {"needle": 1})
        await until(lambda: proxy.cuts == 1)
        await workers.stop(runner)
    assert await jobs.locked() == 0
    assert all(row["attempts"] == 0 for row in await jobs.all())


async def test_a_server_that_does_not_answer_any_more_does_not_keep_the_worker_from_ending(
    workers: Workers, jobs: Jobs, database_url: str, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphile_worker.worker.shutdown.LAST_WRITE", 0.3)
    gate = Gate()
    await jobs.add("wait")
    async with proxy_to(database_url, short_folder) as (proxy, url):
        runner = await workers.start({"wait": gate}, connection_string=url, grace=0)
        await gate.until_inside(1)
        for link in proxy.links:
            link.is_silent = True
        proxy.is_silent = True
        with pytest.raises(WorkerStoppedError, match="the database is unavailable: 1 job"):
            await asyncio.wait_for(runner.stop(), PATIENCE)
    assert await jobs.locked() == 1  # until recovery finds the worker dead


async def test_a_worker_that_lost_its_connections_gets_others_although_tasks_hold_all_they_can(
    workers: Workers, jobs: Jobs
) -> None:
    gate, other = Gate(), Gate()

    async def hold(payload: Any, helpers: JobHelpers) -> None:
        async with helpers.with_pg_client():
            await gate()

    await workers.start({"hold": hold, "other": other}, concurrency=8, max_pool_size=6, poll_interval=0.05)
    for _ in range(6):
        await jobs.add("hold")
    await gate.until_inside(2)
    await terminate_workers(jobs.connection)
    await jobs.add("other")
    await other.until_inside(1)  # fetched
    other.open()
    await until(lambda: is_gone(jobs, "other"))  # and written
    assert gate.inside == 2  # all the connections that tasks may use; the others wait


async def is_gone(jobs: Jobs, task: str) -> bool:
    return task not in [row["identifier"] for row in await jobs.all()]
