"""The fast path for a job with neither key nor queue has the effect of the function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.database.statements.add import CONTENDED_ADDS
from support.working import PATIENCE

ALL = "select * from graphile_worker.jobs order by id"
PROCEDURE = "graphile_worker._private_py_add_plain_job"
LOCK = 7231964501297834
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
    session: Any
    async with utils.pool.acquire() as session:
        session.add_query_logger(lambda record: statements.append(record.query))


def kinds(statements: list[str]) -> list[str]:
    """What each statement does that adds a job or notifies workers."""
    beginnings = {"with added": "insert", "call ": "procedure", "select pg_notify": "notify"}
    found = []
    for statement in statements:
        if ".add_job(" in statement:
            found.append("function")
        found += [kind for beginning, kind in beginnings.items() if statement.startswith(beginning)]
    return found


@asynccontextmanager
async def another_client_adds(connection: Any) -> AsyncIterator[None]:
    """Holds the lock that a client takes before it commits a notification."""
    await connection.execute(f"select pg_advisory_lock({LOCK})")
    try:
        yield
    finally:
        await connection.execute(f"select pg_advisory_unlock({LOCK})")


@pytest.fixture
async def one_session(database_url: str, connection: Any) -> Any:
    """A client with a single session, and the statements that it sends."""
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:
        await utils.add_job("note")  # from now on the task has a row
        statements: list[str] = []
        await watched(utils, statements)
        yield utils, statements


@pytest.mark.parametrize("kind", ["insert", "procedure"])
@pytest.mark.parametrize("given", OPTIONS)
async def test_the_row_is_the_one_that_the_function_would_make(
    one_session: tuple[WorkerUtils, list[str]], connection: Any, given: str, kind: str
) -> None:
    utils, statements = one_session
    options = dict(OPTIONS[given])
    payload = options.pop("payload", None)
    if kind == "procedure":
        async with another_client_adds(connection):
            await utils.add_job("note")
        await connection.execute("delete from graphile_worker._private_jobs where id > 1")
        statements.clear()
    quick = await utils.add_job("note", payload, **options)
    assert kinds(statements) == [kind]
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


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("contended", [False, True])
async def test_workers_are_notified(
    one_session: tuple[WorkerUtils, list[str]], connection: Any, database_url: str, contended: bool, jobs: int
) -> None:
    """Once for each job, with and without contention."""
    utils, statements = one_session
    listener = await asyncpg.connect(database_url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    try:
        await listener.add_listener("jobs:insert", lambda *message: heard.put_nowait(message[-1]))
        async with another_client_adds(connection) if contended else nullcontext():
            for _ in range(jobs):
                await utils.add_job("note")
        await connection.execute("notify \"jobs:insert\", 'the last'")
        messages = []
        while (message := await asyncio.wait_for(heard.get(), PATIENCE)) != "the last":
            messages.append(msgspec.json.decode(message)["count"])
    finally:
        await listener.close(timeout=PATIENCE)
    assert messages == [1] * jobs
    first = ["insert", "notify"] if contended else ["insert"]
    assert kinds(statements) == first + ["procedure" if contended else "insert"] * (jobs - 1)


async def test_after_contention_one_statement_does_it_again(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    utils, statements = one_session
    async with another_client_adds(connection):
        await utils.add_job("note")
    for _ in range(CONTENDED_ADDS + 1):
        await utils.add_job("note")
    assert kinds(statements) == ["insert", "notify", *["procedure"] * CONTENDED_ADDS, "insert"]


async def test_inside_a_transaction_the_job_belongs_to_it(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    utils, _ = one_session
    transaction = connection.transaction()
    await transaction.start()
    await utils.add_job("note", {"n": 1}, connection=connection)
    await transaction.rollback()
    assert len(await connection.fetch(ALL)) == 1


async def test_jobs_with_a_key_or_a_queue_use_the_function(
    one_session: tuple[WorkerUtils, list[str]],
) -> None:
    utils, statements = one_session
    await utils.add_job("note", job_key="key")
    await utils.add_job("note", queue_name="queue")
    assert kinds(statements) == ["function", "function"]


async def test_a_task_that_is_new_gets_its_row(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    utils, statements = one_session
    await utils.add_job("new")
    await utils.add_job("new")
    assert kinds(statements) == ["insert", "function", "insert"]
    assert [row["task_identifier"] for row in await connection.fetch(ALL)] == ["note", "new", "new"]


async def test_without_the_procedure_two_statements_do_it(
    one_session: tuple[WorkerUtils, list[str]], connection: Any
) -> None:
    """As in a schema that another runtime installed."""
    utils, statements = one_session
    await connection.execute(f"drop procedure {PROCEDURE}")
    async with another_client_adds(connection):
        for _ in range(3):
            await utils.add_job("note")
    in_two = ["insert", "notify"]
    assert kinds(statements) == [*in_two, "procedure", "function", *in_two]  # it was asked for once
    assert len(await connection.fetch(ALL)) == 4


async def test_a_role_that_may_not_insert_uses_the_function(database_url: str, connection: Any) -> None:
    await connection.execute("drop role if exists add_only")
    await connection.execute("create role add_only login")
    try:
        await connection.execute("grant usage on schema graphile_worker to add_only")
        await connection.execute(
            "alter function graphile_worker.add_job(text, json, text, timestamptz, integer, text, integer, "
            "text[], text) security definer"
        )
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
            assert kinds(statements) == ["function"]  # the other was tried once
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
    assert kinds(statements) == ["insert"]
