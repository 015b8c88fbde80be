"""Node workers beside held batches: jobs that our worker runs inside the transaction that fetched them.

`make interop` drains ten times as many jobs.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, JobSpec, WorkerUtils, make_worker_utils, run
from interop.conftest import SharedDatabase
from interop.tally import TASK, NodeTally, OurTally, node_tally, our_tally
from support.held_load import never_slow
from support.working import PATIENCE, Gate

pytestmark = pytest.mark.interop

SLOW = "GRAPHILE_WORKER_SLOW_INTEROP"
JOBS = 120_000 if os.environ.get(SLOW) else 12_000  # at least
WAVE = 6_000  # further jobs, if a worker has had none
HOLD = 0.5  # seconds: a loaded machine needs longer for a batch
MOST_WAVES = 40
LEFT = 500  # jobs; then the next wave is added
SOME = 100  # jobs that each worker is to run

NODE: dict[str, Any] = {"concurrency": 5, "pollInterval": 50}
RESETTING = {"minResetLockedInterval": 10, "maxResetLockedInterval": 20}  # milliseconds
BATCHES = {"localQueue": {"size": 100}, "completeJobBatchDelay": 5, "failJobBatchDelay": 5}

WAITING = """
    EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
"""
THAT_IS_FREE = "SELECT locked_at IS NULL FROM graphile_worker._private_jobs WHERE id = $1"
THAT_JOB = "SELECT * FROM graphile_worker._private_jobs WHERE id = $1"
NEXT_JOBS = "SELECT id::text FROM graphile_worker._private_jobs ORDER BY priority, run_at LIMIT 300"
LOCK_SOME = "SELECT id FROM graphile_worker._private_jobs ORDER BY id LIMIT 100 FOR UPDATE"
ECHO = "module.exports = (payload, helpers) => helpers.logger.info(`ran ${payload.n}.`);"


@pytest.fixture(autouse=True)
def _no_slow_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    never_slow(monkeypatch)


async def add(utils: WorkerUtils, count: int) -> list[int]:
    return [job.id for job in await utils.add_jobs([JobSpec(TASK, {})] * count)]


def ran_by(nodes: Sequence[NodeTally], ours: Sequence[OurTally]) -> list[list[int]]:
    """The ids of the jobs that each worker has run."""
    return [node.ran for node in nodes] + [our.ran for our in ours]


async def drain(
    database: SharedDatabase,
    utils: WorkerUtils,
    nodes: Sequence[NodeTally],
    ours: Sequence[OurTally],
) -> list[int]:
    """Add jobs until there were enough and each worker has run some; the ids of all, when all have ended."""

    def is_shared() -> bool:
        return all(len(ran) >= SOME for ran in ran_by(nodes, ours)) and any(each.held for each in ours)

    added = await add(utils, JOBS)
    for _ in range(MOST_WAVES):
        await database.runs.wait_until("count(*) < $1 FROM {jobs}", LEFT)
        if is_shared():
            break
        added += await add(utils, WAVE)
    await database.runs.wait_until("NOT EXISTS (SELECT FROM {jobs})")
    assert is_shared(), ([len(ran) for ran in ran_by(nodes, ours)], [each.held for each in ours])
    return added


@pytest.mark.parametrize("preset", [{}, BATCHES], ids=["node direct", "node with batches"])
@pytest.mark.parametrize(("nodes", "ours"), [(1, 1), (2, 2)])
async def test_they_drain_one_table_and_no_job_runs_twice(
    our_database: SharedDatabase, preset: dict[str, Any], nodes: int, ours: int
) -> None:
    options = NODE | ({"preset": {"worker": preset | RESETTING}} if preset else RESETTING)
    async with make_worker_utils(connection_string=our_database.url) as utils, AsyncExitStack() as stack:
        node_workers = [
            await stack.enter_async_context(node_tally(our_database.node, **options)) for _ in range(nodes)
        ]
        our_workers = [
            await stack.enter_async_context(our_tally(our_database, hold=HOLD)) for _ in range(ours)
        ]
        added = await drain(our_database, utils, node_workers, our_workers)
    assert sorted(chain(*ran_by(node_workers, our_workers))) == sorted(added)
    if not preset:  # with a local queue Node reports an error of its own when it is stopped while waiting
        assert [each.complaints for each in node_workers] == [[]] * nodes


async def test_nodes_admin_functions_while_both_drain(our_database: SharedDatabase) -> None:
    """They name jobs that wait, are held, run or end at that moment."""
    async with (
        make_worker_utils(connection_string=our_database.url) as utils,
        node_tally(our_database.node, **NODE, **RESETTING) as node,
        our_tally(our_database, hold=HOLD) as ours,
        asyncio.TaskGroup() as group,
    ):
        draining = group.create_task(drain(our_database, utils, [node], [ours]))
        calling = group.create_task(administrate(our_database, draining))
    ran, removed = [*node.ran, *ours.ran], calling.result()
    assert len(ran) == len(set(ran)), "no job ran twice"
    assert set(ran).isdisjoint(removed), "no job ran that was completed by hand"
    assert set(ran) | removed == set(draining.result())
    assert node.complaints == []


async def administrate(database: SharedDatabase, draining: asyncio.Task[Any]) -> set[int]:
    """Call Node's functions on the next jobs until the table is drained; the ids of those it completed."""
    removed: set[int] = set()
    connection = await asyncpg.connect(database.url)
    try:
        while not draining.done():
            rows = await connection.fetch(NEXT_JOBS)
            ids = [row["id"] for row in rows]
            completed, *_ = await database.node.call(
                ["completeJobs", ids[::2]],
                ["rescheduleJobs", ids[1::2], {"priority": 1}],
                ["cleanup", {"tasks": ["DELETE_PERMAFAILED_JOBS", "GC_JOB_QUEUES"]}],
                ["forceUnlockWorkers", ["pool-gone"]],
            )
            removed |= {int(job["id"]) for job in completed}
    finally:
        await connection.close()
    return removed


class GatedWorker:
    """Our worker with short jobs, and one among them that waits at a gate."""

    def __init__(self, database: SharedDatabase, utils: WorkerUtils) -> None:
        self._database = database
        self._utils = utils
        self.gate = Gate()

    async def task(self, payload: Any, helpers: JobHelpers) -> None:
        if payload:
            await self.gate(helpers.job.id)

    async def hold_one(self) -> int:
        """The id of a held job that waits at the gate."""
        for _ in range(MOST_WAVES):
            short = [JobSpec(TASK, {})] * (WAVE // 2)
            await self._utils.add_jobs([*short, JobSpec(TASK, {"waits": True}), *short])
            await self.gate.until_inside(1)
            job_id: int = self.gate.started[-1]
            if await self._database.connection.fetchval(THAT_IS_FREE, job_id):
                return job_id
            self.gate.open()
        pytest.fail("no batch was held")


@asynccontextmanager
async def gated_worker(database: SharedDatabase, hold: float) -> AsyncIterator[GatedWorker]:
    async with make_worker_utils(connection_string=database.url) as utils:
        worker = GatedWorker(database, utils)
        async with run(
            connection_string=database.url,
            task_list={TASK: worker.task},
            hold=hold,
            concurrency=10,
            handle_signals=False,
        ):
            yield worker


@pytest.mark.parametrize("function", ["completeJobs", "permanentlyFailJobs", "rescheduleJobs"])
@pytest.mark.parametrize("outlasts", [False, True])
async def test_a_held_job_is_left_alone_by_node(
    our_database: SharedDatabase, function: str, outlasts: bool
) -> None:
    """A function that names it waits for the end of the batch, when the job has ended or is locked."""
    connection = our_database.connection
    further: dict[str, list[Any]] = {
        "permanentlyFailJobs": ["not wanted"],
        "rescheduleJobs": [{"priority": 9}],
    }
    async with gated_worker(our_database, hold=2 if outlasts else 60) as worker:
        job_id = await worker.hold_one()
        if not outlasts:  # otherwise it may be locked already, and would be unlocked
            pools = await connection.fetch("SELECT id FROM graphile_worker._private_py_workers")
            before = await connection.fetchrow(THAT_JOB, job_id)
            await our_database.node.call(["forceUnlockWorkers", [row["id"] for row in pools]])
            assert await connection.fetchrow(THAT_JOB, job_id) == before
        call = asyncio.create_task(
            our_database.node.call([function, [str(job_id)], *further.get(function, [])])
        )
        if not outlasts:
            await our_database.runs.wait_until(WAITING)
            worker.gate.open()
        assert await call == [[]]
        if outlasts:
            assert not await connection.fetchval(THAT_IS_FREE, job_id)
            worker.gate.open()
        await our_database.runs.wait_until("NOT EXISTS (SELECT FROM {jobs})")
    assert worker.gate.started.count(job_id) == worker.gate.ended.count(job_id) == 1


async def test_node_runs_what_others_do_not_hold(our_database: SharedDatabase) -> None:
    async with gated_worker(our_database, hold=60) as worker:
        job_id = await worker.hold_one()
        async with (
            node_tally(our_database.node, **NODE, **RESETTING) as node,
            make_worker_utils(connection_string=our_database.url) as utils,
        ):
            async with asyncio.timeout(PATIENCE):
                while len(node.ran) < SOME:
                    first, *_ = await add(utils, WAVE)
                    await our_database.runs.wait_until(
                        "NOT EXISTS (SELECT FROM {jobs} WHERE id >= $1)", first
                    )
            worker.gate.open()
            await our_database.runs.wait_until("NOT EXISTS (SELECT FROM {jobs})")
    assert job_id not in node.ran
    assert worker.gate.started.count(job_id) == 1


async def test_nodes_once_run_ends_beside_an_open_transaction(
    our_database: SharedDatabase, tmp_path: Path
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "echo.js").write_text(ECHO)
    connection = our_database.connection
    async with make_worker_utils(connection_string=our_database.url) as utils:
        jobs = await utils.add_jobs(JobSpec("echo", {"n": n}) for n in range(200))
    async with connection.transaction():
        held = [row["id"] for row in await connection.fetch(LOCK_SOME)]
        ended = await our_database.node.command("--once", "-j", "5", folder=tmp_path)
        left = await connection.fetch("SELECT id, attempts, locked_at FROM graphile_worker.jobs ORDER BY id")
    assert ended.status == 0, ended.output
    assert [tuple(row) for row in left] == [(job_id, 0, None) for job_id in held]
    assert set(map(int, re.findall(r"ran (\d+)\.", ended.output))) == {job.payload["n"] for job in jobs[100:]}
