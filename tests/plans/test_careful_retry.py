"""A careful retry reaches every job of its group, however many there are and however few errors were kept.

`make scale` does it with 300,000 failed jobs of three groups, `make statements` with fewer.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg
import pytest

from admin.conftest import client_of
from graphile_worker import JobSpec, make_worker_utils, run_once
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.failures.counts import EXACT

JOBS = int(os.environ.get("SCALE_JOBS", "40000")) * 3 // 10
EACH = JOBS // 3
SCHEMA = "graphile_worker"
ERRORS = (ValueError, KeyError, RuntimeError)
COPY = f"""
insert into {SCHEMA}._private_jobs
  (task_id, payload, attempts, max_attempts, run_at, created_at, updated_at, last_error)
select
  task_id, payload, attempts, max_attempts, run_at, created_at, updated_at,
  regexp_replace(last_error, '[0-9]+', n::text)
from {SCHEMA}._private_jobs
cross join generate_series(2, $1::integer) n
"""
COUNTED = f"update {SCHEMA}._private_py_error_groups set errors = $1, permanent = $1"
WORK = f"delete from {SCHEMA}._private_jobs where is_available and attempts = 0"
LEFT = f"select count(*) from {SCHEMA}._private_jobs"


async def settle(payload: Any) -> None:
    n = payload["n"]
    raise ERRORS[n % 3](f"card {n} was declined")


async def fail(url: str, connection: Any) -> None:
    """Three jobs fail, one of each kind. The others are copies, whose errors were not kept."""
    async with make_worker_utils(connection_string=url) as utils:
        await utils.add_jobs([JobSpec("settle", {"n": n}, max_attempts=1) for n in range(3)])
    await run_once(connection_string=url, task_list={"settle": settle})
    await connection.execute(COPY, EACH, timeout=600)
    await connection.execute(COUNTED, EACH)
    await connection.execute(f"analyze {SCHEMA}._private_jobs")


@pytest.mark.timeout(1800)
async def test_every_job_of_a_group_is_reached(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    try:
        await fail(database_url, connection)
        async with client_of(app) as http:
            groups = (await http.get("/api/v1/failures")).json()["items"]
            assert len(groups) == 3
            for group in groups:
                assert group["failed"]["kind"] == ("exact" if JOBS <= EXACT else "estimate")
                assert 0.7 * EACH <= group["failed"]["value"] <= EACH
            begun = await http.post(
                f"/api/v1/failures/{groups[0]['fingerprint']}/retry",
                json={"rate": 100_000, "confirm": groups[0]["failed"]["value"]},
            )
            assert begun.status_code == 200, begun.text
            assert begun.json()["expected"] == groups[0]["failed"]
            done: Any = {"finished_at": None}
            while done["finished_at"] is None:
                await connection.execute(WORK)  # as a worker that completes them would
                await asyncio.sleep(0.1)  # timing: so that the steps get most of the time
                done = (await http.get(f"/api/v1/operations/{begun.json()['id']}")).json()
    finally:
        await app.aclose()
        left = await connection.fetchval(LEFT)
        await connection.close()
    assert (done["state"], done["changed"], done["succeeded"]) == ("done", EACH, EACH)
    assert done["message"] == f"{EACH:,} of {EACH:,} jobs changed."
    assert left == 2 * EACH
