"""Plans that a session made while the tables were empty must not read whole tables after a burst of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sql_functions.jobs import add_job, add_jobs

CALLS: dict[str, Callable[[Any, int], Awaitable[Any]]] = {
    "no key": lambda connection, n: add_job(connection, "a"),
    "queue": lambda connection, n: add_job(connection, "a", queue_name="q"),
    "new key": lambda connection, n: add_job(connection, "a", job_key=f"k{n}"),
    "same key": lambda connection, n: add_job(connection, "a", job_key="k"),
    "dedupe": lambda connection, n: add_job(connection, "a", job_key="k", job_key_mode="unsafe_dedupe"),
    "bulk": lambda connection, n: add_jobs(connection, [{"identifier": "a"}] * 3),
    "bulk with keys": lambda connection, n: add_jobs(
        connection,
        [{"identifier": "a", "job_key": f"b{n}"}, {"identifier": "a", "job_key": "k"}, {"identifier": "a"}],
    ),
    "remove": lambda connection, n: connection.execute("select graphile_worker.remove_job($1)", f"z{n}"),
}
SCANS = "select seq_scan from pg_stat_xact_user_tables where relname = '_private_jobs'"


@pytest.mark.parametrize("call", CALLS)
async def test_jobs_are_found_by_index_whatever_the_table_was_like_before(connection: Any, call: str) -> None:
    await add_job(connection, "a", queue_name="q")
    await connection.execute("delete from graphile_worker._private_jobs")
    await connection.execute("vacuum (analyze) graphile_worker._private_jobs")
    for n in range(12):  # a session settles on a plan after five calls
        await CALLS[call](connection, n)
    await connection.execute(
        "insert into graphile_worker._private_jobs (task_id, key) "
        "select 1, 'z' || n from generate_series(1, 20000) n"
    )
    async with connection.transaction():
        before = await connection.fetchval(SCANS)
        await CALLS[call](connection, 13)
        assert await connection.fetchval(SCANS) == before


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("call", CALLS)
async def test_the_callers_own_settings_are_left_as_they_were(
    connection: Any, call: str, setting: str
) -> None:
    await connection.execute(f"set enable_seqscan = {setting}")
    async with connection.transaction():
        await CALLS[call](connection, 1)
        assert await connection.fetchval("select current_setting('enable_seqscan')") == setting
    assert await connection.fetchval("select current_setting('enable_seqscan')") == setting
