"""What a worker pool holds and runs, reported with its heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.recovery.heartbeat import MOST_REPORTED, _with_ages
from graphile_worker.recovery.registry import workers
from graphile_worker.recovery.registry.workers import JobReport, WorkerSummary
from recovery.dead import QUICK, Graveyard
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

OPTIONS = QUICK | {"sweep_interval": SELDOM, "concurrency": 2, "prefetch": 0}


@pytest.fixture
def large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every jobs table counts as large."""
    monkeypatch.setattr(workers, "SCANNED_PAGES", -1)


async def until_listed(utils: WorkerUtils, condition: Callable[[WorkerSummary], bool]) -> WorkerSummary:
    """The only worker, once the condition holds."""
    found: list[WorkerSummary] = []

    async def is_so() -> bool:
        found[:] = await utils.list_workers()
        return len(found) == 1 and condition(found[0])

    await until(is_so)
    return found[0]


@pytest.mark.usefixtures("large_table")
async def test_a_worker_reports_what_it_runs(workers: Workers, jobs: Jobs, utils: WorkerUtils) -> None:
    gate = Gate()
    first, second = await jobs.add("work"), await jobs.add("work")
    await workers.start({"work": gate}, **OPTIONS)
    await gate.until_inside(2)
    worker = await until_listed(utils, lambda worker: len(worker.running or ()) == worker.jobs_held == 2)
    assert worker.running is not None
    assert {job.id for job in worker.running} == {first, second} == set(worker.job_ids)
    locked_at = [row["locked_at"] for row in await jobs.all()]
    assert all(abs((job.started_at - min(locked_at)).total_seconds()) < 30 for job in worker.running)
    assert worker.locked_since == worker.running[0].started_at == min(j.started_at for j in worker.running)
    gate.open()
    gate.open()
    worker = await until_listed(utils, lambda worker: worker.jobs_held == 0)
    assert (worker.running, worker.job_ids, worker.locked_since) == ([], [], None)


async def test_so_does_one_on_a_connection_pool_of_the_caller(
    workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str
) -> None:
    gate = Gate()
    job_id = await jobs.add("work")
    async with asyncpg.create_pool(database_url, min_size=1, max_size=6) as pool:
        runner = await workers.start({"work": gate}, pg_pool=pool, **OPTIONS)
        await gate.until_inside(1)
        worker = await until_listed(utils, lambda worker: bool(worker.running))
        assert [job.id for job in worker.running or ()] == [job_id]
        gate.open()
        await workers.stop(runner)


async def test_a_worker_whose_row_was_deleted_reports_again(
    workers: Workers, jobs: Jobs, utils: WorkerUtils, connection: Any
) -> None:
    """As a sweep does that took it for dead; nothing about its jobs has changed since the last report."""
    gate = Gate()
    job_id = await jobs.add("work")
    await workers.start({"work": gate}, **OPTIONS)
    await gate.until_inside(1)
    await until_listed(utils, lambda worker: bool(worker.running))
    await connection.execute(f"delete from {SCHEMA}._private_py_workers")
    worker = await until_listed(utils, lambda worker: bool(worker.running))
    assert [job.id for job in worker.running or ()] == [job_id]
    gate.open()
    await jobs.until_gone()


async def count_reports(connection: Any) -> Callable[[], Awaitable[int]]:
    """Count updates that write the report, whether it changes or not."""
    await connection.execute("create table reports (at timestamptz default now())")
    await connection.execute(
        "create function count_report() returns trigger language plpgsql as "
        "$$ begin insert into reports default values; return new; end $$"
    )
    await connection.execute(
        f"create trigger count_reports before update of running on {SCHEMA}._private_py_workers "
        "for each row execute function count_report()"
    )
    return lambda: connection.fetchval("select count(*) from reports")


async def test_an_idle_worker_reports_once(
    workers: Workers, utils: WorkerUtils, connection: Any, graveyard: Graveyard
) -> None:
    reports = await count_reports(connection)
    await workers.start({"work": Gate()}, **OPTIONS)
    await until_listed(utils, lambda worker: worker.jobs_held == 0)
    for _ in range(2):
        seen_at = (await graveyard.only_worker())["last_seen_at"]
        await until_listed(utils, lambda worker, seen_at=seen_at: worker.last_seen_at != seen_at)  # type: ignore[misc]
    assert await reports() == 1


async def test_a_worker_goes_on_without_the_columns(
    workers: Workers, jobs: Jobs, utils: WorkerUtils, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute(
        f"alter table {SCHEMA}._private_py_workers drop column jobs_held, drop column running"
    )
    gate = Gate()
    job_id = await jobs.add("work")
    await workers.start({"work": gate}, **OPTIONS)
    await gate.until_inside(1)
    worker = await until_listed(utils, lambda worker: worker.last_seen_at != worker.started_at)
    assert (worker.is_alive, worker.running, worker.jobs_held) == (True, None, 1)
    assert worker.job_ids == [job_id]
    gate.open()
    await jobs.until_gone()
    assert "heartbeat failed" not in caplog.text


async def test_a_large_table_is_scanned_only_on_request(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await jobs.add("work")
    await graveyard.give("pool-of-node", job_id)
    assert [worker.id for worker in await utils.list_workers()] == ["pool-of-node"]
    monkeypatch.setattr(workers, "SCANNED_PAGES", -1)
    found = await utils.list_workers()
    assert (list(found), found.is_complete) == ([], False)
    found = await utils.list_workers(all=True)
    assert ([worker.job_ids for worker in found], found.is_complete) == ([[job_id]], True)


@pytest.mark.usefixtures("large_table")
async def test_a_dry_sweep_finds_orphaned_jobs_in_a_large_table(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id)
    report = await utils.sweep_stale_workers(dry_run=True)
    assert [(worker.id, worker.returned) for worker in report.recovered] == [("pool-dead", [job_id])]


def test_a_report_is_bounded_to_the_longest_running_jobs() -> None:
    running = {number: float(-number) for number in range(MOST_REPORTED + 50)}
    jobs_held, ids, ages = _with_ages(JobReport(1000, running))
    assert jobs_held == 1000
    assert ids == list(range(MOST_REPORTED + 49, 49, -1))
    assert ages == sorted(ages, reverse=True)


async def test_the_command_says_when_the_table_was_not_scanned(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from graphile_worker.cli.main import run_main

    monkeypatch.setenv("DATABASE_URL", database_url)
    assert await asyncio.to_thread(run_main, ["workers"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(workers, "SCANNED_PAGES", -1)
    assert await asyncio.to_thread(run_main, ["workers", "--json"]) == 0
    assert "Use --all to scan it" in capsys.readouterr().err
    assert await asyncio.to_thread(run_main, ["workers", "--all"]) == 0
    assert capsys.readouterr().err == ""
