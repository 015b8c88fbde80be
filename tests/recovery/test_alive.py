"""A worker that is alive keeps its jobs, even if it does not respond for a long time."""

from __future__ import annotations

import asyncio
import json
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.hooks.events import PoolEvicted
from graphile_worker.testing.results import EventRecorder
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from recovery.history import History
from support.pgbouncer import pgbouncer_to
from support.proxy import HalfOpenProxy, proxy_to
from support.worker_process import Start, program
from support.working import SCHEMA, Gate, Jobs, Workers, until

TASKS = Path(__file__).with_name("tasks_to_lose.py")
LONGER_THAN_THE_SWEEP = 2.5  # seconds; one whose heartbeats count is missed after two intervals of them


async def _no_worker_is_lost(utils: WorkerUtils) -> None:
    """Sweep again and again for longer than a dead worker would have."""
    ends = time.monotonic() + LONGER_THAN_THE_SWEEP
    while time.monotonic() < ends:
        report = await utils.sweep_stale_workers()
        assert not report.recovered
        assert not report.lost
        await asyncio.sleep(0.1)


async def test_a_stopped_process_keeps_its_jobs(
    start: Start, database_url: str, jobs: Jobs, history: History, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work")
    worker = start(url=database_url, tasks=TASKS, WAIT="1", **QUICK_ENVIRONMENT).ready()
    await history.until_count("start", 1)
    await graveyard.holding()  # a thread of the worker takes the lock that keeps it, maybe only now
    worker.send(signal.SIGSTOP)
    try:
        await _no_worker_is_lost(utils)
    finally:
        worker.send(signal.SIGCONT)
    await history.release()
    await jobs.until_gone()
    assert await history.events(job_id) == [("start", worker.pid), ("end", worker.pid)]
    assert "missed its heartbeats" not in worker.output


async def test_a_worker_whose_event_loop_is_blocked_keeps_its_jobs(
    start: Start, database_url: str, jobs: Jobs, history: History, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("block", {"seconds": LONGER_THAN_THE_SWEEP + 0.5})
    worker = start(url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT)
    await history.until_count("start", 1)
    row = await graveyard.holding()
    await _no_worker_is_lost(utils)
    later = await graveyard.only_worker()
    assert later["last_seen_at"] > row["last_seen_at"]  # heartbeats continue
    assert [reported for reported, _ in json.loads(later["running"])] == [job_id]  # and name the culprit
    await jobs.until_gone()
    assert await history.events() == [("start", worker.pid), ("end", worker.pid)]


async def test_so_does_one_whose_heartbeats_come_from_that_loop(
    database_url: str, folder: Path, jobs: Jobs, history: History, utils: WorkerUtils
) -> None:
    await jobs.add("block", {"seconds": LONGER_THAN_THE_SWEEP + 0.5})
    worker = program("recovery.pool_worker", database_url, folder=folder)
    try:
        await history.until_count("start", 1)
        await _no_worker_is_lost(utils)
        await jobs.until_gone()
        assert await history.events() == [("start", worker.pid), ("end", worker.pid)]
    finally:
        worker.close()


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    with pgbouncer_to(database_url) as url:
        yield url


async def test_behind_a_pooler_heartbeats_show_it_also_while_the_loop_is_blocked(
    start: Start, pooled_url: str, jobs: Jobs, history: History, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    await jobs.add("block", {"seconds": LONGER_THAN_THE_SWEEP + 0.5})
    worker = start("--no-prepared-statements", url=pooled_url, tasks=TASKS, **QUICK_ENVIRONMENT)
    await history.until_count("start", 1)
    worker.wait_for("heartbeats in the table show that this worker is alive")

    async def is_said() -> bool:
        return (await graveyard.only_worker())["liveness"] == "heartbeat"

    await until(is_said)
    await _no_worker_is_lost(utils)
    await jobs.until_gone()


async def test_behind_a_pooler_a_killed_worker_is_missed_all_the_same(
    start: Start, pooled_url: str, jobs: Jobs, history: History
) -> None:
    await jobs.add("work")
    options = ("--no-prepared-statements", "--poll-interval", 100)
    first = start(*options, url=pooled_url, tasks=TASKS, WAIT="1", **QUICK_ENVIRONMENT)
    await history.until_count("start", 1)
    second = start(*options, url=pooled_url, tasks=TASKS, **QUICK_ENVIRONMENT)
    first.send(signal.SIGKILL)
    await history.until_count("end", 1)
    assert (await history.events())[-1] == ("end", second.pid)


class TestLostConnection:
    async def test_one_that_is_back_within_the_grace_keeps_its_jobs(
        self,
        workers: Workers,
        jobs: Jobs,
        connection: Any,
        recorder: EventRecorder,
        graveyard: Graveyard,
        utils: WorkerUtils,
    ) -> None:
        gate = Gate()
        await jobs.add("work")
        await workers.start({"work": gate}, events=recorder.events, **QUICK)
        await gate.until_inside(1)
        before = await graveyard.holding()
        await connection.fetch("select pg_terminate_backend($1)", before["backend_pid"])

        async def is_back() -> bool:
            await utils.sweep_stale_workers()
            row = await graveyard.only_worker()
            return row["backend_pid"] != before["backend_pid"] and row["lost_at"] is None

        await until(is_back)
        await _no_worker_is_lost(utils)
        gate.open()
        await jobs.until_gone()
        assert len(gate.started) == 1
        assert not recorder.of(PoolEvicted)

    async def test_a_session_that_the_server_still_believes_in_is_ended(
        self, workers: Workers, jobs: Jobs, database_url: str, tmp_path: Path, graveyard: Graveyard
    ) -> None:
        gate = Gate()
        await jobs.add("work")
        async with proxy_to(database_url, tmp_path, kind=HalfOpenProxy) as (proxy, url):
            await workers.start({"work": gate}, connection_string=url, **QUICK)
            await gate.until_inside(1)
            before = await graveyard.holding()
            key_data = b"K\0\0\0\x0c" + struct.pack(">i", before["backend_pid"])
            (link,) = (link for link in proxy.links if key_data in link.answered)
            link.is_silent = True

            async def holds_another() -> bool:
                return (await graveyard.only_worker())["backend_pid"] != before["backend_pid"]

            await until(holds_another)
            gate.open()
            await jobs.until_gone()
            await workers.close()


async def test_a_pool_of_four_connections_is_enough_and_one_of_three_is_told_so(
    workers: Workers,
    jobs: Jobs,
    database_url: str,
    graveyard: Graveyard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(payload: Any, helpers: Any) -> None:
        assert await helpers.query("select 1")

    for size, rows in ((4, 1), (3, 0)):
        async with asyncpg.create_pool(database_url, min_size=0, max_size=size) as pool:
            runner = await workers.start({"work": work}, pg_pool=pool, **QUICK)
            await jobs.add("work")
            await jobs.until_gone()
            assert len(await graveyard.workers()) == rows
            await workers.stop(runner)
        assert await graveyard.workers() == {}
    assert "recovery is off: pg_pool has 3 connections; it needs 4" in caplog.text


async def test_without_its_tables_the_worker_says_so_and_works(
    workers: Workers, jobs: Jobs, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute(f"drop table {SCHEMA}._private_py_workers")
    gate = Gate()
    await workers.start({"work": gate}, **QUICK)
    await jobs.add("work")
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()
    assert caplog.text.count("recovery is off") == 1


async def test_when_its_tables_go_the_worker_works_on_and_is_seen_again_when_they_are_back(
    workers: Workers, jobs: Jobs, connection: Any, graveyard: Graveyard
) -> None:
    gate = Gate()
    await workers.start({"work": gate}, **QUICK)
    await graveyard.holding()
    await connection.execute(f"alter table {SCHEMA}._private_py_workers rename to elsewhere")
    await asyncio.sleep(QUICK["recovery_grace"])  # its lease would be over
    await jobs.add("work")
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()
    await connection.execute(f"truncate {SCHEMA}.elsewhere")
    await connection.execute(f"alter table {SCHEMA}.elsewhere rename to _private_py_workers")

    async def is_there() -> bool:
        return len(await graveyard.workers()) == 1

    await until(is_there)


async def test_recovery_can_be_switched_off(workers: Workers, jobs: Jobs, graveyard: Graveyard) -> None:
    gate = Gate()
    await workers.start({"work": gate}, recovery=False)
    await jobs.add("work")
    await gate.until_inside(1)
    assert await graveyard.workers() == {}
    gate.open()
    await jobs.until_gone()
