"""`max_pool_size` is kept to: with few connections a worker does without what needs them, and says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphile_worker import run, run_once
from graphile_worker.errors import ConfigError
from support.working import SCHEMA, Jobs, Workers, until

MARK = "few connections"
COUNT = f"select count(*) from pg_stat_activity where application_name = '{MARK}'"
"""The worker's connections that are open; its pool closes none before minutes have passed."""


def marked(database_url: str) -> str:
    return f"{database_url}{'&' if '?' in database_url else '?'}application_name={MARK}"


def counting(seen: list[int]) -> Callable[[Any, Any], Awaitable[None]]:
    """A task that notes how many connections the worker has."""

    async def work(payload: Any, helpers: Any) -> None:
        (row,) = await helpers.query(COUNT)
        await helpers.add_job("other", {})
        seen.append(row["count"])

    return work


@pytest.mark.parametrize("most", [2, 3, 4, 5, 10])
async def test_the_number_is_kept_to_and_everything_works(
    most: int,
    workers: Workers,
    jobs: Jobs,
    connection: Any,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    await workers.start(
        {"work": counting(seen)},
        connection_string=marked(database_url),
        max_pool_size=most,
        concurrency=8,
        poll_interval=0.05,
        crontab="* * * * * work",
    )
    for number in range(20):
        await jobs.add("work", queue="one" if number % 4 == 0 else None)

    async def has_run() -> bool:
        return len(seen) >= 20

    async def has_heartbeat() -> bool:
        alive = f"select count(*) from {SCHEMA}._private_py_workers where backend_pid is not null"
        return await connection.fetchval(alive) == 1

    await until(has_run)
    if most >= 4:
        await until(has_heartbeat)
    assert max(*seen, await connection.fetchval(COUNT)) <= most
    assert ("recovery is off: max_pool_size is" in caplog.text) == (most < 4)
    assert ("cannot listen" in caplog.text) == (most < 3)


@pytest.mark.parametrize("most", [2, 3, 4])
async def test_once_keeps_to_the_number_too(most: int, jobs: Jobs, database_url: str) -> None:
    seen: list[int] = []
    for _ in range(10):
        await jobs.add("work")
    tasks = {"work": counting(seen)}
    await run_once(connection_string=marked(database_url), task_list=tasks, max_pool_size=most, concurrency=4)
    assert len(seen) == 10
    assert max(seen) <= most


@pytest.mark.parametrize("call", [run, run_once])
async def test_a_single_connection_is_refused_with_the_smallest_number_that_will_do(
    call: Any, database_url: str
) -> None:
    with pytest.raises(ConfigError, match="max_pool_size: a worker needs at least 2 database connections"):
        await call(connection_string=database_url, task_list={"work": counting([])}, max_pool_size=1)
