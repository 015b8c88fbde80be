"""A worker that stops, and one that is killed: nothing is lost, and the locks do not stay."""

from __future__ import annotations

import asyncio

import pytest

from graphile_worker import make_worker_utils
from peers.directions import of_two
from peers.protocol import NODE, PYTHON, RUST, Peers
from peers.shared import Shared

JOBS = 60


@of_two("{} stops", "{} goes on")
async def test_a_graceful_stop(peers: Peers, shared: Shared, direction: tuple[str, str]) -> None:
    first, second = direction
    client = await peers.start(second)
    specs = [["echo", {"pause": 5}, {"queue_name": f"q{n % 4}"} if n % 2 else {}] for n in range(JOBS)]
    added = await client.call("add_many", specs)
    worker = await peers.working(first)
    await shared.until_runs(10)
    await worker.stop()
    if first != NODE:  # which may end before it has written that its last jobs are done
        assert await shared.locks() == []
    elif await shared.locks():
        async with make_worker_utils(connection_string=peers.url) as utils:
            assert worker.worker_id is not None
            await utils.force_unlock_workers([worker.worker_id])
    assert all(run.ended is not None for run in await shared.runs()), "what had begun has ended"
    await client.work()
    await shared.until_gone()
    runs = await shared.runs()
    assert {run.job_id for run in runs} == set(added)
    if first != NODE:
        assert len(runs) == JOBS, "each ran once"
    assert await shared.overlaps() == []


@of_two("{} stops", "{} finds nothing left")
async def test_a_running_job_ends_before_its_worker(
    peers: Peers, shared: Shared, direction: tuple[str, str]
) -> None:
    first, second = direction
    client = await peers.start(second)
    job_id = await client.add("echo", {"gate": "go"}, queue_name="q")
    worker = await peers.working(first)
    await shared.until_runs(1, ended=False)
    stopping = asyncio.create_task(worker.stop())
    await shared.open("go")
    await stopping
    if first != NODE:
        assert await shared.job(job_id) is None
        assert await shared.locks() == []
    (run,) = await shared.runs()
    assert (run.runtime, run.outcome) == (first, "done")


@of_two("{} stops", "{} takes over", without=NODE)
async def test_a_job_that_outlasts_the_stop(peers: Peers, shared: Shared, direction: tuple[str, str]) -> None:
    """It comes back with its attempt. Node is not among these: it waits for the job, however long."""
    first, second = direction
    job_id = await (await peers.start(second)).add("echo", {"gate": "go"}, queue_name="q")
    worker = await peers.working(first, patience=2)
    await shared.until_runs(1, ended=False)
    await shared.about_to_die(worker.pid)
    await worker.stop()
    row = await shared.job(job_id)
    assert (row["attempts"], row["locked_at"]) == (0, None)
    assert await shared.locks() == []
    await shared.open("go")
    await shared.make_due()
    async with peers.worker(second):
        await shared.until_gone()
    assert [run.runtime for run in await shared.runs()] == [first, second]


# -- killed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [PYTHON, NODE, RUST])
async def test_recovery_of_rust(peers: Peers, shared: Shared, killed: str) -> None:
    """On a schema that Python installed; for Rust, Node's worker is one that it does not know."""
    job_id = await (await peers.start(RUST)).add("echo", {"gate": "go"}, queue_name="q")
    worker = await peers.working(killed, recovery=True, hold=0)
    await shared.until_runs(1, ended=False)
    await shared.about_to_die(worker.pid)
    await worker.kill()
    assert worker.worker_id is not None
    await shared.age(worker.worker_id)
    await shared.open("go")
    async with peers.worker(RUST, recovery=True) as other:
        await shared.until_gone(job_id)
    runs = await shared.runs()
    assert [(run.process, run.attempt) for run in runs] == [(worker.pid, 1), (other.pid, 1)]
    assert await shared.locks() == []
    assert await shared.overlaps() == []


@pytest.mark.parametrize("living", [PYTHON, RUST])
async def test_recovery_leaves_a_living_worker_alone(peers: Peers, shared: Shared, living: str) -> None:
    """A job that has run for longer than Rust's threshold, when a Rust worker with recovery joins."""
    await (await peers.start(RUST)).add("echo", {"gate": "go"}, queue_name="q")
    worker = await peers.working(living, recovery=True, hold=0)
    await shared.until_runs(1, ended=False)
    await shared.age_locks(str(worker.worker_id))
    async with peers.worker(RUST, recovery=True):
        await shared.until_swept()
        await shared.open("go")
        await shared.until_gone()
    assert [run.process for run in await shared.runs()] == [worker.pid]


async def test_recovery_of_rust_takes_a_long_job_of_a_living_node_worker(
    peers: Peers, shared: Shared
) -> None:
    """What the documentation warns of: Node sends no heartbeats."""
    await (await peers.start(NODE)).add("echo", {"gate": "go"})
    worker = await peers.working(NODE)
    await shared.until_runs(1, ended=False)
    await shared.age_locks(str(worker.worker_id))
    async with peers.worker(RUST, recovery=True):
        await shared.until_runs(2, ended=False)
        await shared.open("go")
        await shared.until_gone()
    assert len(await shared.overlaps()) == 1


async def test_recovery_of_python(peers: Peers, shared: Shared) -> None:
    job_id = await (await peers.start(RUST)).add("echo", {"gate": "go"}, queue_name="q")
    worker = await peers.working(PYTHON, recovery=True)
    await shared.until_runs(1, ended=False)
    await shared.about_to_die(worker.pid)
    await worker.kill()
    await shared.open("go")
    async with peers.worker(PYTHON, recovery=True) as other:
        await shared.until_gone(job_id)
    assert [run.process for run in await shared.runs()] == [worker.pid, other.pid]
    assert await shared.locks() == []


@pytest.mark.parametrize("killed", [NODE, RUST])
async def test_recovery_by_hand_of_another_runtime(peers: Peers, shared: Shared, killed: str) -> None:
    """Python does not declare workers of other runtimes dead by itself."""
    job_id = await (await peers.start(killed)).add("echo", {"gate": "go"}, queue_name="q")
    worker = await peers.working(killed)
    await shared.until_runs(1, ended=False)
    await shared.about_to_die(worker.pid)
    await worker.kill()
    assert worker.worker_id is not None
    await shared.open("go")
    async with peers.worker(PYTHON, recovery=True) as other:
        assert worker.worker_id in await shared.locks()
        async with make_worker_utils(connection_string=peers.url) as utils:
            await utils.workers.recover(worker.worker_id)
        await shared.until_gone(job_id)
    assert [(run.process, run.attempt) for run in await shared.runs()] == [(worker.pid, 1), (other.pid, 1)]
    assert await shared.overlaps() == []
