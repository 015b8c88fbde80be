"""Queues run in series over three runtimes, and a job that one of them runs is left alone by the others."""

from __future__ import annotations

import pytest

from peers.directions import of_three
from peers.protocol import RUNTIMES, Peers
from peers.shared import Shared
from support.working import until

QUEUES = 8
JOBS = 40  # of each runtime, in queues and besides them

ALL_TOOK_PART = "SELECT count(DISTINCT runtime) = 3 FROM public.peer_runs"


@pytest.mark.parametrize("local_queue", [None, 10], ids=["each fetches for itself", "local queues"])
async def test_in_series(peers: Peers, shared: Shared, local_queue: int | None) -> None:
    added: list[int] = []
    options = {} if local_queue is None else {"local_queue": local_queue}
    workers = [await peers.working(runtime, **options) for runtime in RUNTIMES]

    async def add(payload: dict[str, int]) -> None:
        for worker in workers:
            specs = [
                ["echo", payload, {"queue_name": f"q{n % QUEUES}"} if n % 3 else {}] for n in range(JOBS)
            ]
            added.extend(await worker.call("add_many", specs))

    async def have_all_taken_part() -> bool:
        if await shared.connection.fetchval(ALL_TOOK_PART):
            return True
        if not await shared.connection.fetchval("SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)"):
            await add({"pause": 10})
        return False

    await add({"pause": 5})
    await until(have_all_taken_part, every=0.05)
    await shared.until_gone()
    for worker in workers:
        await worker.stop()
    runs = await shared.runs()
    assert sorted(run.job_id for run in runs) == sorted(added), "each ran once"
    assert await shared.overlaps() == []
    assert await shared.locks() == []


@of_three("{} adds", "{} holds the queue", "{} waits for it")
async def test_a_held_queue(peers: Peers, shared: Shared, direction: tuple[str, str, str]) -> None:
    adder, holder, waiter = direction
    client = await peers.start(adder)
    await client.add("echo", {"n": 1, "gate": "go"}, queue_name="held")
    async with peers.worker(holder):
        await shared.until_runs(1, ended=False)
        await client.add("echo", {"n": 3}, queue_name="held", priority=-1)
        async with peers.worker(waiter):
            await shared.until_gone(await client.add("echo", {"n": 2}, queue_name="free"))
            await shared.open("go")
            await shared.until_gone()
    runs = await shared.runs()
    assert [run.payload["n"] for run in runs] == [1, 2, 3]
    assert await shared.overlaps() == []
