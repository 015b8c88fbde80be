"""Who installs the schema first: in every order, on a database at rest and under running workers."""

from __future__ import annotations

import pytest

from peers.directions import ORDERS
from peers.protocol import NODE, PYTHON, RUNTIMES, RUST, Peer, Peers
from peers.shared import Shared

in_every_order = pytest.mark.parametrize("order", ORDERS, ids=" then ".join)


async def revision(shared: Shared) -> int:
    number: int = await shared.connection.fetchval("SELECT max(id) FROM graphile_worker.migrations")
    return number


async def assert_each_understands_all(peers: Peers, shared: Shared) -> None:
    """Each adds three jobs, of which each runs one."""
    clients = [await peers.start(runtime) for runtime in RUNTIMES]
    for runtime in RUNTIMES:
        for client in clients:
            await client.add("echo", {}, job_key=client.runtime, queue_name="q")
            await client.add("echo", {}, queue_name="q")
        async with peers.worker(runtime, concurrency=2):
            await shared.until_gone()
    runs = await shared.runs()
    assert len(runs) == 2 * len(RUNTIMES) ** 2
    assert await shared.overlaps() == []


@in_every_order
async def test_one_after_another(
    empty_peers: Peers, empty_shared: Shared, order: tuple[str, str, str]
) -> None:
    for position, runtime in enumerate(order):
        await (await empty_peers.start(runtime)).call("migrate")
        assert await revision(empty_shared) == (22 if RUST in order[: position + 1] else 20)
    await assert_each_understands_all(empty_peers, empty_shared)


@in_every_order
async def test_under_running_workers(
    empty_peers: Peers, empty_shared: Shared, order: tuple[str, str, str]
) -> None:
    """Each migrates and works while those before it run a job and add more; all go on."""
    workers: list[Peer] = []
    for runtime in order:
        worker = await empty_peers.start(runtime)
        await worker.call("migrate")
        workers.append(await worker.work(concurrency=2, recovery=runtime != NODE))
        await worker.add("echo", {"gate": "go"}, queue_name=runtime, job_key=runtime)
        await empty_shared.until_runs(len(workers), ended=False)
        for each in workers:
            await empty_shared.until_gone(await each.add("echo", {}, job_key="next"))
            await each.add("echo", {"waits": True}, queue_name=runtime)
    await empty_shared.open("go")
    await empty_shared.until_gone()
    for worker in workers:
        await worker.stop()
    runs = await empty_shared.runs()
    assert await empty_shared.overlaps() == []
    assert all(run.outcome == "done" for run in runs)
    assert "".join(worker.errors for worker in workers if worker.runtime == PYTHON) == ""
