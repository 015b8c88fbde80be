"""A job that has neither key nor queue: the procedure has the effect of the function, or makes way for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from graphile_worker.client import WorkerUtils, make_worker_utils

ALL = "select * from graphile_worker.jobs order by id"
PROCEDURE = "graphile_worker._private_py_add_plain_job"
LATER = datetime(2200, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a payload": {"payload": {"a": [1, None, "ü"]}},
    "a time": {"run_at": LATER},
    "a delay": {"run_at": timedelta(days=1)},
    "everything": {
        "payload": 1,
        "run_at": LATER,
        "max_attempts": 3,
        "priority": -7,
        "flags": ["b", "aa", "b"],
    },
    "no flags": {"flags": []},
}


async def watched(utils: WorkerUtils, statements: list[str]) -> None:
    async with utils.pool.acquire() as session:
        session.add_query_logger(lambda record: statements.append(record.query))


def called(statements: list[str]) -> list[bool]:
    """For each statement that adds a job whether it was the procedure's."""
    adds = [statement for statement in statements if statement.startswith("-- Add")]
    return [PROCEDURE.partition(".")[2] in statement for statement in adds]


@pytest.fixture
async def one_session(database_url: str, connection: Any) -> Any:
    """A client with a single session, and the statements that it sends."""
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:
        await utils.add_job("note")  # from now on the task has a row
        statements: list[str] = []
        await watched(utils, statements)
        yield utils, statements


@pytest.mark.parametrize("given", OPTIONS)
async def test_the_row_is_the_one_that_the_function_would_make(
    one_session: tuple[WorkerUtils, list[str]], connection: Any, given: str
) -> None:
    utils, statements = one_session
    options = dict(OPTIONS[given])
    payload = options.pop("payload", None)
    quick = await utils.add_job("note", payload, **options)
    assert called(statements) == [True]
    async with connection.transaction():
        slow = await utils.add_job("note", payload, connection=connection, **options)
    _, first, second = await connection.fetch(ALL)
    own = {"id", "run_at", "created_at", "updated_at"}
    assert {key: value for key, value in first.items() if key not in own} == {
        key: value for key, value in second.items() if key not in own
    }
    times = ("raw_run_at", "raw_created_at", "raw_updated_at")
    fields = [name for name in quick.__struct_fields__ if name not in ("id", *times)]
    assert [getattr(quick, name) for name in fields] == [getattr(slow, name) for name in fields]
    assert (quick.id, quick.run_at, quick.created_at) == (first["id"], first["run_at"], first["created_at"])
    assert (first["run_at"] - first["created_at"]) == (second["run_at"] - second["created_at"]) or (
        first["run_at"] == second["run_at"] == LATER
    )


async def test_workers_hear_of_it(one_session: tuple[WorkerUtils, list[str]], database_url: str) -> None:
    utils, _ = one_session
    listener = await asyncpg.connect(database_url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    try:
        await listener.add_listener("jobs:insert", lambda *message: heard.put_nowait(message[-1]))
        await utils.add_job("note")
        message = msgspec.json.decode(await asyncio.wait_for(heard.get(), 30))
        assert message["count"] == 1
    finally:
        await listener.close(timeout=30)


async def test_inside_a_transaction_the_job_belongs_to_it(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    utils, _ = one_session
    transaction = connection.transaction()
    await transaction.start()
    await utils.add_job("note", {"n": 1}, connection=connection)
    await transaction.rollback()
    assert len(await connection.fetch(ALL)) == 1


async def test_jobs_with_a_key_or_a_queue_go_the_other_way(
    one_session: tuple[WorkerUtils, list[str]],
) -> None:
    utils, statements = one_session
    await utils.add_job("note", job_key="key")
    await utils.add_job("note", queue_name="queue")
    assert called(statements) == [False, False]


async def test_a_task_that_is_new_gets_its_row(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    utils, statements = one_session
    await utils.add_job("new")
    await utils.add_job("new")
    assert called(statements) == [True, False, True]
    assert [row["task_identifier"] for row in await connection.fetch(ALL)] == ["note", "new", "new"]


@pytest.mark.parametrize(
    "change", [f"drop procedure {PROCEDURE}", f"revoke execute on procedure {PROCEDURE} from public"]
)
async def test_without_the_procedure_the_function_is_used(
    database_url: str, connection: Any, change: str
) -> None:
    """As in a schema that another runtime installed, or for a role that may not call it."""
    await connection.execute("drop role if exists add_only")
    await connection.execute("create role add_only login")
    try:
        await connection.execute("grant usage on schema graphile_worker to add_only")
        await connection.execute("grant all on all tables in schema graphile_worker to add_only")
        for table in ("_private_jobs", "_private_tasks"):
            await connection.execute(f"alter table graphile_worker.{table} disable row level security")
        await connection.execute(change)
        async with (
            asyncpg.create_pool(
                database_url,
                min_size=0,
                max_size=1,
                init=lambda session: session.execute("set role add_only"),
            ) as pool,
            make_worker_utils(pg_pool=pool) as utils,
        ):
            statements: list[str] = []
            await utils.add_job("note")
            await watched(utils, statements)
            await utils.add_job("note")
            assert called(statements) == [False]  # it was asked for once
        assert len(await connection.fetch(ALL)) == 2
    finally:
        await connection.execute("drop owned by add_only")
        await connection.execute("drop role add_only")


async def test_another_error_is_the_callers(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    utils, statements = one_session
    await connection.execute(
        "alter table graphile_worker._private_jobs add constraint few check (priority < 5)"
    )
    with pytest.raises(asyncpg.CheckViolationError, match="few"):
        await utils.add_job("note", priority=6)
    assert called(statements) == [True]
