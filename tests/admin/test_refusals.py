"""What the database refuses, as a page and as a problem document: timeouts, locks and missing privileges."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from admin.callers import ROLE, by_role, drop_own_tables, same_origin
from admin.conftest import client_of
from admin.test_operations import ended
from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.admin import admin_app, everyone_may
from support.working import PATIENCE, SCHEMA

SLOW_TASKS = f"""
alter table {SCHEMA}._private_tasks rename to all_tasks;
create view {SCHEMA}._private_tasks as select * from {SCHEMA}.all_tasks where pg_sleep(600) is not null;
"""


async def both(http: httpx.AsyncClient) -> tuple[httpx.Response, httpx.Response]:
    """The page of all jobs, and the same over the API."""
    page, problem = await asyncio.gather(
        http.get("/jobs", headers={"Accept": "text/html"}), http.get("/api/v1/jobs")
    )
    assert "<nav" in page.text  # the frame stays
    assert "Traceback" not in page.text + problem.text
    assert problem.headers["Content-Type"].startswith("application/problem+json")
    assert problem.json()["title"] in page.text
    assert page.status_code == problem.status_code == problem.json()["status"]
    return page, problem


async def test_a_statement_that_takes_too_long_is_stopped(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    await utils.add_job("a")
    await connection.execute(SLOW_TASKS)
    async with asyncio.timeout(PATIENCE):
        page, problem = await both(http)
    assert (problem.status_code, problem.json()["title"]) == (503, "The database took too long")
    assert page.headers["Retry-After"] == problem.headers["Retry-After"] == "5"


async def test_a_lock_is_not_waited_for(http: httpx.AsyncClient, utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("a")
    async with connection.transaction():
        await connection.execute(f"lock table {SCHEMA}._private_jobs in access exclusive mode")
        page, problem = await both(http)
        form = await http.post(
            "/jobs/actions", data={"action": "delete", "ids": str(job.id), "confirmed": "yes"}
        )
    assert (problem.status_code, problem.json()["title"]) == (
        409,
        "Busy: a worker or another transaction has locked its row",
    )
    assert "Try again" in page.text
    assert form.status_code == 409
    assert await utils.jobs.get(job.id) is not None


@pytest.fixture
async def weak(database_url: str, connection: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A dashboard whose role may read every table but that of jobs."""
    role = f"weak_{os.getpid()}_{os.urandom(3).hex()}"
    await connection.execute(
        f"create role {role} login; grant usage on schema {SCHEMA} to {role}; "
        f"grant select on all tables in schema {SCHEMA} to {role}; "
        f"revoke select on {SCHEMA}._private_jobs from {role}"
    )
    url = re.sub(r"//[^@/]*@", f"//{role}@", database_url)
    app = admin_app(connection_string=url, authorize=everyone_may)
    async with client_of(app) as http:
        yield http
    await app.aclose()
    await connection.execute(f"drop owned by {role}; drop role {role}")


async def test_a_role_without_a_privilege_is_told_which(weak: httpx.AsyncClient) -> None:
    page, problem = await both(weak)
    assert (problem.status_code, problem.json()["title"]) == (403, "The database role may not do this")
    for text in (page.text, problem.json()["detail"]):
        assert "permission denied for table _private_jobs" in text
        assert "grants" in text


async def test_a_reveal_is_logged_where_there_is_no_audit(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a schema that only Node has installed."""
    job = await utils.add_job("a", {"password": "hunter2"})
    await drop_own_tables(connection)
    with caplog.at_level(logging.INFO, logger="graphile_worker.admin"):
        revealed = await http.post(f"/api/v1/jobs/{job.id}/reveal", json={})
    assert "hunter2" in revealed.text
    (line,) = [record.getMessage() for record in caplog.records if "reveal_payload" in record.getMessage()]
    assert f"job {job.id}" in line
    assert "hunter2" not in caplog.text


async def test_an_operator_stops_the_undo_of_a_retry(database_url: str, utils: WorkerUtils) -> None:
    """Stopping an undo needs what the undone action needed."""
    jobs = await utils.add_jobs([JobSpec("a", max_attempts=1)] * 1_001)
    await utils.permanently_fail_jobs([job.id for job in jobs], "boom")
    app = admin_app(connection_string=database_url, authorize=by_role)
    async with same_origin(app, **{ROLE: "operator"}) as http:
        body = {"action": "retry", "filter": "state:failed", "confirm": 1_001}
        begun = (await http.post("/api/v1/operations", json=body)).json()
        begun = await ended(http, begun["id"])
        undone = (await http.post(f"/api/v1/audit/{begun['undo']}/undo", json={})).json()
        path = f"/api/v1/operations/{undone['operation_id']}/stop"
        refused = await http.post(path, json={}, headers={ROLE: "viewer"})
        stopped = await http.post(path, json={})
    await app.aclose()
    assert refused.status_code == 403
    assert stopped.status_code in (200, 409), stopped.text  # 409: it has ended in the meantime
