"""A task that blocks the event loop is named, and cannot keep the process from ending."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.cli.main import run_main
from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.config import resolve_settings
from graphile_worker.diagnostics.examine import examine
from recovery.dead import QUICK_ENVIRONMENT
from recovery.history import History
from service.probes import port_of
from support.worker_process import Start, WorkerProcess, let_go, program
from support.working import SCHEMA, Jobs, until

TASKS = """
import os
import time

from graphile_worker import task

@task
async def block_until_told():
    while not os.path.exists("go_on"):
        time.sleep(0.01)

@task
async def spin():
    while True:
        pass

@task
async def sleep():
    time.sleep(3)

@task
async def sleep_for_long():
    time.sleep(600)
"""

Begin = Callable[..., WorkerProcess]


@pytest.fixture
def begin(start: Start, folder: Path, database_url: str) -> Begin:
    """Start a worker with these tasks."""
    tasks = folder / "blocking.py"
    tasks.write_text(TASKS)

    def begin(*arguments: object) -> WorkerProcess:
        return start(*arguments, url=database_url, tasks=tasks, **QUICK_ENVIRONMENT)

    return begin


async def test_a_blocked_loop_is_reported_with_the_task_and_its_stack(begin: Begin, jobs: Jobs) -> None:
    await jobs.add("sleep")
    worker = begin().wait_for("has blocked the event loop for 1 s")
    worker.wait_for("the event loop runs again; task sleep (job 1) had blocked it for")
    worker.wait_for("completed in")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
    assert "task sleep (job 1) has blocked the event loop" in worker.output
    assert "time.sleep(3)" in worker.output


GRACE = 1


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def workers_check(url: str) -> list[str]:
    """What the doctor says about the workers."""
    findings = await examine(resolve_settings({"connection_string": url}, {}))
    return [finding.summary for finding in findings if finding.check == "workers"]


@pytest.mark.parametrize(("task", "processes"), [("spin", 1), ("sleep_for_long", 2)])
async def test_others_see_what_blocks_the_loop_and_a_signal_ends_the_process(
    begin: Begin,
    jobs: Jobs,
    utils: WorkerUtils,
    database_url: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    task: str,
    processes: int,
) -> None:
    job_id = await jobs.add(task)
    worker = begin("--grace", GRACE, "--processes", processes, "--http-port", 0)
    worker.wait_for("has blocked the event loop")
    blame = f"task {task} (job {job_id})"

    async def is_reported() -> bool:
        return any(pool.blocked for pool in await utils.list_workers())

    await until(is_reported, every=0.1)
    (pool,) = (pool for pool in await utils.list_workers() if pool.blocked)
    assert pool.is_alive  # a blocked loop alone does not make it dead
    assert pool.blocked is not None
    assert (pool.blocked.task_identifier, pool.blocked.job_id) == (task, job_id)
    assert pool.blocked.seconds > 0.5
    (found,) = await workers_check(database_url)
    assert found.startswith(f"worker pool {pool.id}: {blame} has blocked its event loop for ")

    capsys.readouterr()
    asked = ["health", "--live", "--http-port", port_of(worker), "--within", "1"]
    assert await asyncio.to_thread(run_main, asked) == 1
    assert "does not answer; its event loop may be blocked" in capsys.readouterr().err

    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM  # it would never end by itself
    assert f"{blame} still blocks the event loop after SIGTERM" in worker.output

    async def is_recovered() -> bool:
        await utils.sweep_stale_workers()
        return await jobs.locked() == 0

    await until(is_recovered, every=0.1)
    assert (await jobs.one())["attempts"] == 0


async def test_the_report_ends_with_the_blockage(
    begin: Begin,
    jobs: Jobs,
    utils: WorkerUtils,
    database_url: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job_id = await jobs.add("block_until_told")
    worker = begin("--http-port", 0).wait_for("has blocked the event loop")

    async def is_blocked() -> bool:
        (pool,) = await utils.list_workers()
        return pool.blocked is not None

    await until(is_blocked, every=0.1)
    monkeypatch.setenv("DATABASE_URL", database_url)
    assert await asyncio.to_thread(run_main, ["workers"]) == 0
    out = capsys.readouterr().out
    assert " blocked for " in out
    assert f" by task block_until_told (job {job_id}) " in out
    assert await asyncio.to_thread(run_main, ["workers", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["blocked"]["job_id"] == job_id
    let_go(folder)

    async def runs_again() -> bool:
        return not await is_blocked()

    await until(runs_again, every=0.1)
    await jobs.until_gone()
    assert await workers_check(database_url) == ["1 worker pool is running"]

    assert await asyncio.to_thread(run_main, ["health", "--http-port", port_of(worker)]) == 0
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM


async def test_a_worker_goes_on_where_the_column_is_missing(
    begin: Begin, jobs: Jobs, utils: WorkerUtils, connection: Any, folder: Path
) -> None:
    """A role that may not alter the table runs without it."""
    await connection.execute(f"alter table {SCHEMA}._private_py_workers drop column blocked")
    await jobs.add("block_until_told")
    worker = begin().wait_for("has blocked the event loop for 5 s")
    (pool,) = await utils.list_workers()
    assert (pool.is_alive, pool.blocked) == (True, None)
    let_go(folder)
    await jobs.until_gone()
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
    assert "heartbeat" not in worker.output


async def test_a_worker_on_the_callers_pool_only_misses_heartbeats(
    jobs: Jobs, database_url: str, folder: Path, connection: Any
) -> None:
    await History(connection).made()
    job_id = await jobs.add("block", {"seconds": 600})
    worker = program("recovery.pool_worker", database_url, folder=folder)
    try:
        said: list[str] = []

        async def is_silent() -> bool:
            said[:] = await workers_check(database_url)
            return "missed its heartbeats for" in said[0]

        await until(is_silent, every=0.1)
        assert said[0].endswith(f": block (job {job_id})")
    finally:
        worker.close()
