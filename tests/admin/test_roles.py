"""Each route with each role: the table of routes decides, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from graphile_worker.admin import AdminApp, admin_app
from graphile_worker.admin.operations.runner import may_change
from graphile_worker.admin.security.identity import READING, ROLES
from graphile_worker.admin.table import ROUTES
from graphile_worker.admin.web.routes import Route
from support.working import Jobs

from .callers import ROLE, by_role, call_route, same_origin

GUARDED = [route for route in ROUTES if route.access != "open"]
REFUSED = "You may not do this"


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[AdminApp]:
    app = admin_app(connection_string=database_url, authorize=by_role)
    yield app
    await app.aclose()


@pytest.fixture
async def reading(database_url: str) -> AsyncIterator[AdminApp]:
    app = admin_app(connection_string=database_url, authorize=by_role, read_only=True)
    yield app
    await app.aclose()


def test_open_routes_are_few_and_known() -> None:
    assert {name(route) for route in ROUTES if route.access == "open"} == {
        "GET /login", "POST /login", "POST /logout", "GET /healthz", "GET /readyz"
    }  # fmt: skip
    assert {name(route) for route in ROUTES if route.access == "signed_in"} <= {
        "GET /api/v1/session", "GET /api/v1/openapi.json", "GET /api", "GET /about"
    }  # fmt: skip


async def test_the_signed_out_reach_no_route(app: AdminApp) -> None:
    async with same_origin(app) as http:
        for route in GUARDED:
            answer = await call_route(http, app, route)
            assert answer.status_code == 401, name(route)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin", "metrics"])
async def test_a_role_reaches_what_it_may(app: AdminApp, role: str) -> None:
    async with same_origin(app, **{ROLE: role}) as http:
        for route in GUARDED:
            may = not route.permissions or ROLES[role].intersection(route.permissions)
            if may and route.streams:
                continue  # does not end; see test_hub
            answer = await call_route(http, app, route)
            if not may:
                assert answer.status_code == 403, name(route)
                assert REFUSED in answer.text, name(route)
            elif len(route.permissions) > 1:
                assert answer.status_code not in (401, 405, 500), f"{name(route)}: {answer.text}"
            else:
                assert answer.status_code not in (401, 403, 405, 500), f"{name(route)}: {answer.text}"


async def test_a_read_only_dashboard_has_no_routes_that_write(reading: AdminApp) -> None:
    async with same_origin(reading, **{ROLE: "admin"}) as http:
        found = (await http.get("/api/v1/session")).json()
        assert set(found["permissions"]) <= READING
        assert found["read_only"] is True
        for route in GUARDED:
            if route.is_write:
                answer = await call_route(http, reading, route)
                assert answer.status_code == 405, name(route)
            elif not route.streams:
                answer = await call_route(http, reading, route)
                assert answer.status_code not in (401, 405, 500), f"{name(route)}: {answer.text}"


async def test_a_reveal_says_where_it_is_recorded(app: AdminApp, reading: AdminApp, jobs: Jobs) -> None:
    job = await jobs.add("a", {"token": "x"})
    for dashboard, place in ((app, "Recorded in the audit"), (reading, "Noted in the log")):
        async with same_origin(dashboard, **{ROLE: "admin"}) as http:
            assert f'title="{place}' in (await http.get(f"/jobs/{job}")).text


async def test_postgresql_refuses_changes_of_a_read_only_dashboard(reading: AdminApp) -> None:
    database = reading.databases[0]
    statement = "insert into graphile_worker._private_tasks (identifier) values ('x')"
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with database.write() as connection:
            await connection.execute(statement)
    # Also outside of the transactions that the dashboard begins.
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with database.utils.pool.acquire() as connection:
            await connection.execute(statement)


async def test_statements_and_locks_are_bounded(app: AdminApp) -> None:
    async with app.databases[0].read() as connection:
        assert await connection.fetchval("select current_setting('statement_timeout')") == "3s"
        assert await connection.fetchval("select current_setting('lock_timeout')") == "500ms"
        assert await connection.fetchval("select current_setting('transaction_read_only')") == "on"


async def test_to_cancel_jobs_that_do_not_run_needs_the_right_to_delete_them(
    app: AdminApp, jobs: Jobs
) -> None:
    waits, failed, runs = [await jobs.add("a") for _ in range(3)]
    table = "graphile_worker._private_jobs"
    await jobs.connection.execute(f"update {table} set attempts = max_attempts where id = $1", failed)
    await jobs.connection.execute(
        f"update {table} set locked_at = now(), locked_by = 'w', attempts = 1 where id = $1", runs
    )

    async def left() -> set[int]:
        return {row["id"] for row in await jobs.connection.fetch(f"select id from {table}")}

    def body(*ids: int) -> dict[str, object]:
        return {"action": "cancel", "ids": ids}

    async with same_origin(app, **{ROLE: "operator"}) as http:
        for job in (waits, failed):
            assert (await http.post("/api/v1/jobs/actions", json=body(job))).status_code == 403
            form = {"action": "cancel", "ids": str(job), "confirmed": "yes"}
            assert (await http.post("/jobs/actions", data=form)).status_code == 403
        both = (await http.post("/api/v1/jobs/actions", json=body(waits, runs))).json()
        assert [(each["id"], each["why"]) for each in both["skipped"] if each["id"] == waits] == [
            (waits, "not allowed")
        ]
        for filter in ("", "state:failed", "task:a"):
            wanted = {"action": "cancel", "filter": filter, "everything": not filter}
            assert (await http.post("/api/v1/operations", json=wanted)).status_code == 403, filter
            form = {"action": "cancel", "q": filter, "everything": "yes", "confirmed": "yes"}
            assert (await http.post("/operations/new", data=form)).status_code == 403, filter
        begun = await http.post("/api/v1/operations", json={"action": "cancel", "filter": "state:running"})
        assert begun.status_code == 200
        for path, is_offered in (("/jobs?state=failed", False), ("/jobs?state=running", True)):
            assert ('value="cancel"' in (await http.get(path)).text) is is_offered
    assert await left() == {waits, failed, runs}
    async with same_origin(app, **{ROLE: "admin"}) as http:
        assert (await http.post("/api/v1/jobs/actions", json=body(waits))).json()["changed"] == [waits]
        assert 'value="cancel"' in (await http.get("/jobs?state=failed")).text
    assert await left() == {failed, runs}


async def test_a_job_that_no_longer_runs_when_its_step_comes_is_left(app: AdminApp, jobs: Jobs) -> None:
    """Between the choice and the lock, a running job may fail and wait again."""
    from graphile_worker.admin.jobs import changing
    from graphile_worker.admin.operations.choosing import Chosen

    job = await jobs.add("a")
    database = app.databases[0]
    async with database.write() as connection:
        found, _ = await changing.lock_jobs(connection, database.schema, [job])
    assert may_change(Chosen(filter="state:running", only_running=True), "cancel", found[job]) is False
    assert may_change(Chosen(filter="state:running"), "cancel", found[job]) is True


async def test_a_schema_that_is_missing_is_a_problem(app: AdminApp, connection: asyncpg.Connection) -> None:
    async with same_origin(app, **{ROLE: "admin"}) as http:
        await connection.execute("drop schema graphile_worker cascade")
        missing = await _act(http)
        assert missing.status_code == 503
        assert "graphile-worker migrate" in missing.json()["detail"]


async def _act(http: httpx.AsyncClient) -> httpx.Response:
    return await http.post("/api/v1/jobs/actions", json={"action": "retry", "ids": [1]})
