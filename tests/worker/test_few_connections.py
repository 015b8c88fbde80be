"""`max_pool_size` is respected: with few connections a worker does without some features, and logs that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphile_worker import run, run_once
from graphile_worker.errors import ConfigError
from support.working import SCHEMA, Jobs, Workers, until

NAME = "few connections"
COUNT = f"select count(*) from pg_stat_activity where application_name = '{NAME}'"
"""The open connections of the worker; its pool closes none for minutes."""


def named(database_url: str) -> str:
    return f"{database_url}{'&' if '?' in database_url else '?'}application_name={NAME}"


def counting(counts: list[int]) -> Callable[[Any, Any], Awaitable[None]]:
    """A task that notes how many connections the worker has."""

    async def work(payload: Any, helpers: Any) -> None:
        (row,) = await helpers.query(COUNT)
        await helpers.add_job("other", {})
        counts.append(row["count"])

    return work


@pytest.mark.parametrize("most", [2, 3, 4, 5, 10])
async def test_the_limit_is_respected_and_everything_works(
    most: int,
    workers: Workers,
    jobs: Jobs,
    connection: Any,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts: list[int] = []
    await workers.start(
        {"work": counting(counts)},
        connection_string=named(database_url),
        max_pool_size=most,
        concurrency=8,
        poll_interval=0.05,
        crontab="* * * * * work",
    )
    for number in range(20):
        await jobs.add("work", queue="one" if number % 4 == 0 else None)

    async def has_run() -> bool:
        return len(counts) >= 20

    async def has_heartbeat() -> bool:
        alive = f"select count(*) from {SCHEMA}._private_py_workers where backend_pid is not null"
        return await connection.fetchval(alive) == 1

    await until(has_run)
    if most >= 4:
        await until(has_heartbeat)
    assert max(*counts, await connection.fetchval(COUNT)) <= most
    assert ("recovery is off: max_pool_size is" in caplog.text) == (most < 4)
    assert ("cannot listen" in caplog.text) == (most < 3)


@pytest.mark.parametrize("most", [2, 3, 4])
async def test_a_once_run_respects_the_limit_too(most: int, jobs: Jobs, database_url: str) -> None:
    counts: list[int] = []
    for _ in range(10):
        await jobs.add("work")
    tasks = {"work": counting(counts)}
    await run_once(connection_string=named(database_url), task_list=tasks, max_pool_size=most, concurrency=4)
    assert len(counts) == 10
    assert max(counts) <= most


@pytest.mark.parametrize("call", [run, run_once])
async def test_a_single_connection_is_refused_and_the_error_names_the_minimum(
    call: Any, database_url: str
) -> None:
    with pytest.raises(ConfigError, match="max_pool_size: a worker needs at least 2 database connections"):
        await call(connection_string=database_url, task_list={"work": counting([])}, max_pool_size=1)
