"""Kinds of errors are shown as soon as an error is stored, whether or not a worker has counted it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker import WorkerUtils, make_worker_utils, task
from graphile_worker.cli.main import run_main
from graphile_worker.database.sql import load
from graphile_worker.results import ErrorGroup
from graphile_worker.values.schema_name import SchemaName
from support.working import SCHEMA, Jobs, Workers, until

ERRORS, GROUPS = f"{SCHEMA}._private_py_errors", f"{SCHEMA}._private_py_error_groups"


@task
async def fail(payload: Any) -> None:
    raise ValueError("not today")


@task
async def stumble(payload: Any) -> None:
    raise KeyError("somewhere else")


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers add what they have counted only when they stop."""
    monkeypatch.setattr("graphile_worker.worker.write.recorder.STORE_AFTER", 3600.0)


async def until_stored(jobs: Jobs, count: int) -> None:
    async def is_stored() -> bool:
        return bool(await jobs.connection.fetchval(f"select count(*) from {ERRORS}") == count)

    await until(is_stored)


def rounded(groups: list[ErrorGroup]) -> list[tuple[Any, ...]]:
    """Without the times, which differ by what passes between the write and the count."""
    return [
        (
            *(group.fingerprint, group.task_identifier, group.error_type, group.message, group.place),
            *(group.errors, group.permanent, group.last_job_id, group.first_version, group.last_version),
        )
        for group in groups
    ]


async def test_an_error_is_shown_as_soon_as_it_is_stored(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    runner = await workers.start([fail, stumble], app_version="1.2")
    for _ in range(3):
        await jobs.add("fail", max_attempts=1)
    await until_stored(jobs, 3)
    await jobs.add("stumble", max_attempts=1)
    await until_stored(jobs, 4)
    assert await jobs.connection.fetchval(f"select count(*) from {GROUPS}") == 0
    before = await utils.history.list_error_groups()
    assert [(group.task_identifier, group.errors) for group in before] == [("stumble", 1), ("fail", 3)]
    (alone,) = await utils.history.list_error_groups(task_identifier="fail", limit=1)
    assert rounded([alone]) == rounded(before[1:])
    await runner.stop()
    assert await jobs.connection.fetchval(f"select count(*) from {GROUPS}") == 2
    assert rounded(await utils.history.list_error_groups()) == rounded(before)


async def test_a_known_error_that_occurs_again_is_shown_with_its_time_and_number(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    await jobs.add("fail", max_attempts=1)
    await workers.once([fail], app_version="1.0")
    await jobs.connection.execute(
        f"update {GROUPS} set first_at = first_at - interval '1 day', last_at = last_at - interval '1 day'"
    )
    await jobs.connection.execute(f"update {ERRORS} set failed_at = failed_at - interval '1 day'")
    lately = datetime.now(UTC) - timedelta(hours=1)
    assert await utils.history.list_error_groups(since=lately) == []
    runner = await workers.start([fail], app_version="1.1")
    await jobs.add("fail", max_attempts=1)
    await until_stored(jobs, 2)
    (group,) = await utils.history.list_error_groups(since=lately)
    assert (group.errors, group.permanent, group.first_version, group.last_version) == (2, 2, "1.0", "1.1")
    assert group.first_at < lately < group.last_at
    await runner.stop()
    assert rounded(await utils.history.list_error_groups()) == rounded([group])


async def test_the_command_does_not_say_that_there_are_none(
    jobs: Jobs, workers: Workers, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await workers.start([fail])
    await jobs.add("fail", max_attempts=1)
    await until_stored(jobs, 1)
    status = await asyncio.to_thread(run_main, ["errors", "-c", database_url])
    assert status == 0
    shown = capsys.readouterr().out
    assert "not today" in shown
    assert "No errors." not in shown


async def test_jobs_whose_worker_died_are_a_kind_of_error(utils: WorkerUtils, jobs: Jobs) -> None:
    """Sweeps store the error; no worker counts it."""
    job = await jobs.add("fail", max_attempts=1)
    for row in ("errors", "history"):
        await jobs.connection.execute(
            f"select {SCHEMA}._private_py_add_partition("
            f"'{SCHEMA}._private_py_{row}'::regclass, current_date + day) from generate_series(0, 3) day"
        )
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = max_attempts, last_error = 'its worker was killed'"
    )
    await jobs.connection.execute(
        load("history/keep_recovered", SchemaName()), [job], [None], 86_400.0, SCHEMA, [1]
    )
    (group,) = await utils.history.list_error_groups()
    assert (group.fingerprint, group.error_type, group.message) == (
        "worker-died", "WorkerDied", "its worker was killed",
    )  # fmt: skip
    assert (group.task_identifier, group.errors, group.permanent, group.place) == ("fail", 1, 1, "")
