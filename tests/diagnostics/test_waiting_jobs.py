"""Why ready jobs are not run: the doctor names the reason of every task."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.config import resolve_settings
from graphile_worker.database.statements.inspection import ready_tasks
from graphile_worker.diagnostics.examine import examine
from graphile_worker.diagnostics.finding import Finding
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import QUICK, Graveyard
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

OPTIONS = QUICK | {"sweep_interval": SELDOM, "prefetch": 0}
OLD = "now() - interval '8 minutes'"


async def waiting(url: str) -> list[Finding]:
    findings = await examine(resolve_settings({"connection_string": url}, {}))
    return [finding for finding in findings if finding.check == "waiting"]


async def make_old(jobs: Jobs) -> None:
    """Every job became ready some minutes ago."""
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set run_at = {OLD}, created_at = {OLD}")


@pytest.fixture
def graveyard(connection: Any) -> Graveyard:
    return Graveyard(connection)


async def test_without_a_worker_every_task_is_named_and_the_rest_is_counted(
    jobs: Jobs, database_url: str
) -> None:
    for number in range(8):
        await jobs.add(f"task {number}")
    await make_old(jobs)
    (found,) = await waiting(database_url)
    assert found.severity == "warning"
    assert found.summary == (
        "jobs wait, and no worker is running: task 0 (1 job, 8 min), task 1 (1 job, 8 min), "
        "task 2 (1 job, 8 min), task 3 (1 job, 8 min), task 4 (1 job, 8 min) and 3 more"
    )


async def test_workers_of_other_runtimes_do_not_say_what_they_have(
    jobs: Jobs, database_url: str, graveyard: Graveyard
) -> None:
    held, _ = await jobs.add("work"), await jobs.add("work")
    await make_old(jobs)
    await graveyard.give("pool-of-node", held)
    (found,) = await waiting(database_url)
    assert found.summary == "jobs wait, and no Python worker is running: work (1 job, 8 min)"
    assert "other runtimes" in found.meaning


async def test_each_reason_is_found_beside_the_others(
    jobs: Jobs, database_url: str, workers: Workers, connection: Any
) -> None:
    gate = Gate()
    await jobs.add("slow", {"n": 1}, queue="customers", priority=-1)
    await workers.start({"slow": gate, "typed": Gate()}, concurrency=1, forbidden_flags=["paused"], **OPTIONS)
    await gate.until_inside(1)
    await jobs.add("slow", {"n": 2})
    await jobs.add("typd")
    await jobs.add("typd")
    await jobs.add("typed", flags=["paused", "night"])
    await jobs.add("queued", queue="customers")
    await make_old(jobs)

    async def is_reported() -> bool:
        row = await connection.fetchrow(f"select running from {SCHEMA}._private_py_workers")
        return row["running"] not in (None, "[]")

    await until(is_reported)
    found = {finding.summary: finding for finding in await waiting(database_url)}
    assert set(found) == {
        "jobs wait, although running workers have the tasks: slow (1 job, 8 min)",
        "jobs wait for a task that no running worker has: typd (2 jobs, 8 min)",
        "jobs wait, and all of them have flags (night, paused): typed (1 job, 8 min)",
        "jobs wait for their named queue, which is locked: queued (1 job, 8 min)",
    }
    slow, typd, queued = (
        next(finding for summary, finding in found.items() if f"{task} (" in summary)
        for task in ("slow", "typd", "queued")
    )
    assert "1 of their 1 slots are busy" in slow.meaning
    assert "typd: did you mean 'typed'?" in typd.meaning
    assert "graphile-worker list --task typd" in typd.advice
    assert queued.severity == "info"
    pool_id = (await jobs.all())[0]["locked_by"]
    assert f"Locked: customers by {pool_id}." in queued.meaning
    gate.open()


async def test_a_fresh_job_behind_a_busy_queue_does_not_make_the_task_slow(
    jobs: Jobs, database_url: str, graveyard: Graveyard
) -> None:
    running, _ = await jobs.add("work", queue="a"), await jobs.add("work", queue="a")
    await make_old(jobs)
    await graveyard.give("pool-of-node", running)
    await jobs.add("work")
    (found,) = await waiting(database_url)
    assert found.summary == "jobs wait for their named queue, which is locked: work (2 jobs, 8 min)"


async def test_a_locked_queue_is_named_with_the_pool_that_holds_it(
    jobs: Jobs, database_url: str, graveyard: Graveyard, connection: Any
) -> None:
    first, second = await jobs.add("other", queue="a"), await jobs.add("other", queue="b")
    await make_old(jobs)
    await graveyard.give("pool-z", first)
    await graveyard.give("pool-y", second)
    waiting_for_b, _ = await jobs.add("work", queue="b"), await jobs.add("work", queue="a")
    await make_old(jobs)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at - interval '1 second', "
        "created_at = created_at - interval '1 second' where id = $1",
        waiting_for_b,
    )
    (found,) = await waiting(database_url)
    assert "Locked: b by pool-y." in found.meaning


async def test_without_the_table_of_workers_the_reason_is_unknown(
    jobs: Jobs, database_url: str, connection: Any
) -> None:
    await jobs.add("work")
    await make_old(jobs)
    await connection.execute(f"drop table {SCHEMA}._private_py_workers")
    (found,) = await waiting(database_url)
    assert found.summary == "jobs have been ready for long: work (1 job, 8 min)"
    assert "`graphile-worker migrate`" in found.advice


async def test_jobs_of_many_priorities_are_found_and_scheduled_ones_are_not(
    jobs: Jobs, connection: Any
) -> None:
    for priority in (-3, 0, 7):
        await jobs.add(f"at {priority}", priority=priority)
    await make_old(jobs)
    await connection.execute(
        f"select {SCHEMA}.add_job('later', run_at => now() + interval '1 hour', priority => 0)"
    )
    found = await ready_tasks(connection, SchemaName())
    assert [(task.task_identifier, task.jobs, task.has_more) for task in found] == [
        ("at -3", 1, False), ("at 0", 1, False), ("at 7", 1, False)
    ]  # fmt: skip
    assert found[0].age == pytest.approx(480, abs=60)
