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


@pytest.fixture
async def registered(workers: Workers) -> None:
    """A worker with the task `typed` has run, and is gone."""
    await workers.once({"typed": print})


async def said(utils: WorkerUtils, log: Any) -> list[str]:
    """What was logged, once all checks have ended."""
    assert utils._task_name_check is not None
    await asyncio.wait_for(asyncio.gather(*utils._task_name_check._checks), PATIENCE)
    return [record.getMessage() for record in log.records]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "options", [{}, {"job_key": "key"}, {"queue_name": "queue"}, {"flags": ["flag"]}], ids=str
)
async def test_a_name_that_no_worker_has_registered_is_questioned_once(
    utils: WorkerUtils, log: Any, options: Any
) -> None:
    job = await utils.add_job("typd", **options)
    await said(utils, log)
    for _ in range(3):
        await utils.add_job("typd", **options)
    assert await said(utils, log) == [
        f"job {job.id} waits for the task 'typd', which no worker has registered; did you mean 'typed'?"
    ]


@pytest.mark.usefixtures("registered")
async def test_the_first_and_the_last_of_many_are_checked(utils: WorkerUtils, log: Any) -> None:
    jobs = await utils.add_jobs([JobSpec("first"), JobSpec("first"), JobSpec("other")])
    assert await utils.add_jobs([]) == []
    assert sorted(await said(utils, log)) == [
        f"job {jobs[0].id} waits for the task 'first', which no worker has registered",
        f"job {jobs[2].id} waits for the task 'other', which no worker has registered",
    ]


@pytest.mark.usefixtures("registered")
async def test_a_misspelt_name_is_never_suggested(utils: WorkerUtils, log: Any, connection: Any) -> None:
    await connection.execute(f"select {SCHEMA}.add_job('chrage')")
    await utils.add_job("charge")
    assert await said(utils, log) == ["job 2 waits for the task 'charge', which no worker has registered"]


async def test_before_the_first_worker_nothing_is_said_and_the_name_is_checked_later(
    utils: WorkerUtils, workers: Workers, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_name_check, "CHECK_AGAIN_AFTER", 0.0)
    await utils.add_job("typd")
    assert await said(utils, log) == []
    await until(lambda: "typd" not in task_name_check.checked_names(utils.schema))
    await workers.once({"typed": print})
    job = await utils.add_job("typd")
    assert await said(utils, log) == [
        f"job {job.id} waits for the task 'typd', which no worker has registered; did you mean 'typed'?"
    ]


@pytest.mark.usefixtures("registered")
async def test_a_task_of_another_runtime_is_known_by_its_jobs(
    utils: WorkerUtils, log: Any, connection: Any
) -> None:
    """Node has taken the jobs of one, and failed one of the other; those of the third wait."""
    for name in ("taken", "failing", "waiting"):
        await connection.execute(f"select {SCHEMA}.add_job($1)", name)
    await connection.execute(f"delete from {SCHEMA}._private_jobs where id = 1")
    await connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = case id when 2 then 1 else 0 end, "
        "run_at = now() - interval '1 hour', created_at = now() - interval '1 hour'"
    )
    for name in ("taken", "failing", "waiting"):
        await utils.add_job(name)
    assert await said(utils, log) == ["job 6 waits for the task 'waiting', which no worker has registered"]


async def test_a_task_that_another_runtime_has_attempted_may_be_meant(
    utils: WorkerUtils, log: Any, connection: Any
) -> None:
    await connection.execute(f"select {SCHEMA}.add_job('typed')")
    await connection.execute(f"update {SCHEMA}._private_jobs set attempts = 1")
    await utils.add_job("typd")
    assert await said(utils, log) == [
        "job 2 waits for the task 'typd', which no worker has registered; did you mean 'typed'?"
    ]


@pytest.mark.usefixtures("registered")
async def test_the_task_of_a_worker_that_is_not_running_is_known(utils: WorkerUtils, log: Any) -> None:
    await utils.add_job("typed")
    assert await said(utils, log) == []


async def test_the_name_of_a_running_worker_is_known(utils: WorkerUtils, workers: Workers, log: Any) -> None:
    gate = Gate()
    await workers.start({"work": gate})
    await utils.add_job("work")
    assert await said(utils, log) == []
    await gate.until_inside(1)
    gate.open()


async def test_one_that_was_registered_before_may_be_misspelt_now(
    utils: WorkerUtils, workers: Workers, log: Any
) -> None:
    await workers.once({"typd": print})
    await workers.start({"typed": Gate()})
    await utils.add_job("typd")
    assert await said(utils, log) == [
        "job 1 waits for the task 'typd', which no running worker has; did you mean 'typed'?"
    ]


async def test_one_from_before_that_resembles_a_running_workers_task_may_be_misspelt(
    utils: WorkerUtils, workers: Workers, log: Any, connection: Any
) -> None:
    await connection.execute(f"select {SCHEMA}.add_job('typd')")
    await workers.start({"typed": Gate()})
    await utils.add_job("typd")
    assert await said(utils, log) == [
        "job 2 waits for the task 'typd', which no worker has registered; did you mean 'typed'?"
    ]


@pytest.mark.usefixtures("registered")
async def test_a_task_object_is_not_misspelt(utils: WorkerUtils, log: Any) -> None:
    @task
    async def fresh() -> None: ...

    await utils.add_job(fresh, None)
    await utils.add_job("fresh")
    assert await said(utils, log) == []


@pytest.mark.usefixtures("registered")
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
            assert await said(utils, log) == [
                "job 1 waits for the task 'known', which no worker has registered"
            ]
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


@pytest.mark.usefixtures("registered")
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


@pytest.mark.usefixtures("registered")
async def test_without_the_table_of_workers_the_earlier_names_count(
    utils: WorkerUtils, log: Any, connection: Any
) -> None:
    await connection.execute(f"drop table {SCHEMA}._private_py_workers")
    await utils.add_job("typed")
    await utils.add_job("typd")
    assert await said(utils, log) == [
        "job 2 waits for the task 'typd', which no worker has registered; did you mean 'typed'?"
    ]


async def test_without_our_tables_nothing_is_said(utils: WorkerUtils, log: Any, connection: Any) -> None:
    await connection.execute(
        f"drop table {SCHEMA}._private_py_workers, {SCHEMA}._private_py_task_names cascade"
    )
    await utils.add_job("typd")
    assert await said(utils, log) == []
