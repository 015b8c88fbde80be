"""Lists for a server without incremental sorts: the same rows in the same order as on any other.

Their statements work on every server, so they are compared on the one at hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.database.statements.inspection import JobFilter, list_jobs, sorts_within_groups
from graphile_worker.history.records import HistoryFilter, list_finished_jobs
from graphile_worker.values.schema_name import SchemaName
from plans.explaining import ExplainingConnection
from support.working import SCHEMA

SCHEMA_NAME = SchemaName()
FILL = (
    f"insert into {SCHEMA}._private_tasks (identifier) values ('one'), ('two')",
    # Four hundred jobs in groups of forty with one run_at, whose ids are not in the order of the index.
    f"""
    insert into {SCHEMA}._private_jobs (task_id, payload, priority, run_at)
    select 1 + n % 2, '{{}}', n % 3, timestamptz '2020-01-01' + n % 10 * interval '1 hour'
    from generate_series(1, 400) n order by n % 7, -n
    """,
    f"select {SCHEMA}._private_py_add_partition('{SCHEMA}._private_py_history'::regclass, current_date + 1)",
    f"""
    insert into {SCHEMA}._private_py_history (
      job_id, task_id, state, priority, attempts, max_attempts, created_at, run_at, finished_at, expires_on
    )
    select
      1000 - n, 1 + n % 2, case when n % 4 = 0 then 'failed' else 'completed' end, 0, 1, 25, now(), now(),
      now() - n % 10 * interval '1 minute', current_date + 1
    from generate_series(1, 400) n order by n % 7, -n
    """,
)


@pytest.fixture
async def older(connection: Any) -> Any:
    """A connection with these rows that seems to be one to PostgreSQL 12."""
    for statement in FILL:
        await connection.execute(statement)
    seeming = ExplainingConnection(connection)
    seeming.server_version = "12.22"
    return seeming


async def test_they_are_chosen_for_the_servers_that_need_them(connection: Any) -> None:
    assert sorts_within_groups(connection) == (connection.get_server_version().major >= 13)


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
@pytest.mark.parametrize("values", [{}, {"task_identifier": "one"}, {"state": "ready"}], ids=str)
async def test_jobs_in_run_order(connection: Any, older: Any, values: Any, limit: int) -> None:
    whole = await list_jobs(connection, SCHEMA_NAME, JobFilter(**values, order="run_order", limit=1000))
    assert len(whole) >= 200
    found: list[Any] = []
    for _ in range(3):  # pages
        after = found[-1] if found else None
        wanted = JobFilter(**values, order="run_order", limit=limit, after=after)
        found += await list_jobs(older, SCHEMA_NAME, wanted)
        assert found == whole[: len(found)]
    assert len(found) == min(3 * limit, len(whole))


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
@pytest.mark.parametrize("values", [{}, {"task_identifier": "one"}, {"state": "failed"}], ids=str)
async def test_ends_the_latest_first(connection: Any, older: Any, values: Any, limit: int) -> None:
    whole = await list_finished_jobs(connection, SCHEMA_NAME, HistoryFilter(**values, limit=1000))
    assert len(whole) >= 100
    found: list[Any] = []
    for _ in range(3):
        after = found[-1] if found else None
        found += await list_finished_jobs(
            older, SCHEMA_NAME, HistoryFilter(**values, limit=limit, after=after)
        )
        assert found == whole[: len(found)]
    assert len(found) == min(3 * limit, len(whole))
