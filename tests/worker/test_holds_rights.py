"""Held batches of roles with few rights, and row security on the table of jobs: each job runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphile_worker import JobHelpers
from graphile_worker.hooks.events import JobOutcomeDiscarded, JobSucceeded, PoolEvicted
from support.held_load import LOAD, Holding
from support.server import DatabaseServer
from support.working import SCHEMA, Gate, Jobs, Workers, until

JOBS = f"{SCHEMA}._private_jobs"
SHORTLY = 2.0  # seconds to hold a batch
LOADS = 3


@pytest.fixture
async def role(server: DatabaseServer, connection: Any) -> AsyncIterator[str]:
    """A role that may use all tables, but owns none of them."""
    name = f"{server.prefix}clerk"
    await connection.execute(
        f'create role "{name}" login; grant usage on schema {SCHEMA} to "{name}"; '
        f'grant usage on all sequences in schema {SCHEMA} to "{name}"; '
        f'grant all on all tables in schema {SCHEMA} to "{name}"'
    )
    tables = await connection.fetch(
        "select relname from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r' "
        "and relrowsecurity",
        SCHEMA,
    )
    for (table,) in tables:
        await connection.execute(
            f'create policy clerk on {SCHEMA}.{table} to "{name}" using (true) with check (true)'
        )
    try:
        yield name
    finally:
        await connection.execute(f'drop owned by "{name}"; drop role "{name}"')


@pytest.fixture
async def url(database_url: str, role: str, workers: Workers) -> AsyncIterator[str]:
    """Of the role. Its workers are gone before it is dropped."""
    yield f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20role%3D{role}"
    await workers.close()


@pytest.fixture
def runs() -> Counter[int]:
    """How often each job ran, by id."""
    return Counter()


@pytest.fixture
def count(runs: Counter[int]) -> Any:
    async def count(payload: Any, helpers: JobHelpers) -> None:
        runs[helpers.job.id] += 1

    return count


async def run_loads(holding: Holding) -> None:
    for _ in range(LOADS):
        await holding.add_load(LOAD, task="count")
        await holding.jobs.until_gone()


async def test_a_role_that_sees_no_sessions_of_others_holds_jobs(
    holding: Holding, url: str, role: str, count: Any, runs: Counter[int], connection: Any
) -> None:
    for group in ("pg_monitor", "pg_read_all_stats", "pg_signal_backend"):
        assert not await connection.fetchval("select pg_has_role($1, $2, 'member')", role, group)
    await holding.start({"count": count}, connection_string=url, concurrency=10)
    await run_loads(holding)
    assert len(runs) == LOADS * LOAD
    assert set(runs.values()) == {1}


@pytest.mark.parametrize(
    "statement",
    [
        f"revoke all on {SCHEMA}._private_py_last_death from $role",
        f"drop policy clerk on {SCHEMA}._private_py_last_death",
        f"revoke all on {SCHEMA}._private_py_workers from $role",
    ],
    ids=["deaths cannot be read", "deaths are hidden", "cannot be registered"],
)
async def test_a_role_that_may_not_know_of_deaths_holds_nothing(
    holding: Holding, url: str, role: str, count: Any, runs: Counter[int], connection: Any, statement: str
) -> None:
    await connection.execute(statement.replace("$role", f'"{role}"'))
    await holding.start({"count": count}, is_warm=False, connection_string=url, concurrency=10)
    await run_loads(holding)
    assert holding.held_fetches == []
    assert len(runs) == LOADS * LOAD
    assert set(runs.values()) == {1}


async def test_jobs_that_a_policy_hides_are_not_held(
    holding: Holding, jobs: Jobs, url: str, role: str, count: Any, runs: Counter[int], connection: Any
) -> None:
    await connection.execute(f'create policy hide on {JOBS} as restrictive to "{role}" using (priority <> 5)')
    await holding.start({"count": count}, connection_string=url, concurrency=10)

    async def add() -> dict[int, list[int]]:
        ids: dict[int, list[int]] = {0: [], 5: []}
        for n in range(20):
            ids[5 * (n % 2)].append(await jobs.add("count", priority=5 * (n % 2)))
        return ids

    ids = await holding.add(add)
    await until(lambda: holding.of(JobSucceeded, ids[0]) == ids[0])
    assert holding.last_fetch == "held"
    assert runs == Counter(ids[0])
    rows = await jobs.all()
    assert [(row["id"], row["attempts"], row["locked_by"]) for row in rows] == [
        (job_id, 0, None) for job_id in ids[5]
    ]


async def test_a_policy_that_keeps_rows_from_being_deleted_ends_holding(
    holding: Holding,
    jobs: Jobs,
    url: str,
    role: str,
    count: Any,
    runs: Counter[int],
    connection: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await holding.start({"count": count}, connection_string=url, concurrency=10)
    await connection.execute(
        f'create policy keep on {JOBS} as restrictive for delete to "{role}" using (locked_at is not null)'
    )
    ids = await holding.add(lambda: jobs.add_many("count", 20))
    await jobs.until_gone()
    assert "held batches are off: the database refused the commit of one (a trigger or a" in caplog.text
    assert runs == Counter(ids)
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == ids)
    assert holding.recorder.count(JobOutcomeDiscarded) == 0
    held = len(holding.held_fetches)
    await run_loads(holding)
    assert len(holding.held_fetches) == held


async def test_a_row_that_a_policy_refuses_to_lock_keeps_no_others(
    holding: Holding, jobs: Jobs, url: str, role: str, gate: Gate, workers: Workers, connection: Any
) -> None:
    await connection.execute(
        f'create table {SCHEMA}.kept (id bigint); grant select on {SCHEMA}.kept to "{role}"; '
        f'create policy keep on {JOBS} as restrictive for update to "{role}" '
        f"using (true) with check (id not in (select id from {SCHEMA}.kept))"
    )
    options: dict[str, Any] = {"connection_string": url, "concurrency": 10, "hold": SHORTLY}
    runner = await holding.start({"step": gate.__call__}, **options)
    ids = await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(3)
    await connection.execute(f"insert into {SCHEMA}.kept values ($1)", ids[1])
    assert holding.last_fetch == "held"
    await until(lambda: holding.are_locked("step", 2))
    evicted = await holding.recorder.wait_for(PoolEvicted)
    assert [job.id for job in evicted.jobs] == [ids[1]]
    gate.open_all()
    await jobs.until_left(ids[1])
    await workers.stop(runner)
    assert (await jobs.one())["attempts"] == 0
