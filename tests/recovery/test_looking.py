"""Who is at work: for programs and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.cli.main import run_main
from graphile_worker.client import WorkerUtils
from recovery.dead import QUICK, Graveyard
from support.worker_process import Start
from support.working import SELDOM, Gate, Jobs, Workers

TASKS = Path(__file__).with_name("tasks_to_lose.py")


async def test_a_program_sees_what_each_worker_runs_and_whether_it_lives(
    workers: Workers, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    gate = Gate()
    running = await jobs.add("work")
    await workers.start({"work": gate}, concurrency=3, **QUICK | {"sweep_interval": SELDOM})
    await gate.until_inside(1)
    await graveyard.holding()
    orphan, of_node = await jobs.add("other"), await jobs.add("other")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", orphan)
    await graveyard.give("pool-of-node", of_node)
    listed = {worker.id: worker for worker in await utils.list_workers()}
    ours = next(worker for worker in listed.values() if worker.is_alive)
    assert (ours.job_ids, ours.concurrency, ours.tasks, ours.liveness) == ([running], 3, ["work"], "lock")
    assert ours.started_at is not None
    assert ours.locked_since is not None
    dead, foreign = listed["pool-dead"], listed["pool-of-node"]
    assert (dead.is_alive, dead.dead_in, dead.job_ids) == (False, 0.0, [orphan])
    assert (foreign.is_alive, foreign.host, foreign.job_ids) == (None, None, [of_node])
    gate.open()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], database_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`command("workers")`: what it prints."""
    monkeypatch.setenv("DATABASE_URL", database_url)

    def call(*arguments: str) -> str:
        capsys.readouterr()
        assert run_main(list(arguments)) == 0
        return capsys.readouterr().out

    return call


def run_in_thread(function: Any, *arguments: Any) -> Any:
    """Commands start an event loop of their own, which a test's loop does not allow."""
    import asyncio

    return asyncio.to_thread(function, *arguments)


async def test_the_command_shows_workers_and_what_they_hold(
    command: Any, jobs: Jobs, graveyard: Graveyard, start: Start, database_url: str
) -> None:
    nobody = "No Python worker is running; others are listed while they have jobs.\n"
    assert await run_in_thread(command, "workers") == nobody
    start(url=database_url, tasks=TASKS, GRAPHILE_WORKER_SWEEP_INTERVAL=str(SELDOM)).ready()
    row = await graveyard.holding()
    job_ids = [await jobs.add("other") for _ in range(7)]
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", *job_ids)
    out = await run_in_thread(command, "workers")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert " alive " in lines[row["id"]]
    assert str(row["pid"]) in lines[row["id"]]
    assert " dead; its jobs will be recovered " in lines["pool-dead"]
    assert ", ".join(map(str, job_ids[:5])) + ", …" in lines["pool-dead"]
    document = json.loads(await run_in_thread(command, "workers", "--json"))
    assert {worker["id"]: worker["is_alive"] for worker in document} == {row["id"]: True, "pool-dead": False}


async def test_the_command_sweeps(command: Any, jobs: Jobs, graveyard: Graveyard) -> None:
    assert await run_in_thread(command, "sweep") == "No dead workers.\n"
    job_id = await jobs.add("work")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id)
    out = await run_in_thread(command, "sweep", "--dry-run")
    assert out == "pool-dead is dead: 1 job would be returned to the queue.\n"
    assert (await jobs.one())["locked_by"] == "pool-dead"
    document = json.loads(await run_in_thread(command, "sweep", "--json"))
    (recovered,) = document["recovered"]
    assert recovered == {"id": "pool-dead", "returned": [job_id], "failed": [], "left": [], "cancelled": []}
    assert (await jobs.one())["locked_by"] is None


async def test_the_command_can_wait_for_those_that_are_not_dead_yet(
    command: Any, graveyard: Graveyard
) -> None:
    await graveyard.bury("pool-lost", lost_for=None, grace=1.0)
    out = await run_in_thread(command, "sweep")
    assert out == "pool-lost missed heartbeats and will be declared dead in 1 s.\n"
    out = await run_in_thread(command, "sweep", "--wait")
    assert out == "pool-lost is dead: 0 jobs returned to the queue.\n"
