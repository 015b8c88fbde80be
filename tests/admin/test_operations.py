"""Operations: changes to all jobs that match a filter."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from admin.conftest import client_of
from faults.scene import own_server, stop_server
from graphile_worker import JobSpec, WorkerUtils, make_worker_utils
from graphile_worker.admin import AdminApp, admin_app, everyone_may
from graphile_worker.admin.database import Database
from graphile_worker.admin.operations.queries import LATE, LEASE
from graphile_worker.admin.operations.runner import MOST_RETRIES, step
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.database.statements.job_filter import JobFilter
from support.working import PATIENCE, until

SCHEMA = "graphile_worker"


async def add_failed(utils: WorkerUtils, number: int, task: str = "a") -> list[int]:
    jobs = await utils.add_jobs([JobSpec(task, {"n": n}, max_attempts=3) for n in range(number)])
    ids = [job.id for job in jobs]
    await utils.permanently_fail_jobs(ids, "boom")
    return ids


async def operate(http: httpx.AsyncClient, **body: Any) -> Any:
    answer = await http.post("/api/v1/operations", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ended(http: httpx.AsyncClient, operation_id: int) -> Any:
    """The operation, once it has ended."""
    found: Any = None

    async def has_ended() -> bool:
        nonlocal found
        found = (await http.get(f"/api/v1/operations/{operation_id}")).json()
        return found["finished_at"] is not None

    await until(has_ended, every=0.05)
    return found


async def count(utils: WorkerUtils, **filter: Any) -> int:
    return len(await utils.jobs.list(JobFilter(**filter, limit=10_000)))


async def test_retry_everything_that_failed(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    """The dry run says how many; more than 1,000 need the number; jobs added later are left out."""
    ids = await add_failed(utils, 1_200)
    wanted = {"action": "retry", "filter": "state:failed task:a"}
    found = await operate(http, **wanted, dry_run=True)
    assert found["count"] == {"value": 1_200, "kind": "exact"}
    assert [job["id"] for job in found["examples"]] == ids[:5]
    assert (found["needs_confirmation"], found["can_undo"]) == (True, True)
    refused = await http.post("/api/v1/operations", json=wanted)
    assert (refused.status_code, refused.json()["count"]) == (409, 1_200)
    wrong = await http.post("/api/v1/operations", json={**wanted, "confirm": 12})
    assert wrong.status_code == 409
    begun = await operate(http, **wanted, confirm=1_200)
    done = await ended(http, begun["id"])
    assert (done["state"], done["changed"], done["skipped"]) == ("done", 1_200, 0)
    assert await count(utils, state="failed") == 0
    assert await count(utils, state="ready") == 1_200

    undone = (await http.post(f"/api/v1/audit/{done['undo']}/undo")).json()
    again = await ended(http, undone["operation_id"])  # more than 1,000: an operation of its own
    assert (again["state"], again["changed"]) == ("done", 1_200)
    assert await count(utils, state="failed") == 1_200
    job = await utils.jobs.get(ids[0])
    assert job is not None
    assert (job.last_error, job.attempts) == ("boom", 3)


async def test_stop_halfway(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    await add_failed(utils, 900)  # minutes of work at this rate, however late it is stopped
    begun = await operate(http, action="delete", filter="state:failed", rate=5)

    async def has_begun() -> bool:
        return (await http.get(f"/api/v1/operations/{begun['id']}")).json()["changed"] >= 5

    await until(has_begun, every=0.05)
    await http.post(f"/api/v1/operations/{begun['id']}/stop")
    done = await ended(http, begun["id"])
    assert done["state"] == "stopped"
    assert 5 <= done["changed"] < 900
    assert await count(utils, state="failed") == 900 - done["changed"]
    again = await http.post(f"/api/v1/operations/{begun['id']}/stop")
    assert again.status_code == 409


async def test_a_restarted_dashboard_goes_on(database_url: str, utils: WorkerUtils, connection: Any) -> None:
    await add_failed(utils, 900)  # far more than the first one can do at this rate
    first = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(first) as http:
        begun = await operate(http, action="retry", filter="state:failed", rate=10)
    await first.aclose()
    assert await count(utils, state="failed") > 0
    await connection.execute(f"update {SCHEMA}._private_py_operations set rate = null")
    second = admin_app(connection_string=database_url, authorize=everyone_may)
    try:
        async with client_of(second) as http:
            done = await ended(http, begun["id"])
    finally:
        await second.aclose()
    assert (done["state"], done["changed"]) == ("done", 900)


async def test_two_dashboards_never_carry_out_the_same_operation(
    database_url: str, utils: WorkerUtils, connection: Any
) -> None:
    """Each of them believes that it has the operation; the row knows better."""
    ids = await add_failed(utils, 40)
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(app) as http:
        begun = await operate(http, action="add_again", filter="state:failed", rate=4)
    await app.aclose()
    owner, thief = (Database(connection_string=database_url) for _ in range(2))
    await connection.execute(
        f"update {SCHEMA}._private_py_operations "
        "set runner = 'owner', lease_until = now() + interval '1 hour'"
    )
    try:
        made = await asyncio.gather(
            *(step(owner, begun["id"], "owner") for _ in range(4)),
            *(step(thief, begun["id"], "thief") for _ in range(4)),
            return_exceptions=True,
        )
    finally:
        await owner.aclose()
        await thief.aclose()
    assert made[4:] == [None] * 4
    added = await connection.fetch(
        f"select payload ->> 'n' as n, count(*) from {SCHEMA}._private_jobs group by 1 having count(*) > 2"
    )
    assert added == []  # no job was added twice
    assert await count(utils) <= len(ids) * 2


async def test_a_lost_lease_is_taken_over(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    await add_failed(utils, 3)
    begun = await operate(http, action="retry", filter="state:failed")
    await ended(http, begun["id"])
    await connection.execute(
        f"update {SCHEMA}._private_py_operations set finished_at = null, state = 'running', last_id = 0, "
        "runner = 'gone', lease_until = now() - interval '1 second'"
    )
    found = (await http.get(f"/api/v1/operations/{begun['id']}")).json()
    assert found["is_waiting_for_runner"] is True or found["state"] == "done"
    done = await ended(http, begun["id"])
    assert done["state"] == "done"


async def test_an_empty_filter_must_be_meant(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    await utils.add_job("a")
    answer = await http.post("/api/v1/operations", json={"action": "delete", "filter": ""})
    assert answer.status_code == 400
    begun = await operate(http, action="delete", filter="", everything=True)
    assert (await ended(http, begun["id"]))["changed"] == 1


async def test_production_always_asks_for_the_number(database_url: str, utils: WorkerUtils) -> None:
    await utils.add_job("a")
    app = admin_app(connection_string=database_url, authorize=everyone_may, environment="production")
    try:
        async with client_of(app) as http:
            body = {"action": "delete", "filter": "task:a"}
            assert (await http.post("/api/v1/operations", json=body)).status_code == 409
            assert (await http.post("/api/v1/operations", json={**body, "confirm": 1})).status_code == 200
    finally:
        await app.aclose()


@pytest.mark.parametrize("path", ["/api/v1/operations/99", "/api/v1/operations/99999999999999999999"])
async def test_an_operation_that_is_not_there(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code in (400, 404)


async def test_without_the_tables(admin: AdminApp, http: httpx.AsyncClient, connection: Any) -> None:
    """Actions on jobs work; operations say what is missing."""
    for table in ("audit", "before", "operations", "muted_errors"):
        await connection.execute(f"drop table {SCHEMA}._private_py_{table}")
    answer = await http.post("/api/v1/operations", json={"action": "delete", "filter": "task:a"})
    assert answer.status_code == 409
    assert "graphile-worker migrate" in answer.json()["detail"]
    assert (await http.get("/api/v1/operations")).json()["items"] == []
    assert (await http.get("/api/v1/audit")).json()["items"] == []


async def test_an_operation_outlives_lost_connections(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    """The server ends all sessions of the dashboard, again and again."""
    await add_failed(utils, 12)
    begun = await operate(http, action="add_again", filter="state:failed", rate=8)
    ended_sessions = 0
    async with asyncio.timeout(PATIENCE):
        while ended_sessions < 10:
            ended_sessions += await connection.fetchval(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity "
                "where datname = current_database() and application_name like 'graphile_worker admin%'"
            )
            await http.get(f"/api/v1/operations/{begun['id']}")
    done = await ended(http, begun["id"])
    assert (done["state"], done["changed"]) == ("done", 12)
    assert await count(utils) == 24


END_SESSION = f"""
create sequence {SCHEMA}.writes;
create function {SCHEMA}.end_session() returns trigger language plpgsql as $$
begin
  if nextval('{SCHEMA}.writes') in (3, 16) then perform pg_terminate_backend(pg_backend_pid()); end if;
  perform pg_sleep(0);
  return new;
end $$;
create trigger end_session before insert or update on {SCHEMA}._private_jobs
  for each row execute function {SCHEMA}.end_session();
create trigger end_session after update of last_id on {SCHEMA}._private_py_operations
  for each row execute function {SCHEMA}.end_session();
"""
"""Ends the session at the third job and at the last write of the next attempt. Sequences have no rollback."""


async def test_a_step_that_the_server_ends_is_made_once(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    """In the middle of its jobs, and after all of them."""
    ids = await add_failed(utils, 12)
    await connection.execute(END_SESSION)
    begun = await operate(http, action="add_again", filter="state:failed")
    done = await ended(http, begun["id"])
    assert (done["state"], done["changed"]) == ("done", 12)
    written = await connection.fetchval(f"select last_value from {SCHEMA}.writes")
    assert written == 3 + 2 * (len(ids) + 1)  # three attempts, the last one complete
    rows = await connection.fetch(f"select count(*) from {SCHEMA}._private_jobs group by payload ->> 'n'")
    assert [row["count"] for row in rows] == [2] * 12


SLOW_LARGE_STEPS = f"""
create function {SCHEMA}.take_long() returns trigger language plpgsql as $$
begin
  if new.changed - old.changed > 100 then perform pg_sleep(600); end if;
  return new;
end $$;
create trigger take_long after update of last_id on {SCHEMA}._private_py_operations
  for each row execute function {SCHEMA}.take_long();
"""


async def test_a_step_that_takes_too_long_is_repeated_with_fewer_jobs(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps grow after quick ones, and shrink again."""
    monkeypatch.setattr("graphile_worker.admin.operations.runner.STEP", 500)
    monkeypatch.setattr("graphile_worker.admin.operations.runner.STEP_WITHIN", 1_000)
    monkeypatch.setattr("graphile_worker.admin.operations.runner.RETRY", 0.01)
    await add_failed(utils, 300)
    await connection.execute(SLOW_LARGE_STEPS)
    begun = await operate(http, action="retry", filter="state:failed")
    done = await ended(http, begun["id"])
    assert (done["state"], done["changed"]) == ("done", 300)


async def test_a_step_that_always_takes_too_long_fails_the_operation(
    http: httpx.AsyncClient,
    utils: WorkerUtils,
    connection: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("graphile_worker.admin.operations.runner.STEP_WITHIN", 100)
    monkeypatch.setattr("graphile_worker.admin.operations.runner.RETRY", 0.01)
    caplog.set_level(logging.DEBUG, logger="graphile_worker.admin")
    ids = await add_failed(utils, 3)
    await connection.execute(SLOW_LARGE_STEPS.replace("> 100", "> 0"))
    begun = await operate(http, action="retry", filter="state:failed")
    done = await ended(http, begun["id"])
    assert (done["state"], done["changed"]) == ("failed", 0)
    assert sum("; retrying" in record.getMessage() for record in caplog.records) == MOST_RETRIES
    assert await count(utils, state="failed") == len(ids)


@pytest.fixture
def broken_server() -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop, over TCP."""
    with own_server(port=0) as server:
        yield server


FEW = 100
"""Jobs of a step: a slow machine changes them well within the time that the server allows."""
STAY_IN_SECOND_STEP = f"""
create table {SCHEMA}.first_start as select pg_postmaster_start_time() as at;
create function {SCHEMA}.stay() returns trigger language plpgsql as $$
begin
  if new.changed > {FEW} and pg_postmaster_start_time() = (select at from {SCHEMA}.first_start) then
    perform pg_sleep(600);
  end if;
  return new;
end $$;
create trigger stay after update of last_id on {SCHEMA}._private_py_operations
  for each row execute function {SCHEMA}.stay();
"""
"""Until the server is restarted, the second step does not come to its commit. All its jobs are written."""

STAYS = (
    "select exists (select from pg_stat_activity "
    "where datname = current_database() and wait_event = 'PgSleep')"
)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_an_operation_waits_for_a_server_that_stops_in_the_middle_of_a_step(
    broken_server: EmbeddedPostgres,
    how: signal.Signals,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it is away; then every job is changed, and none of them twice."""
    monkeypatch.setattr("graphile_worker.admin.operations.runner.STEP", FEW)
    # Half a minute passes in a second.
    monkeypatch.setattr("graphile_worker.admin.operations.runner.RETRY", 0.05)
    caplog.set_level(logging.DEBUG, logger="graphile_worker.admin")

    def said(level: int) -> list[str]:
        records = [record for record in caplog.records if record.name == "graphile_worker.admin"]
        return [record.getMessage() for record in records if record.levelno == level]

    def attempts() -> int:
        return sum(line.startswith("operation ") for line in said(logging.DEBUG))

    url = broken_server.url()
    async with make_worker_utils(connection_string=url) as utils:
        await utils.migrate()
        ids = await add_failed(utils, 3 * FEW)
    connection = await asyncpg.connect(url)
    await connection.execute(STAY_IN_SECOND_STEP)
    app = admin_app(connection_string=url, authorize=everyone_may)
    try:
        async with client_of(app) as http:
            begun = await operate(http, action="add_again", filter="state:failed", confirm=len(ids))
            await until(lambda: connection.fetchval(STAYS))
            assert await connection.fetchval(f"select changed from {SCHEMA}._private_py_operations") == FEW
            await connection.close()
            await stop_server(broken_server, how)
            before = attempts()
            await until(lambda: attempts() > before + 3 * MOST_RETRIES or bool(said(logging.ERROR)))
            assert said(logging.ERROR) == []
            await asyncio.to_thread(broken_server.start)
            connection = await asyncpg.connect(url)
            # The table is asked, not the dashboard: a person who looks makes it take up what was given up.
            over = f"select finished_at is not null from {SCHEMA}._private_py_operations"
            await until(lambda: connection.fetchval(over))
            done = await ended(http, begun["id"])
        assert (done["state"], done["changed"], done["skipped"]) == ("done", len(ids), 0)
        rows = await connection.fetch(f"select count(*) from {SCHEMA}._private_jobs group by payload ->> 'n'")
        assert [row["count"] for row in rows] == [2] * len(ids)
    finally:
        await app.aclose()
        await connection.close(timeout=10)


async def test_a_filter_with_a_secret_is_kept_from_others(database_url: str, utils: WorkerUtils) -> None:
    """Who may search a secret may operate on what was found; the operation and the audit do not tell it."""
    await utils.add_jobs([JobSpec("a", {"password": "hunter2", "card": {"number": 4111222233334444}})])
    app = admin_app(connection_string=database_url, authorize=everyone_may, redact=["card.number"])
    async with client_of(app) as http:
        for filter in ("payload.password:hunter2", "payload.card.number:4111222233334444"):
            begun = await operate(http, action="reschedule", priority=3, filter=filter)
            done = await ended(http, begun["id"])
            assert done["changed"] == 1
        for path in ("/operations", "/audit", "/", "/summary", f"/operations/{done['id']}"):
            for accept in ("text/html", "application/json"):
                text = (await http.get(path, headers={"Accept": accept})).text
                assert "hunter2" not in text
                assert "4111222233334444" not in text
    await app.aclose()


async def test_rows_that_are_locked_for_a_moment_are_tried_again(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    ids = await add_failed(utils, 6)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", ids[3])
    begun = await operate(http, action="retry", filter="state:failed")

    async def is_held_up() -> bool:
        return (await http.get(f"/api/v1/operations/{begun['id']}")).json()["changed"] == 3

    await until(is_held_up, every=0.05)
    await transaction.rollback()
    done = await ended(http, begun["id"])
    assert (done["state"], done["changed"], done["skipped"]) == ("done", 6, 0)


async def test_rows_that_stay_locked_are_skipped_in_the_end(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphile_worker.admin.operations.runner.PATIENCE", 0.5)
    ids = await add_failed(utils, 6)
    async with connection.transaction():
        await connection.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", ids[3])
        begun = await operate(http, action="retry", filter="state:failed")
        done = await ended(http, begun["id"])
    assert (done["state"], done["changed"], done["skipped"]) == ("done", 5, 1)
    assert done["message"] == "5 of 6 jobs changed; 1 was running or locked."


@pytest.mark.parametrize("how", ["lifespan", "healthz"])
async def test_an_operation_goes_on_without_a_person(
    database_url: str, utils: WorkerUtils, connection: Any, how: str
) -> None:
    """At the start of the application; mounted without a lifespan, at the first request of any kind."""
    await add_failed(utils, 900)
    first = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(first) as http:
        await operate(http, action="retry", filter="state:failed", rate=10)
    await first.aclose()
    await connection.execute(f"update {SCHEMA}._private_py_operations set rate = null")
    second = admin_app(connection_string=database_url, authorize=everyone_may)
    over = f"select finished_at is not null from {SCHEMA}._private_py_operations"
    try:
        if how == "healthz":
            async with client_of(second) as http:
                assert (await http.get("/healthz")).status_code == 200
                await until(lambda: connection.fetchval(over))
        else:
            async with started(second):
                await until(lambda: connection.fetchval(over))
    finally:
        await second.aclose()
    assert await connection.fetchval(f"select changed from {SCHEMA}._private_py_operations") == 900


@asynccontextmanager
async def started(app: AdminApp) -> AsyncIterator[None]:
    """The application as a server starts it, without a request."""
    said: asyncio.Queue[Any] = asyncio.Queue()
    heard: asyncio.Queue[Any] = asyncio.Queue()
    running = asyncio.create_task(app({"type": "lifespan"}, said.get, heard.put))
    await said.put({"type": "lifespan.startup"})
    assert (await heard.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await said.put({"type": "lifespan.shutdown"})
        await running


async def test_an_operation_of_a_killed_dashboard_says_so_and_is_taken_over(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any, database_url: str
) -> None:
    """Its process is gone, and cannot have let go of it: another one waits for the end of the lease."""
    await add_failed(utils, 3)
    begun = await operate(http, action="retry", filter="state:failed", rate=0.1)
    await connection.execute(
        f"update {SCHEMA}._private_py_operations set runner = 'killed', rate = null, "
        f"lease_until = clock_timestamp() + interval '{LEASE - LATE - 1} seconds'"
    )
    other = admin_app(connection_string=database_url, authorize=everyone_may)
    try:
        async with client_of(other) as second:
            page = await second.get(f"/operations/{begun['id']}")
            assert "Waiting for its runner." in page.text
            done = await ended(second, begun["id"])
    finally:
        await other.aclose()
    assert (done["state"], done["changed"]) == ("done", 3)


async def test_the_audit_has_the_number_of_an_operation_that_changed_nothing(
    http: httpx.AsyncClient, utils: WorkerUtils
) -> None:
    begun = await operate(http, action="retry", filter="state:failed task:none")
    done = await ended(http, begun["id"])
    assert done["message"] == "0 of 0 jobs changed."
    assert '<td class="num wide">0</td>' in (await http.get("/audit")).text
