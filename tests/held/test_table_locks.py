"""A held batch beside changes of the table: each waits for the other, and never both.

The transaction of a batch reads first and deletes later. If it had only the lock for reading meanwhile,
others could get one that keeps it from deleting, and then wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from support.holding import HoldingWorker
from support.working import PATIENCE, SCHEMA, Jobs, until

HOLD = 300.0  # seconds: each batch lasts until the test ends it
TABLE = f"{SCHEMA}._private_jobs"
WAITS = "select exists (select from pg_locks where pid = $1 and not granted)"
CHANGES = {
    "reindex": (f"reindex table {TABLE}",),
    "reindex an index": (f"reindex index {SCHEMA}.jobs_no_queue_index",),
    "a transaction": (f"lock table {TABLE} in share mode", f"alter table {TABLE} add column mine integer"),
    "a trigger": (
        "create function pg_temp.nothing() returns trigger language plpgsql as 'begin return null; end'",
        f"create trigger mine after insert on {TABLE} execute function pg_temp.nothing()",
        f"alter table {TABLE} drop column if exists mine",
    ),
}


@pytest.fixture
async def operator(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close(timeout=PATIENCE)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_the_table_never_deadlocks_with_a_batch(
    change: str, holding: HoldingWorker, jobs: Jobs, operator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, *others = CHANGES[change]
    is_begun, can_continue_queue = asyncio.Event(), asyncio.Event()

    async def alter() -> None:
        async with operator.transaction():
            await operator.execute(first)
            is_begun.set()
            await can_continue_queue.wait()
            for statement in others:
                await operator.execute(statement)

    async def is_stuck_or_begun() -> bool:
        return is_begun.is_set() or await jobs.connection.fetchval(WAITS, operator.get_server_pid())

    await holding.start(hold=HOLD)
    ids = await holding.hold()
    async with asyncio.timeout(PATIENCE):
        altering = asyncio.create_task(alter())
        await until(is_stuck_or_begun)
        while holding.gate.inside:
            holding.gate.open()
        await until(lambda: _is_ending(jobs, operator))
        can_continue_queue.set()
        await altering
    await jobs.until_gone()
    assert sorted(set(ids)) == sorted(id_ for id_ in holding.ran if id_ in ids)
    assert "deadlock" not in caplog.text


async def _is_ending(jobs: Jobs, operator: Any) -> bool:
    """Whether the batch has ended, or waits for the operator."""
    return not await jobs.connection.fetchval(
        "select exists (select from pg_stat_activity where datname = current_database() and pid <> $1 "
        "and state = 'idle in transaction')",
        operator.get_server_pid(),
    )
