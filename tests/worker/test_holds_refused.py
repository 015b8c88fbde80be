"""Held batches that the database does not end as it should: nothing is lost, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest

from graphile_worker.hooks.events import JobOutcomeDiscarded, JobSucceeded, PoolEvicted
from support.held_load import LOAD, Holding
from support.working import IS_LOCKED_OUT, SCHEMA, Gate, Jobs, Workers, until, until_listening

HOLDERS = (
    "from pg_stat_activity where datname = current_database() and application_name = 'graphile_worker' "
    "and state = 'idle in transaction'"
)
SHORTLY = 2.0


async def end_holders(connection: Any) -> int:
    """End the sessions whose transactions hold jobs; how many there were."""
    return len(await connection.fetch(f"select pg_terminate_backend(pid) {HOLDERS}"))


async def set_body(connection: Any, body: str) -> None:
    """What the trigger does from now on; a batch that is open does not keep anyone from changing that."""
    await connection.execute(
        f"create or replace function {SCHEMA}.keep() returns trigger language plpgsql "
        f"as $$ begin {body} return coalesce(new, old); end $$"
    )


async def create_trigger(connection: Any, when: str, condition: str = "true") -> None:
    """A trigger that does nothing yet; it waits for open batches."""
    await set_body(connection, "")
    await connection.execute(
        f"create trigger keep before {when} on {SCHEMA}._private_jobs for each row when ({condition}) "
        f"execute function {SCHEMA}.keep()"
    )


async def test_a_trigger_that_keeps_rows_ends_holding_and_each_job_ends_once(
    holding: Holding, jobs: Jobs, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    await create_trigger(connection, "delete", "old.locked_at is null")
    await holding.start({"step": gate.__call__}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(3)
    ids += await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(6)
    await set_body(connection, "return null;")
    gate.open_all()
    await jobs.until_gone()
    assert "held batches are off: the database refused the commit of one (a trigger" in caplog.text
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == ids)
    assert caplog.text.count("held batches are off") == 1  # there were two
    assert len(gate.started) == 6


@pytest.mark.parametrize(
    "trouble",
    ["perform pg_cancel_backend(pg_backend_pid()); perform pg_sleep(60);", "raise out_of_memory;"],
    ids=["cancelled", "out of memory"],
)
async def test_trouble_that_passes_costs_no_outcome_and_does_not_end_holding(
    holding: Holding, jobs: Jobs, connection: Any, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    """The end of the batch fails, then the statement that locks its jobs, and then that for the first."""
    gate = Gate()
    await create_trigger(connection, "delete or update", "old.locked_at is null")
    runner: Any = await holding.start({"step": gate.__call__}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(3)
    await connection.execute(f"create sequence {SCHEMA}.trouble")
    await set_body(connection, f"if nextval('{SCHEMA}.trouble') <= 3 then {trouble} end if;")
    gate.open_all()
    await jobs.until_gone()
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == ids)
    assert await connection.fetchval(f"select last_value > 3 from {SCHEMA}.trouble")
    assert not holding.recorder.of(JobOutcomeDiscarded)
    assert len(gate.started) == 3
    assert "held batches are off" not in caplog.text
    lost = runner._pool._held_batches._lost
    assert not lost.is_busy
    assert not lost._one_at_a_time  # the next one is settled as a whole
    await holding.warm_up()


@pytest.mark.parametrize("body", ["return null;", "raise exception 'no';"])
async def test_a_row_that_cannot_be_locked_keeps_neither_others_nor_the_worker(
    holding: Holding, jobs: Jobs, workers: Workers, connection: Any, body: str
) -> None:
    gate = Gate()
    await create_trigger(connection, "update")
    runner = await holding.start({"step": gate.__call__}, concurrency=10, hold=SHORTLY)
    ids = await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(3)
    await set_body(connection, f"if old.id = {ids[1]} then {body} end if;")
    assert holding.last_fetch == "held"
    await until(lambda: holding.are_locked("step", 2))
    evicted = await holding.recorder.wait_for(PoolEvicted)
    assert [job.id for job in evicted.jobs] == [ids[1]]
    gate.open_all()
    await jobs.until_left(ids[1])
    await workers.stop(runner)
    assert (await jobs.one())["attempts"] == 0


async def test_a_keyed_job_whose_row_does_not_change_keeps_no_others(
    holding: Holding, jobs: Jobs, connection: Any
) -> None:
    async def step() -> None:
        pass

    await holding.start({"step": step}, concurrency=10)
    await create_trigger(connection, "update", "old.key is not null and new.attempts = 1")
    await set_body(connection, "return null;")

    async def add() -> tuple[int, int]:
        return await jobs.add("step", key="k"), await jobs.add("step")

    kept, _other = await holding.add(add)
    await jobs.until_left(kept)
    assert not holding.recorder.of(JobOutcomeDiscarded)


async def test_jobs_of_a_lost_connection_are_locked_and_the_worker_holds_again(
    holding: Holding, jobs: Jobs, connection: Any
) -> None:
    gate = Gate()
    runner = await holding.start({"step": gate.__call__}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("step", 4))
    await gate.until_inside(4)
    assert await end_holders(connection) >= 1
    gate.open()
    gate.open()
    await until(lambda: gate.inside == 2)
    # What has ended waits for the end of the batch, which the stop of the worker brings about.
    await asyncio.gather(runner.stop(), _open_after(holding, gate))
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == ids)
    assert await jobs.count() == 0
    assert len(gate.started) == 4


async def _open_after(holding: Holding, gate: Gate) -> None:
    """Let the others go on when they are locked."""
    await until(lambda: holding.are_locked("step", 2))
    gate.open_all()


async def test_a_worker_holds_again_after_a_lost_connection(
    holding: Holding, jobs: Jobs, connection: Any
) -> None:
    gate = Gate()
    await holding.start({"step": gate.__call__}, concurrency=10, hold=SHORTLY)
    await holding.add(lambda: jobs.add_many("step", 4))
    await gate.until_inside(4)
    assert await end_holders(connection) >= 1
    await until(lambda: holding.are_locked("step", 4))
    gate.open_all()
    await jobs.until_gone()
    assert len(gate.started) == 4
    await holding.warm_up()


async def test_nothing_is_held_while_the_server_refuses_connections(
    holding: Holding, jobs: Jobs, connection: Any, server_url: str
) -> None:
    runs: Counter[str] = Counter()

    async def count() -> None:
        runs["count"] += 1

    await holding.start({"count": count}, concurrency=10, is_warm=False)
    name = await connection.fetchval("select current_database()")
    await jobs.add("count")
    await jobs.until_gone()  # the sessions for fetches and writes are open
    await until_listening(holding.recorder, jobs.connection)  # later jobs are announced; polls are far apart
    admin = await asyncpg.connect(server_url)
    await admin.execute(f'alter database "{name}" allow_connections false')
    try:
        for _ in range(2):
            await holding.add_load(LOAD, task="count")
            await jobs.until_gone()
    finally:
        await admin.execute(f'alter database "{name}" allow_connections true')
        await admin.close()
    assert runs["count"] == 2 * LOAD + 1
    assert holding.held_fetches == []
    await holding.warm_up()


async def test_a_change_of_the_table_waits_for_the_batch_and_not_the_other_way_round(
    holding: Holding, jobs: Jobs, database_url: str
) -> None:
    gate = Gate()
    await holding.start({"step": gate.__call__}, concurrency=10)
    await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(3)
    other = await asyncpg.connect(database_url)
    try:
        change = asyncio.create_task(
            other.execute(f"alter table {SCHEMA}._private_jobs alter column payload set default '{{}}'")
        )
        await until(lambda: jobs.connection.fetchval(IS_LOCKED_OUT))
        gate.open_all()
        await change
    finally:
        await other.close()
    await jobs.until_gone()
    assert len(gate.started) == 3


async def test_strict_settings_of_the_database_do_not_end_batches(
    holding: Holding, jobs: Jobs, connection: Any
) -> None:
    name = await connection.fetchval("select current_database()")
    settings = {
        "default_transaction_isolation": "serializable",
        "idle_in_transaction_session_timeout": "1s",
        "idle_session_timeout": "1s",
        "transaction_timeout": "2s",
    }
    for setting, value in settings.items():
        if await connection.fetchval("select current_setting($1, true)", setting) is not None:
            await connection.execute(f"alter database \"{name}\" set {setting} = '{value}'")
    gate = Gate()
    await holding.start({"step": gate.__call__}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("step", 3))
    await gate.until_inside(3)
    assert await holding.row_locked(ids) == ids
    began = await connection.fetchval("select clock_timestamp()")

    async def is_long_over() -> bool:
        return await connection.fetchval(
            "select clock_timestamp() > $1::timestamptz + interval '2.5 s'", began
        )

    await until(is_long_over)
    assert await holding.row_locked(ids) == ids
    gate.open_all()
    await jobs.until_gone()
    assert len(gate.started) == 3
