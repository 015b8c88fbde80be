"""`graphile-worker sweep --worker`: the jobs of a dead worker of another runtime, recovered by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recovery.test_foreign_workers import NODE, RUST, heartbeat
from support.command_line import Call, Result

SCHEMA = "graphile_worker"
ROWS = f"select id, attempts, locked_by from {SCHEMA}._private_jobs"


async def lock(connection: Any, worker_id: str) -> int:
    """A job in a queue that this worker runs, on its second attempt."""
    job = await connection.fetchrow(f"select * from {SCHEMA}.add_job('work', queue_name => 'q')")
    locked = "locked_by = $1, locked_at = now()"
    await connection.execute(f"update {SCHEMA}._private_jobs set attempts = 2, {locked}", worker_id)
    await connection.execute(f"update {SCHEMA}._private_job_queues set {locked}", worker_id)
    found: int = job["id"]
    return found


async def sweep(gw: Call, *arguments: str) -> Result:
    return await asyncio.to_thread(gw, "sweep", "--worker", *arguments)


@pytest.mark.parametrize("worker_id", [NODE, RUST])
async def test_a_dry_run_says_what_the_next_call_does(gw: Call, connection: Any, worker_id: str) -> None:
    job_id = await lock(connection, worker_id)
    planned = (await sweep(gw, worker_id, "--dry-run", "--json")).check().json
    assert planned["is_dry_run"] is True
    assert [(each["id"], each["returned"]) for each in planned["recovered"]] == [(worker_id, [job_id])]
    assert [tuple(row) for row in await connection.fetch(ROWS)] == [(job_id, 2, worker_id)]
    told = (await sweep(gw, worker_id)).check().out
    assert worker_id in told
    assert [tuple(row) for row in await connection.fetch(ROWS)] == [(job_id, 1, None)]
    assert await connection.fetchval(f"select locked_by from {SCHEMA}._private_job_queues") is None


async def test_one_that_sends_heartbeats_needs_force(gw: Call, connection: Any) -> None:
    await lock(connection, RUST)
    await heartbeat(connection, RUST)
    refused = await sweep(gw, RUST)
    assert refused.status != 0
    assert "sends heartbeats, so it is alive" in refused.err
    (await sweep(gw, RUST, "--force")).check()
    assert [row["locked_by"] for row in await connection.fetch(ROWS)] == [None]


def test_options_that_exclude_each_other(gw: Call) -> None:
    for arguments in (("--force",), ("--worker", RUST, "--wait"), ("--dry-run", "--wait")):
        assert gw("sweep", *arguments).status == 2
