"""Rows that a running transaction has locked are skipped by their header: no fetch tries for their locks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.statements.held_batches import get_held_jobs
from plans.explaining import Plan, tune
from queries.statements import Statements, statements_on

LOCKED = 500
LIMIT = 100


class OneRun:
    """A connection that explains a statement once. A further run would meet newer transactions."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.plans: list[Plan] = []

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        (document,) = await self._connection.fetchrow(f"explain (analyze, format json) {query}", *arguments)
        self.plans.append(Plan(json.loads(document)[0]["Plan"]))
        return []


def tries(plan: Plan) -> float:
    """How many rows the statement tried to lock, successfully or not."""
    locking = [node for node in plan.nodes if node["Node Type"] == "LockRows"]
    assert locking
    return float(
        sum(child["Actual Rows"] * child["Actual Loops"] for node in locking for child in node["Plans"])
    )


@pytest.fixture
async def statements(connection: Any) -> Statements:
    statements = await statements_on(connection)
    await statements.add_together(LOCKED + LIMIT)
    await tune(connection, statements.schema)
    return statements


@pytest.fixture
async def other(database_url: str, statements: Statements) -> AsyncIterator[Any]:
    """A session whose transaction has locked the first jobs."""
    connection = await asyncpg.connect(database_url)
    async with connection.transaction():
        await get_held_jobs(connection, statements.schema, tasks=statements.tasks, limit=LOCKED)
        yield connection
    await connection.close()


@pytest.fixture
async def age(request: pytest.FixtureRequest, other: Any, statements: Statements) -> str:
    """Whether a later transaction has ended since: only then is the other one in the list of a snapshot."""
    if request.param == "older":
        await statements.connection.fetchval("select txid_current()")
    running = await statements.connection.fetchval(
        "select count(*) from txid_snapshot_xip(txid_current_snapshot()) xip where xip = $1",
        await other.fetchval("select txid_current()"),
    )
    assert running or request.param == "newest"  # autovacuum may have ended one too
    return str(request.param)


@pytest.mark.parametrize(
    ("age", "statement"),
    [("newest", "held"), ("older", "held"), ("older", "plain"), ("older", "whole")],
    indirect=["age"],
)
async def test_no_lock_is_tried_that_a_running_transaction_has(
    age: str, statement: str, statements: Statements
) -> None:
    """The newest may be our own where the caller's transaction is used; nothing is held there."""
    run = OneRun(statements.connection)
    if statement == "held":
        await get_held_jobs(run, statements.schema, tasks=statements.tasks, limit=LIMIT)  # type: ignore[arg-type]
    else:
        pool = statements.of("pool-1", run)
        await (pool.fetch_plain(LIMIT) if statement == "plain" else pool.fetch(LIMIT))
    assert tries(run.plans[0]) == LIMIT
