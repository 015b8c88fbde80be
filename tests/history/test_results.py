"""What tasks return, whatever it is, and what cannot be stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, make_worker_utils, run_once, task
from graphile_worker.errors import JobFailedError
from support.server import DatabaseServer
from support.working import PATIENCE, SCHEMA, Jobs, Workers, headline, until, workers_of

HISTORY, ERRORS = f"{SCHEMA}._private_py_history", f"{SCHEMA}._private_py_errors"
NUL, LONE_SURROGATE, EURO = "\0", "\ud800", "€"


async def results(connection: Any) -> list[Any]:
    rows = await connection.fetch(f"select result from {HISTORY} order by job_id")
    return [None if row["result"] is None else json.loads(row["result"]) for row in rows]


def returning(value: Any) -> Any:
    @task(keep=True)
    async def step() -> Any:
        return value

    return step


VALUES: list[Any] = [
    [], [1, 2, 3], (1, "two"), {}, {"a": [None]}, 0, False, "", "null", None, "é€😀", 2**63, [[1], [2]],
]  # fmt: skip


async def test_a_result_comes_back_as_it_was(jobs: Jobs, workers: Workers) -> None:
    @task(keep=True)
    async def step(payload: dict[str, int]) -> Any:
        return VALUES[payload["n"]]

    await jobs.add_many("step", len(VALUES))
    await workers.once([step])
    found = await results(jobs.connection)
    assert found == [list(value) if isinstance(value, tuple) else value for value in VALUES]
    assert [type(value) for value in found[5:7]] == [int, bool]


async def test_a_batch_job_has_the_list_that_its_task_returned(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("step", [1, 2])
    await workers.once([returning([10, 20])])
    assert await results(jobs.connection) == [[10, 20]]


async def test_a_batch_job_that_returned_awaitables_has_no_result(jobs: Jobs, workers: Workers) -> None:
    async def item() -> int:
        return 7

    @task(keep=True)
    async def step(payload: Any) -> Any:
        return [item() for _ in payload]

    await jobs.add("step", [1, 2])
    await workers.once([step])
    assert await results(jobs.connection) == [None]


async def test_a_batch_job_ends_when_its_last_item_does(jobs: Jobs, workers: Workers) -> None:
    @task(keep=True, keep_payload=True)
    async def step(payload: Any) -> Any:
        return [ValueError("no") if item == 2 and len(payload) > 1 else item for item in payload]

    await jobs.add("step", [1, 2, 3])
    await workers.once([step])
    assert await results(jobs.connection) == []
    await jobs.make_due()
    await workers.once([step])
    assert await results(jobs.connection) == [[2]]
    assert json.loads(await jobs.connection.fetchval(f"select payload from {HISTORY}")) == [2]
    assert await jobs.connection.fetchval(f"select count(*) from {ERRORS}") == 1


async def test_the_output_of_an_executable_is_not_a_result(
    jobs: Jobs, workers: Workers, tmp_path: Path
) -> None:
    script = tmp_path / "step"
    script.write_text("#!/bin/sh\necho '{\"answer\": 42}'\n")
    script.chmod(0o755)
    await jobs.add("step", flags=["py:keep"])
    await workers.once(None, task_directory=tmp_path)
    assert await results(jobs.connection) == [None]


@pytest.mark.parametrize("others", [0, 20])
async def test_a_result_that_no_database_can_store_fails_its_job_only(
    jobs: Jobs, workers: Workers, others: int
) -> None:
    texts = (NUL, LONE_SURROGATE)

    @task(keep=True)
    async def step(payload: Any) -> Any:
        return f"a{texts[payload['n']]}b" if payload["n"] < len(texts) else "fine"

    await jobs.add_many("step", len(texts) + others, max_attempts=1)
    await workers.once([step], concurrency=4)
    rows = await jobs.all()
    assert ["the result of the task step cannot be kept" in headline(row) for row in rows] == [True, True]
    ends = await jobs.connection.fetch(f"select state, result from {HISTORY} order by job_id")
    assert [end["state"] for end in ends] == [*["failed"] * len(texts), *["completed"] * others]


async def test_an_error_is_kept_whatever_is_in_it(jobs: Jobs, workers: Workers) -> None:
    texts = (NUL, LONE_SURROGATE, EURO)

    @task
    async def step(payload: Any) -> None:
        raise type(f"Odd{EURO}Error", (Exception,), {})(f"a{texts[payload['n']]}b")

    await jobs.add_many("step", len(texts), max_attempts=1)
    await workers.once([step])
    errors = await jobs.connection.fetch(f"select * from {ERRORS}")
    assert [f"Odd{EURO}Error: a" in error["message"] for error in errors] == [True] * len(texts)
    assert await jobs.connection.fetchval(f"select count(*) from {HISTORY}") == len(texts)
    groups = f"select sum(errors) from {SCHEMA}._private_py_error_groups"
    assert await jobs.connection.fetchval(groups) == len(texts)


async def test_a_huge_traceback_is_cut(jobs: Jobs, workers: Workers) -> None:
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("x" * 10_000_000)

    @task
    async def step(payload: Any) -> None:
        try:
            deep(300)
        except ValueError as error:
            raise ExceptionGroup("many", [error] * 500) from error

    await jobs.add("step", max_attempts=1)
    await workers.once([step])
    sizes = await jobs.connection.fetchrow(
        f"select length(message) as message, length(traceback) as traceback from {ERRORS}"
    )
    assert 0 < sizes["traceback"] <= 25_000
    assert sizes["message"] <= 25_000
    assert await jobs.connection.fetchval(f"select length(error) from {HISTORY}") == sizes["message"]


async def test_every_job_may_be_kept_for_a_time_of_its_own(jobs: Jobs, workers: Workers) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}.add_job('step', flags => array['py:keep=' || 3600 + n * 2806]) "
        "from generate_series(1, 500) n"
    )
    # A partition for each day is made, which takes long on a slow machine.
    await workers.once([returning("done")], concurrency=50, timeout=4 * PATIENCE)
    assert await jobs.count() == 0
    assert await results(jobs.connection) == ["done"] * 500
    days = await jobs.connection.fetchval(f"select count(distinct expires_on) from {HISTORY}")
    assert 15 <= days <= 19


async def test_a_key_that_is_used_again_while_its_job_runs(jobs: Jobs, workers: Workers) -> None:
    """Each run has an end of its own, or the job none: a replaced job that failed left only its error."""

    @task(keep=True)
    async def step(payload: Any) -> Any:
        if payload["n"] < 3:
            await jobs.add("step", {"n": payload["n"] + 1}, key="k")
        return payload["n"]

    await jobs.add("step", {"n": 0}, key="k")
    await workers.once([step])
    assert await results(jobs.connection) == [0, 1, 2, 3]


# -- the caller's transaction --------------------------------------------------------------------------------


async def partitions(connection: Any) -> Any:
    return await connection.fetchval(
        f"select count(*) from pg_inherits where inhparent in ('{HISTORY}'::regclass, '{ERRORS}'::regclass)"
    )


async def test_a_run_in_a_transaction_makes_only_the_partitions_that_it_needs(
    jobs: Jobs, workers: Workers
) -> None:
    """Until the transaction ends, others would wait for these locks, even when they start."""
    transaction = jobs.connection.transaction()
    await transaction.start()
    await jobs.add("step", max_attempts=1)

    async def step(payload: Any) -> int:
        return 1

    async with asyncio.timeout(PATIENCE):
        await run_once(pg_pool=jobs.connection, task_list={"step": step}, handle_signals=False)
    assert await partitions(jobs.connection) == 0
    await workers.start({"other": step})  # not held up
    await jobs.add("step", flags=["py:keep"])
    async with asyncio.timeout(PATIENCE):
        await run_once(pg_pool=jobs.connection, task_list={"step": step}, handle_signals=False)
    assert await results(jobs.connection) == [1]
    await transaction.rollback()
    assert await results(jobs.connection) == []


# -- databases with another encoding -------------------------------------------------------------------------


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
async def narrow(request: pytest.FixtureRequest, server: DatabaseServer) -> AsyncIterator[tuple[str, Any]]:
    """A database that is not UTF-8: its URL and a connection."""
    name = f"{server.prefix}narrow"
    admin = await asyncpg.connect(server.admin_url)
    provider = "locale_provider libc" if server.major >= 15 else ""
    try:
        await admin.execute(
            f"create database \"{name}\" template template0 encoding '{request.param}' {provider} "
            "lc_collate 'C' lc_ctype 'C'"
        )
        connection = await asyncpg.connect(server.url(name))
        try:
            yield server.url(name), connection
        finally:
            await connection.close()
            server.drop_database(name)
    finally:
        await admin.close()


async def test_results_errors_and_progress_in_a_database_that_is_not_utf8(narrow: tuple[str, Any]) -> None:
    url, connection = narrow
    seen = asyncio.Event()

    @task("step ä", keep=True)
    async def step(payload: Any, helpers: JobHelpers) -> Any:
        await helpers.progress(0.5, f"{EURO} 5", data={"price": f"{EURO} 5"})
        if payload["n"] == 0:
            await seen.wait()
        if payload["n"] == 1:
            raise ValueError(f"{EURO} 5")
        return f"{EURO} 5" if payload["n"] == 2 else "fünf"

    async with make_worker_utils(connection_string=url) as utils:
        await utils.migrate()
        async for workers in workers_of(url):
            handles = [
                await utils.add_job(step.identifier, {"n": n}, keep=True, max_attempts=1) for n in range(3)
            ]
            await workers.start([step], concurrency=3)

            async def has_progress() -> bool:
                return bool(await connection.fetchval(f"select count(*) from {SCHEMA}._private_py_progress"))

            await until(has_progress)
            seen.set()
            assert await handles[0].result(timeout=PATIENCE) == "fünf"
            with pytest.raises(JobFailedError, match="ValueError"):
                await handles[1].result(timeout=PATIENCE)
            encoding = await connection.fetchval("show server_encoding")
            if encoding == "SQL_ASCII":  # stores any bytes
                assert await handles[2].result(timeout=PATIENCE) == f"{EURO} 5"
            else:
                with pytest.raises(JobFailedError, match="Its outcome could not be written"):
                    await handles[2].result(timeout=PATIENCE)
            errors = await utils.history.list_errors()
            assert {error.task_identifier for error in errors} == {step.identifier}
