"""The functions for autoscalers: what they count, what they cost, and which rights they need."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

READY = "select graphile_worker._private_py_ready_jobs({})"
AGE = "select graphile_worker._private_py_oldest_ready_age()"
ADD = """
select count(*) from graphile_worker.add_jobs(array(
  select row($1, '{{}}'::json, null, now() + {run_at}, null, null, {priority}, null)::graphile_worker.job_spec
  from generate_series(1, $2::integer) as n
))
"""


@pytest.fixture
async def scaler(connection: Any, database_url: str) -> AsyncIterator[Any]:
    """A role that may do nothing but execute the functions."""
    await connection.execute("create role scaler_of_test")
    try:
        await connection.execute("grant usage on schema graphile_worker to scaler_of_test")
        other = await asyncpg.connect(database_url)
        await other.execute("set role scaler_of_test")
        yield other
        await other.close()
    finally:
        await connection.execute("drop owned by scaler_of_test; drop role scaler_of_test")


async def test_ready_jobs_are_counted_up_to_a_bound_and_by_task(connection: Any) -> None:
    assert await connection.fetchval(READY.format("")) == 0
    assert await connection.fetchval(AGE) == 0
    await connection.fetchval(ADD.format(run_at="interval '-90 s'", priority="n % 3"), "mail", 30)
    await connection.fetchval(ADD.format(run_at="interval '1 h'", priority="0"), "mail", 10)
    await connection.fetchval(ADD.format(run_at="interval '-1 s'", priority="0"), "video", 5)
    await connection.execute("update graphile_worker._private_jobs set created_at = now() - interval '1 h'")
    assert await connection.fetchval(READY.format("")) == 35
    assert await connection.fetchval(READY.format("20")) == 20
    assert await connection.fetchval(READY.format("-1")) == 0
    assert await connection.fetchval(READY.format("1000, array['video', 'unknown']")) == 5
    assert await connection.fetchval(READY.format("3, array['video']")) == 3
    assert await connection.fetchval(READY.format("1000, array['unknown']")) == 0
    assert 90 <= await connection.fetchval(AGE) < 3600


async def test_a_role_needs_nothing_but_the_right_to_execute_them(connection: Any, scaler: Any) -> None:
    for call in (READY.format(""), AGE):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await scaler.fetchval(call)
    await connection.execute(
        "grant execute on function graphile_worker._private_py_ready_jobs, "
        "graphile_worker._private_py_oldest_ready_age to scaler_of_test"
    )
    assert await scaler.fetchval(READY.format("")) == 0
    assert await scaler.fetchval(AGE) == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await scaler.fetchval("select count(*) from graphile_worker._private_jobs")


async def test_they_read_few_pages_beside_many_jobs_of_the_future(connection: Any) -> None:
    await connection.fetchval(ADD.format(run_at="interval '1 h'", priority="n % 5"), "mail", 100_000)
    await connection.fetchval(ADD.format(run_at="interval '-1 s'", priority="n % 5"), "mail", 2_000)
    await connection.execute("vacuum analyze graphile_worker._private_jobs")
    for call in (READY.format(""), READY.format("1000, array['mail']"), AGE):
        await connection.fetchval(call)
        text = await connection.fetchval(f"explain (analyze, buffers, format json) {call}")
        (plan,) = [each["Plan"] for each in json.loads(text)]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 300, call
