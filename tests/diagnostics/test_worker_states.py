"""Worker pools that are blocked, silent, dead or fetch nothing, as the doctor and `workers` describe them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphile_worker.config import resolve_settings
from graphile_worker.contrib.http import HttpPlugin
from graphile_worker.diagnostics.examine import examine
from graphile_worker.diagnostics.finding import Finding
from graphile_worker.recovery.registry.workers import condition_of, list_workers
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until

TABLE = f"{SCHEMA}._private_py_workers"
LOCK = "select pg_advisory_lock(hashtextextended($1 || '/' || $2, 0))"


@pytest.fixture
def graveyard(connection: Any) -> Graveyard:
    return Graveyard(connection)


async def found(url: str, check: str) -> list[Finding]:
    findings = await examine(resolve_settings({"connection_string": url}, {}))
    return [finding for finding in findings if finding.check == check]


async def state(connection: Any) -> str:
    (worker,) = await list_workers(connection, SchemaName())
    return condition_of(worker)[1]


async def test_a_pool_that_holds_its_lock_and_is_silent_is_alive(
    connection: Any, jobs: Jobs, graveyard: Graveyard, database_url: str
) -> None:
    job_id = await jobs.add("forever")
    await graveyard.bury("pool-1", lost_for=None)
    await graveyard.give("pool-1", job_id)
    await connection.fetchval(LOCK, SCHEMA, "pool-1")
    (finding,) = await found(database_url, "workers")
    assert finding.severity == "warning"
    assert finding.summary == (
        f"worker pool pool-1 missed its heartbeats for 1 h; it has locked: forever (job {job_id})"
    )
    assert "1 on somewhere." in finding.advice
    assert await state(connection) == "no heartbeat for 1 h"
    await connection.execute(
        f"update {TABLE} set running = jsonb_build_array(jsonb_build_array($1::bigint, 1.5))", job_id
    )
    (finding,) = await found(database_url, "workers")
    assert finding.summary.endswith(f"; it last reported running: forever (job {job_id})")


async def test_a_pool_that_reports_a_blocked_loop_is_described_by_it(
    connection: Any, graveyard: Graveyard, database_url: str
) -> None:
    await graveyard.bury("pool-1", lost_for=None)
    await connection.fetchval(LOCK, SCHEMA, "pool-1")
    for blocked, culprit in (
        ('{"task": "forever", "job": 17, "since": %s}', "task forever (job 17)"),
        ('{"task": null, "job": null, "since": %s}', "something other than a task"),
    ):
        await connection.execute(
            f"update {TABLE} set blocked = format($1::text, extract(epoch from now()) - 3600)::jsonb", blocked
        )
        (finding,) = await found(database_url, "workers")
        assert finding.summary == f"worker pool pool-1: {culprit} has blocked its event loop for 1 h"
        assert await state(connection) == f"blocked for 1 h by {culprit}"


async def test_what_a_dead_pool_ran_is_named(
    connection: Any, jobs: Jobs, graveyard: Graveyard, database_url: str
) -> None:
    job_id = await jobs.add("forever")
    await graveyard.bury("pool-1")
    await graveyard.give("pool-1", job_id)
    await connection.execute(f"""update {TABLE} set blocked = '{{"task": "x", "job": 1, "since": 1}}'""")
    (finding,) = await found(database_url, "workers")
    assert (finding.severity, finding.summary) == ("warning", "no Python worker is running")
    assert "unless Node or Rust workers run" in finding.meaning
    (finding,) = await found(database_url, "locks")
    assert finding.summary == f"worker pool pool-1 is unreachable and has 1 job: forever (job {job_id})"


class Flags:
    """The function of forbidden_flags; it fails as long as a test wants it to."""

    def __init__(self) -> None:
        self.is_broken = False
        self.is_stuck = False
        self.has_failed = False

    async def __call__(self) -> list[str]:
        self.has_failed |= self.is_broken or self.is_stuck
        if self.is_broken:
            raise asyncio.CancelledError("as asked")
        await until(lambda: not self.is_stuck)
        return []


@pytest.mark.parametrize("mode", [{}, {"local_queue": {"size": 2}}], ids=["default", "local queue"])
@pytest.mark.parametrize("how", ["is_broken", "is_stuck"])
async def test_a_pool_that_fetches_nothing_is_seen_from_everywhere(
    monkeypatch: pytest.MonkeyPatch,
    connection: Any,
    jobs: Jobs,
    workers: Workers,
    database_url: str,
    how: str,
    mode: dict[str, Any],
) -> None:
    monkeypatch.setattr("graphile_worker.worker.pool.FETCH_MARGIN", 0.5)
    flags, http, ran = Flags(), HttpPlugin(0, "127.0.0.1"), asyncio.Event()

    async def step() -> None:
        ran.set()

    async def problems() -> list[str]:
        [process] = await http.health()
        said = [problem for problem in (await found(database_url, "workers")) if problem.severity != "ok"]
        return [
            *process.ready_problems,
            *(finding.summary for finding in said),
            await state(connection),
        ]

    async def is_seen() -> bool:
        return sum("no fetch " in problem for problem in await problems()) == 3

    async def is_over() -> bool:
        return await problems() == ["alive"]

    await workers.start(
        {"step": step},
        forbidden_flags=flags,
        poll_interval=0.1,
        heartbeat_interval=0.2,
        recovery_grace=PATIENCE,
        plugins=[http],
        **mode,
    )
    await until(is_over)
    setattr(flags, how, True)
    await until(lambda: flags.has_failed)  # a fetch before that may still be in flight
    await jobs.add("step")
    await until(is_seen)
    assert not ran.is_set()
    setattr(flags, how, False)
    await until(is_over)
    async with asyncio.timeout(PATIENCE):
        await ran.wait()
