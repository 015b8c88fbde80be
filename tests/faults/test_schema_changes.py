"""The schema is dropped, installed again and upgraded under a running worker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from faults.scene import BRIEF, PATIENCE, Log, Ran, rate
from graphile_worker.database.migrations import migrate
from graphile_worker.errors import SchemaMissingError, SchemaTooNewError
from graphile_worker.hooks.events import PoolFatalError, PoolListenSuccess, WorkerGetJobError
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker import shutdown
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, terminate_workers, until, until_listening

ADVICE = "install it with `graphile-worker migrate`"
NO_BEATS = {"heartbeat_interval": SELDOM, "recovery_grace": 3 * SELDOM, "sweep_interval": SELDOM, "hold": 0}
"""Options of a worker that is registered for recovery and then leaves its tables alone."""


@pytest.mark.parametrize("recovery", [{"recovery": False}, BRIEF], ids=["without recovery", "with recovery"])
async def test_a_worker_waits_for_a_dropped_schema_and_goes_on_when_it_is_installed_again(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran, log: Log, recovery: dict[str, Any]
) -> None:
    gate = Gate()
    await jobs.add("wait")
    tasks = {"note": ran, "wait": gate}
    await workers.start(tasks, events=recorder.events, concurrency=2, poll_interval=0.1, **recovery)
    await gate.until_inside(1, timeout=PATIENCE)
    await until_listening(recorder, jobs.connection)
    await drop_schema(jobs)
    gate.open()  # the outcome of a job that does not exist any more
    await log.says("jobs cannot be fetched: ", ADVICE)
    assert await rate(lambda: recorder.count(WorkerGetJobError)) <= 7.5
    assert len(log.lines) <= 15, log.lines

    async with jobs.connection.transaction():
        await migrate(jobs.connection, SchemaName())
        # Other ids for the same names, and a job with the id of the one that ended in between.
        for number, name in enumerate(("another", "note", "wait")):
            await jobs.add(name, {"n": number})
    await ran.until(1)
    await gate.until_inside(1, timeout=PATIENCE)
    assert gate.started[1:] == [{"n": 2}]
    await log.says("jobs are fetched again")
    gate.open()
    await until(lambda: is_left(jobs, ["another"]), timeout=PATIENCE)
    await jobs.add("note", {"n": 3})
    await ran.until(3)
    assert ran.times == {1: 1, 3: 1}
    assert ran.attempts == {1}


async def drop_schema(jobs: Jobs) -> None:
    """Its tables are locked one by one, so a statement of the worker may have to give way in a deadlock."""
    await jobs.connection.execute("set deadlock_timeout = '1min'")
    await jobs.connection.execute(f"drop schema {SCHEMA} cascade")


async def is_left(jobs: Jobs, names: list[str]) -> bool:
    return [row["identifier"] for row in await jobs.all()] == names


async def test_a_schema_that_is_replaced_at_one_stroke_does_not_mix_up_tasks_or_jobs(
    workers: Workers,
    jobs: Jobs,
    recorder: EventRecorder,
    ran: Ran,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No statement fails in between; the only sign is the notification of the new schema.

    Nor does one wait for the change: that one would see the new tables before it is heard of.
    """
    monkeypatch.setattr("graphile_worker.worker.fetch.plan.SLOW", SELDOM)  # else another fetch comes later
    monkeypatch.setattr("graphile_worker.worker.control.watch.IDLE_INTERVAL", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.service.MAINTENANCE_AFTER", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.sweeper.FIRST_DELAY", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.registry.rust_heartbeat.HEARTBEAT_INTERVAL", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.sweeper.StaleLocks.start", lambda self: None)
    gate = Gate()
    await jobs.add("wait")
    tasks = {"wait": gate, "note": ran}
    await workers.start(tasks, events=recorder.events, concurrency=2, poll_interval=SELDOM, **NO_BEATS)
    await gate.until_inside(1, timeout=PATIENCE)
    await until_listening(recorder, jobs.connection)
    await until(lambda: has_heartbeat(jobs), timeout=PATIENCE)
    await until_idle(jobs)
    async with jobs.connection.transaction():
        await drop_schema(jobs)
        await migrate(jobs.connection, SchemaName())
        await jobs.add("another")  # has the id of the job that runs, and its task the id of a known one
        await jobs.add("note", {"n": 0})
    await ran.until(0)
    if gate.inside:  # it was cancelled unless it is too late for that
        gate.open()
    await jobs.add("note", {"n": 1})
    await ran.until(1)
    await until(lambda: is_left(jobs, ["another"]), timeout=PATIENCE)
    assert (await jobs.one())["attempts"] == 0


async def test_a_fetch_that_waits_for_a_new_schema_does_not_mix_up_jobs(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """It locks a job with the id of the one that runs, before anybody has heard of the change."""
    monkeypatch.setattr("graphile_worker.worker.control.watch.IDLE_INTERVAL", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.service.MAINTENANCE_AFTER", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.sweeper.FIRST_DELAY", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.registry.rust_heartbeat.HEARTBEAT_INTERVAL", SELDOM)
    monkeypatch.setattr("graphile_worker.recovery.sweeper.StaleLocks.start", lambda self: None)
    gate = Gate()
    old = await jobs.add("wait", {"n": "old"})
    await workers.start({"wait": gate}, events=recorder.events, concurrency=2, **NO_BEATS)
    await gate.until_inside(1, timeout=PATIENCE)
    await until_listening(recorder, jobs.connection)
    await until(lambda: has_heartbeat(jobs), timeout=PATIENCE)
    await until_idle(jobs)
    other = await asyncpg.connect(database_url)
    try:
        async with jobs.connection.transaction():
            await drop_schema(jobs)
            await other.execute("select pg_notify('jobs:insert', '{\"count\": 1}')")
            await until(lambda: is_waiting(other), timeout=PATIENCE)
            await migrate(jobs.connection, SchemaName())
            assert await jobs.add("wait", {"n": "new"}) == old
    finally:
        await other.close()
    await until(lambda: {"n": "new"} in gate.started, timeout=PATIENCE)
    await jobs.add("wait", {"n": "next"})
    await until(lambda: {"n": "next"} in gate.started, timeout=PATIENCE)

    async def is_done() -> bool:
        gate.open_all()
        return not await jobs.count()

    await until(is_done, timeout=PATIENCE)
    assert gate.ended.count({"n": "new"}) == 1


async def is_waiting(connection: Any) -> bool:
    """Whether a statement of the worker waits for a lock."""
    return await connection.fetchval(
        "select exists (select from pg_stat_activity where application_name = 'graphile_worker' "
        "and datname = current_database() and wait_event_type = 'Lock')"
    )


async def has_heartbeat(jobs: Jobs) -> bool:
    """Whether the first one was sent; it has a thread and a session of its own."""
    return await jobs.connection.fetchval(
        f"select bool_and(backend_pid is not null) from {SCHEMA}._private_py_workers"
    )


async def until_idle(jobs: Jobs) -> None:
    """Wait until the worker sends nothing while this sends ten statements.

    They share an event loop, so on a busy machine a pause alone does not mean that it has none to send.
    """
    quiet, before = 0, None
    async with asyncio.timeout(PATIENCE):
        while quiet < 10:
            await asyncio.sleep(0.03)
            now = await jobs.connection.fetchrow(
                "select bool_and(state = 'idle') as is_idle, max(query_start), count(*) "
                "from pg_stat_activity "
                "where datname = current_database() and application_name = 'graphile_worker'"
            )
            quiet = quiet + 1 if now["is_idle"] and now == before else 0
            before = now


async def test_a_run_that_ends_by_itself_fails_with_advice(
    workers: Workers, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "LAST_WRITE", 0.3)

    async def drop(payload: Any) -> None:
        await drop_schema(jobs)

    await jobs.add("drop")
    with pytest.raises(SchemaMissingError, match=ADVICE):
        await workers.once({"drop": drop}, timeout=PATIENCE, grace=0.1)


# -- upgraded ------------------------------------------------------------------------------------------------


async def upgrade(jobs: Jobs, revision: int, *, breaking: bool, announced: bool = True) -> None:
    """As a newer worker does it."""
    async with jobs.connection.transaction():
        await jobs.connection.execute(
            f"insert into {SCHEMA}.migrations (id, breaking) values ($1, $2)", revision, breaking
        )
        if announced:
            await jobs.connection.execute(
                "select pg_notify('worker:migrate', "
                "json_build_object('migrationNumber', $1::int, 'breaking', $2::bool)::text)",
                revision,
                breaking,
            )


async def test_a_worker_goes_on_after_a_newer_migration_that_does_not_break_it(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran
) -> None:
    gate = Gate()
    await jobs.add("wait")
    await workers.start({"note": ran, "wait": gate}, events=recorder.events, concurrency=2)
    await gate.until_inside(1, timeout=PATIENCE)
    await until_listening(recorder, jobs.connection)
    await upgrade(jobs, 21, breaking=False)
    await jobs.add_many("note", 5)
    await ran.until(*range(5))
    gate.open()  # what ran through it is written
    await jobs.until_gone(timeout=PATIENCE)
    ran.assert_each_once(5)
    assert len(gate.started) == 1


async def test_a_breaking_migration_stops_a_worker_that_does_not_know_it_with_its_jobs_written(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, log: Log
) -> None:
    gate = Gate()
    await jobs.add("wait")
    runner = await workers.start({"wait": gate}, events=recorder.events)
    await gate.until_inside(1, timeout=PATIENCE)
    await until_listening(recorder, jobs.connection)
    await upgrade(jobs, 1000, breaking=True)
    await log.says("the worker cannot continue (migrate): ", "install a newer version of graphile-worker")
    gate.open()
    with pytest.raises(SchemaTooNewError, match="revision 1000"):
        await asyncio.wait_for(runner.wait(), PATIENCE)
    assert (await jobs.count(), await jobs.locked()) == (0, 0)


async def test_a_breaking_migration_that_nobody_heard_of_is_noticed_when_the_worker_listens_again(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, log: Log
) -> None:
    runner = await workers.start({"note": print}, events=recorder.events)
    await recorder.wait_for(PoolListenSuccess, timeout=PATIENCE)
    await until_listening(recorder, jobs.connection)
    await upgrade(jobs, 1000, breaking=True, announced=False)
    await terminate_workers(jobs.connection)
    with pytest.raises(SchemaTooNewError, match="breaking revision is 1000"):
        await asyncio.wait_for(runner.wait(), PATIENCE)
    await log.says("the worker cannot continue (migrate): ")


FORGED = """select pg_notify('worker:migrate', '{"migrationNumber":999999,"breaking":true}')"""


async def test_an_announcement_that_the_ledger_does_not_confirm_stops_nobody(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran
) -> None:
    """Any role that may connect can notify; and a migration of another schema is announced here too."""
    await workers.start({"note": ran}, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await jobs.connection.execute("create role gw_test_nobody")
    try:
        async with jobs.connection.transaction():
            await jobs.connection.execute("set local role gw_test_nobody")
            await jobs.connection.execute(FORGED)
        await migrate(jobs.connection, SchemaName("another"))
        await jobs.connection.execute("insert into another.migrations (id, breaking) values (1000, true)")
        await jobs.connection.execute(FORGED.replace("999999", "1000"))
        await jobs.add("note", {"n": 0})
        await ran.until(0)
        await jobs.until_gone(timeout=PATIENCE)
    finally:
        await jobs.connection.execute("drop role gw_test_nobody")
    assert recorder.count(PoolFatalError) == 0


async def test_a_flood_of_forged_announcements_is_looked_into_once_a_second(
    workers: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran, database_url: str
) -> None:
    looks: list[float] = []

    async def count_looks(connection: Any) -> None:
        def note(record: Any) -> None:
            if "ledger_columns" in record.query:
                looks.append(time.monotonic())

        connection.add_query_logger(note)

    async with asyncpg.create_pool(database_url, min_size=0, max_size=5, init=count_looks) as pool:
        runner = await workers.start({"note": ran}, pg_pool=pool, events=recorder.events)
        await until_listening(recorder, jobs.connection)
        await until(lambda: len(looks) >= 1, timeout=PATIENCE)  # when it began to listen; the counter works
        began, before = time.monotonic(), len(looks)
        for number in range(500):
            await jobs.connection.execute(FORGED.replace("999999", str(1000 + number)))
        await jobs.add("note", {"n": 0})
        await ran.until(0)
        assert len(looks) - before <= 2 + time.monotonic() - began
        await workers.stop(runner)
    assert recorder.count(PoolFatalError) == 0
