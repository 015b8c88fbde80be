"""`graphile-worker workers set`, and memory and load in the list."""

from __future__ import annotations

import asyncio
from typing import Any

from support.cases import looped
from support.command_line import Call
from support.working import Workers, until


async def work() -> None: ...


async def test_the_concurrency_of_a_worker_is_set(gw: Call, workers: Workers, connection: Any) -> None:
    runner = await workers.start({"work": work}, concurrency=2)
    done = (await asyncio.to_thread(gw, "workers", "set", runner.pool_id, "--concurrency", "5")).check()
    assert done.out == (
        f"Worker {runner.pool_id} runs up to 5 jobs at once (before: 2), until it restarts.\n"
    )
    assert runner._running_pool.slots == {"main": 5}
    arguments = ("workers", "set", runner.pool_id, "--lane", "main", "--concurrency", "1", "--json")
    done = (await asyncio.to_thread(gw, *arguments)).check()
    assert done.json == {"worker_id": runner.pool_id, "lane": "main", "before": 5, "concurrency": 1}
    (found,) = (await asyncio.to_thread(gw, "workers", "--json")).check().json
    assert found["concurrency"] == 1
    assert found["lanes"][0]["slots"] == 1
    rows = await connection.fetch("select action, target from graphile_worker._private_py_audit order by id")
    assert [row["action"] for row in rows] == ["set_worker_concurrency"] * 2
    assert "concurrency 5" in rows[0]["target"]


async def test_the_list_shows_memory_and_load(gw: Call, workers: Workers) -> None:
    await workers.start({"work": work}, heartbeat_interval=0.2)

    async def is_there() -> bool:
        (found,) = (await asyncio.to_thread(gw, "workers", "--json")).check().json
        return found["load"] is not None and found["load"]["cpu"] is not None

    await until(is_there)
    header, line = (await asyncio.to_thread(gw, "workers")).check().out.splitlines()[:2]
    assert header.split()[:6] == ["WORKER", "POOL", "RUNTIME", "STATE", "HOST", "PID"]
    assert header.split()[6:10] == ["SLOTS", "JOBS", "MEMORY", "CPU"]
    assert " MB " in line
    assert "% " in line


@looped(
    ("arguments", "message"),
    [
        (["set"], "`workers set` needs the WORKER_ID"),
        (["set", "pool"], "Give --concurrency."),
        (["list", "pool"], "`workers list` takes no WORKER_ID."),
        (["--concurrency", "1"], "--concurrency and --lane are for `workers set WORKER_ID`."),
        (["set", "pool", "--concurrency", "1", "--all"], "--all is for `workers list`."),
        (["set", "pool", "--concurrency", "0"], "--concurrency"),
        (["set", "pool", "--concurrency", "10001"], "--concurrency"),
    ],
)
def test_wrong_usage_is_explained(gw: Call, arguments: list[str], message: str) -> None:
    result = gw("workers", *arguments)
    assert result.status == 2
    assert message in result.err


def test_an_unknown_worker_is_named(gw: Call) -> None:
    result = gw("workers", "set", "pool-none", "--concurrency", "3")
    assert result.status == 1
    assert "no running Python worker has the id 'pool-none'" in result.err
