"""Jobs that a transaction holds for long: our own functions stop waiting and say so.

A worker whose event loop is blocked cannot end its transaction. To others it looks like any transaction that
has locked the row, so most tests use one of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from graphile_worker import WorkerUtils, make_sync_worker_utils, make_worker_utils
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.database.statements import manage_jobs
from graphile_worker.errors import JobBusyError
from support.command_line import COMMAND, clean_environment
from support.holding import HoldingWorker
from support.working import PATIENCE, SCHEMA, Jobs, until

CALLS: dict[str, Callable[[WorkerUtils, int], Awaitable[Any]]] = {
    "complete_jobs": lambda utils, id: utils.complete_jobs([id]),
    "permanently_fail_jobs": lambda utils, id: utils.permanently_fail_jobs([id], "no"),
    "reschedule_jobs": lambda utils, id: utils.reschedule_jobs([id], priority=1),
    "cancel_jobs": lambda utils, id: utils.cancel_jobs([id]),
    "jobs.cancel": lambda utils, id: utils.jobs.cancel(job_key="k"),
    "remove_job": lambda utils, id: utils.remove_job("k"),
}


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends the transactions of these tests: who waits for them need not wait for long."""
    monkeypatch.setattr(manage_jobs, "MOST", "200ms")


@asynccontextmanager
async def held(database_url: str, job_id: int) -> AsyncIterator[Any]:
    """A transaction that has locked the row, as a fetch of a held batch does."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", job_id)
            yield connection
    finally:
        await connection.close(timeout=PATIENCE)


def impatient(database_url: str) -> str:
    """The URL with a short `lock_timeout`."""
    return f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20lock_timeout%3D100ms"


async def run_command(database_url: str, *arguments: object) -> tuple[int | None, str, str]:
    """The command as a separate process: its exit status, its output and what it said beside it."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, arguments),
        env=clean_environment(DATABASE_URL=database_url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_names_a_held_job_says_that_it_is_busy(
    name: str, utils: WorkerUtils, jobs: Jobs, database_url: str
) -> None:
    job_id = await jobs.add("a", key="k")
    before = dict(await jobs.one())
    async with held(database_url, job_id), asyncio.timeout(PATIENCE):
        with pytest.raises(JobBusyError, match="busy: another transaction, usually that of") as caught:
            await CALLS[name](utils, job_id)
    assert caught.value.sqlstate == "55P03"
    assert dict(await jobs.one()) == before
    await CALLS[name](utils, job_id)  # it succeeds when the transaction has ended


async def test_the_wait_is_long_enough_for_a_worker_that_is_not_blocked(
    utils: WorkerUtils, jobs: Jobs, database_url: str
) -> None:
    job_id = await jobs.add("a")
    async with held(database_url, job_id), asyncio.timeout(PATIENCE):
        began = time.monotonic()
        with pytest.raises(JobBusyError):
            await utils.complete_jobs([job_id])
        assert time.monotonic() - began >= 4.9


async def test_a_shorter_timeout_of_the_session_applies(
    jobs: Jobs, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_jobs, "MOST", "10min")
    job_id = await jobs.add("a")
    url = impatient(database_url)
    async with make_worker_utils(connection_string=url) as utils, held(database_url, job_id):
        with pytest.raises(JobBusyError):
            async with asyncio.timeout(PATIENCE):
                await utils.complete_jobs([job_id])


@pytest.mark.usefixtures("quickly")
async def test_the_callers_transaction_goes_on(utils: WorkerUtils, jobs: Jobs, database_url: str) -> None:
    """What it did before is kept, and its own statements wait as they did before."""
    job_id, free = await jobs.add("a"), await jobs.add("b")
    connection = jobs.connection
    await connection.execute("set lock_timeout = '7min'")
    async with held(database_url, job_id), connection.transaction():
        await connection.execute("create table mine (n integer)")
        with pytest.raises(JobBusyError):
            await utils.complete_jobs([job_id], connection=connection)
        assert await connection.fetchval("show lock_timeout") == "7min"
        await utils.complete_jobs([free], connection=connection)
        assert await connection.fetchval("show lock_timeout") == "7min"
    assert await connection.fetchval("select count(*) from mine") == 0
    assert [row["id"] for row in await jobs.all()] == [job_id]


@pytest.mark.usefixtures("quickly")
async def test_a_blocking_client_raises_it_too(jobs: Jobs, database_url: str) -> None:
    job_id = await jobs.add("a")

    def complete() -> None:
        with make_sync_worker_utils(connection_string=database_url) as utils:
            utils.complete_jobs([job_id])

    async with held(database_url, job_id), asyncio.timeout(PATIENCE):
        with pytest.raises(JobBusyError):
            await asyncio.to_thread(complete)


@pytest.mark.parametrize("command", [["complete"], ["fail"], ["reschedule", "--priority", "1"], ["cancel"]])
async def test_a_command_says_that_the_job_is_busy(command: list[str], jobs: Jobs, database_url: str) -> None:
    job_id = await jobs.add("a")
    async with held(database_url, job_id), asyncio.timeout(PATIENCE):
        status, _, said = await run_command(impatient(database_url), *command, job_id)
    assert status == 1
    assert "busy: another transaction, usually that of a worker running jobs, has locked" in said
    assert "Traceback" not in said
    assert await jobs.count() == 1


async def test_commands_that_only_read_do_not_wait(jobs: Jobs, database_url: str) -> None:
    job_id = await jobs.add("a")
    async with held(database_url, job_id), asyncio.timeout(PATIENCE):
        for command in (["show", job_id], ["list"], ["stats"], ["workers"], ["queues"], ["doctor"]):
            status, shown, said = await run_command(database_url, *command)
            assert status == 0 or command == ["doctor"], said
            if command[0] == "list":
                assert " ready " in shown


async def test_the_dashboard_says_that_the_job_is_busy(jobs: Jobs, database_url: str) -> None:
    job_id = await jobs.add("a")
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://localhost",
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    actions = ("run_now", "retry", "give_up", "delete", "cancel", "add_again")
    try:
        async with client, held(database_url, job_id), asyncio.timeout(PATIENCE):
            for action in actions:
                answer = await client.post("/api/v1/jobs/actions", json={"action": action, "ids": [job_id]})
                assert answer.status_code == 200, answer.text
                (skipped,) = answer.json()["skipped"]
                assert (skipped["id"], skipped["why"]) == (job_id, "busy")
                assert "try again" in skipped["detail"]
            edited = await client.patch(f"/api/v1/jobs/{job_id}", json={"payload": {"n": 1}, "revision": 0})
            assert edited.status_code == 409, edited.text
            assert "has locked its row at the moment" in edited.text
            for page in ("/", "/jobs", f"/jobs/{job_id}", "/workers", "/tasks", "/queues"):
                assert (await client.get(page)).status_code == 200, page
    finally:
        await app.aclose()
    assert (await jobs.one())["id"] == job_id


@pytest.mark.usefixtures("quickly")
async def test_a_worker_whose_event_loop_is_blocked(
    holding: HoldingWorker, jobs: Jobs, database_url: str
) -> None:
    """Its batch stays open until the loop is free; then it is ended, and no job has run twice."""
    await holding.start(hold=3.0)
    ids = await holding.hold()
    url, answers = database_url, []

    def complete() -> None:
        with make_sync_worker_utils(connection_string=url) as utils:
            try:
                utils.complete_jobs(ids)
            except JobBusyError as error:
                answers.append(error)

    # The loop of the test is that of the worker: it is blocked until the call has its answer.
    thread = asyncio.get_running_loop().run_in_executor(None, complete)
    deadline = time.monotonic() + PATIENCE
    while not answers and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(answers) == 1
    await thread

    async def are_locked() -> bool:
        rows = [row for row in await jobs.all() if row["id"] in ids]
        return [row["locked_by"] for row in rows] == [holding.runner.pool_id] * len(ids)

    await until(are_locked)
    await holding.let_end()
    await jobs.until_gone()
    assert sorted(id for id in holding.ran if id in ids) == ids
