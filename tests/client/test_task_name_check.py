"""Jobs for tasks that no worker knows: the client warns once, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, JobSpec, make_worker_utils, run_once, task
from graphile_worker.client import WorkerUtils, task_name_check
from recovery.dead import Graveyard
from support.working import PATIENCE, SCHEMA, Gate, Workers, until


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """A process that has added no job yet, and what it logs."""
    monkeypatch.setattr(task_name_check, "_checked", {})
    monkeypatch.setattr(task_name_check, "CHECK_WITHIN", PATIENCE)
    monkeypatch.setattr(task_name_check, "CLOSE_WITHIN", PATIENCE)
    with caplog.at_level(logging.WARNING, logger="graphile_worker.client"):
        yield caplog


@pytest.fixture
async def utils(log: Any, database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def said(utils: WorkerUtils, log: Any) -> list[str]:
    """What was logged, once all checks have ended."""
    assert utils._task_name_check is not None
    await asyncio.wait_for(asyncio.gather(*utils._task_name_check._checks), PATIENCE)
    return [record.getMessage() for record in log.records]


@pytest.mark.parametrize(
    "options", [{}, {"job_key": "key"}, {"queue_name": "queue"}, {"flags": ["flag"]}], ids=str
)
async def test_a_name_that_is_new_to_the_database_is_questioned_once(
    utils: WorkerUtils, log: Any, options: Any
) -> None:
    await utils.add_job("typed")
    await said(utils, log)
    log.clear()
    job = await utils.add_job("typd", **options)
    await said(utils, log)
    for _ in range(3):
        await utils.add_job("typd", **options)
    assert await said(utils, log) == [
        f"job {job.id} waits for the task 'typd', which no worker has run yet; did you mean 'typed'?"
    ]


async def test_the_first_and_the_last_of_many_are_checked(utils: WorkerUtils, log: Any) -> None:
    jobs = await utils.add_jobs([JobSpec("typed"), JobSpec("typed"), JobSpec("other")])
    assert await utils.add_jobs([]) == []
    assert sorted(await said(utils, log)) == [
        f"job {jobs[0].id} waits for the task 'typed', which no worker has run yet",
        f"job {jobs[2].id} waits for the task 'other', which no worker has run yet",
    ]


async def test_without_a_similar_name_it_is_only_said(utils: WorkerUtils, log: Any) -> None:
    await utils.add_job(JobSpec("first"))
    assert await said(utils, log) == ["job 1 waits for the task 'first', which no worker has run yet"]


async def test_a_name_from_before_is_known(utils: WorkerUtils, log: Any, connection: Any) -> None:
    await connection.execute(f"select {SCHEMA}.add_job('seen'), {SCHEMA}.add_job('seem')")
    await utils.add_job("seen")
    await utils.add_job("seen", job_key="key")
    assert await said(utils, log) == []


async def test_the_name_of_a_running_worker_is_known(utils: WorkerUtils, workers: Workers, log: Any) -> None:
    gate = Gate()
    await workers.start({"work": gate})
    await utils.add_job("work")
    assert await said(utils, log) == []
    await gate.until_inside(1)
    gate.open()


async def test_that_of_a_dead_worker_is_not(utils: WorkerUtils, log: Any, connection: Any) -> None:
    await Graveyard(connection).bury("pool-dead")
    await connection.execute(f"update {SCHEMA}._private_py_workers set tasks = '{{typd}}'")
    await utils.add_job("typd")
    assert await said(utils, log) == ["job 1 waits for the task 'typd', which no worker has run yet"]


async def test_one_from_before_that_resembles_a_running_workers_task_may_be_misspelt(
    utils: WorkerUtils, workers: Workers, log: Any, connection: Any
) -> None:
    await connection.execute(f"select {SCHEMA}.add_job('typd')")
    await workers.start({"typed": Gate()})
    await utils.add_job("typd")
    assert await said(utils, log) == [
        "job 2 waits for the task 'typd', which no running worker has; did you mean 'typed'?"
    ]


async def test_a_task_object_is_not_misspelt(utils: WorkerUtils, log: Any) -> None:
    @task
    async def fresh() -> None: ...

    await utils.add_job(fresh, None)
    await utils.add_job("fresh")
    assert await said(utils, log) == []


async def test_nothing_is_asked_in_the_callers_transaction(
    utils: WorkerUtils, log: Any, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    queries: list[str] = []
    try:
        async with connection.transaction():
            connection.add_query_logger(lambda record: queries.append(record.query))
            await utils.add_job("known", connection=connection)
            # It is not committed, so the check cannot see the job.
            assert await said(utils, log) == ["job 1 waits for the task 'known', which no worker has run yet"]
            await utils.add_job("known", connection=connection)
        assert [".add_job(" in query for query in queries] == [True, True]
    finally:
        await connection.close(timeout=PATIENCE)


async def test_nor_on_a_single_connection_of_the_caller(log: Any, database_url: str) -> None:
    async def work(payload: Any, helpers: JobHelpers) -> None:
        await helpers.add_job("typd")

    connection: Any = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"select {SCHEMA}.add_job('work')")
        await run_once(pg_pool=connection, task_list={"work": work}, handle_signals=False)
    finally:
        await connection.close(timeout=PATIENCE)
    assert log.text == ""
    assert task_name_check._checked == {SCHEMA: set()}


async def test_a_short_lived_client_says_it_before_it_closes(log: Any, database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:
        await utils.add_job("typd")
    assert "job 1 waits for the task 'typd'" in log.text


async def test_adding_does_not_wait_for_the_check_and_a_failed_one_is_not_heard(
    log: Any, database_url: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_name_check, "CHECK_WITHIN", 0.2)
    log.set_level(logging.DEBUG, logger="graphile_worker.client")
    async with connection.transaction():
        await connection.execute(f"lock table {SCHEMA}._private_py_workers in access exclusive mode")
        async with make_worker_utils(connection_string=database_url) as utils:
            assert (await asyncio.wait_for(utils.add_job("typd"), PATIENCE)).id == 1
            await until(lambda: "could not check whether the task 'typd' is known" in log.text)
    assert {record.levelname for record in log.records} == {"DEBUG"}


async def test_a_client_that_is_released_does_not_wait_for_long(
    log: Any, database_url: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_name_check, "CLOSE_WITHIN", 0.05)
    async with connection.transaction():
        await connection.execute(f"lock table {SCHEMA}._private_py_workers in access exclusive mode")
        async with asyncio.timeout(PATIENCE), make_worker_utils(connection_string=database_url) as utils:
            await utils.add_job("typd")
    assert log.text == ""


async def test_without_the_table_of_workers_the_names_in_the_database_count(
    utils: WorkerUtils, log: Any, connection: Any
) -> None:
    await connection.execute(f"drop table {SCHEMA}._private_py_workers")
    await connection.execute(f"select {SCHEMA}.add_job('typed')")
    await utils.add_job("typed")
    await utils.add_job("typd")
    assert await said(utils, log) == [
        "job 3 waits for the task 'typd', which no worker has run yet; did you mean 'typed'?"
    ]
