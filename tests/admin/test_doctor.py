"""Doctor, maintenance and About; and every page about a schema that only Node has installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import httpx
import pytest

from admin.conftest import client_of
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.database.migrations import migrate
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import Jobs

API = "/api/v1"
PAGES = ("/workers", "/schedules", "/queues", "/doctor", "/about")


async def test_a_finding_leads_to_its_page_and_a_pause_to_none(http: httpx.AsyncClient, jobs: Jobs) -> None:
    """What is paused is on top of every page, whether it is a queue or a task."""
    job_id = await jobs.add("work")
    await jobs.connection.execute(
        "update graphile_worker._private_jobs set attempts = max_attempts where id = $1", job_id
    )
    assert (await http.post(f"{API}/queues/pause", json={"name": "mails"})).status_code == 200
    findings = (await http.get(f"{API}/doctor")).json()["findings"]
    paths = {finding["check"]: finding["path"] for finding in findings if finding["severity"] != "ok"}
    assert (paths["failures"], paths["pauses"]) == ("/failures", None)


async def test_findings_and_remedies(http: httpx.AsyncClient, jobs: Jobs) -> None:
    report = (await http.get(f"{API}/doctor")).json()
    assert any(finding["check"] == "schema" for finding in report["findings"])
    assert report["errors"] == 0
    page = await http.get("/doctor")
    assert "graphile-worker doctor" in page.text
    found = report["errors"] + report["warnings"]
    assert found, "the number beside Doctor needs a finding"
    assert f'data-count="doctor">{found}<' in (await http.get("/jobs")).text

    graveyard = Graveyard(jobs.connection)
    await graveyard.bury("pool-dead")
    job_id = await jobs.add("work", queue="unused")
    await graveyard.give("pool-dead", job_id)
    dry = (await http.post(f"{API}/maintenance/sweep", json={"dry_run": True})).json()
    assert dry["changed"] is True
    assert "pool-dead is dead" in dry["lines"][0]
    assert await graveyard.workers() != {}
    asked = await http.post("/maintenance/sweep")
    assert "pool-dead is dead" in asked.text
    done = await http.post("/maintenance/sweep", data={"confirmed": "yes"})
    assert done.status_code == 303
    assert await graveyard.workers() == {}

    await jobs.connection.execute("delete from graphile_worker._private_jobs")
    unused = (await http.post(f"{API}/maintenance/cleanup", json={"dry_run": True})).json()
    assert unused["changed"] is True
    assert (await http.post(f"{API}/maintenance/cleanup", json={})).json()["changed"] is True
    current = (await http.post(f"{API}/maintenance/migrate", json={"dry_run": True})).json()
    assert current["lines"] == ["The schema is up to date."]
    rows = await jobs.connection.fetch("select action from graphile_worker._private_py_audit order by id")
    assert [row["action"] for row in rows] == ["sweep", "cleanup"]


async def test_about_names_versions_and_permissions(http: httpx.AsyncClient) -> None:
    about = (await http.get(f"{API}/about")).json()
    assert about["revision"] == about["supported_revision"]
    assert all(each["is_applied"] for each in about["objects"])
    assert {"_private_jobs", "_private_py_workers"} <= {table["name"] for table in about["tables"]}
    assert "jobs.read" in about["permissions"]
    assert "maintenance" in (await http.get("/about")).text


SIZES = """
select
  coalesce(parent.inhparent, class.oid)::regclass::text as name,
  sum(part.relpages) * current_setting('block_size')::integer as bytes
from pg_class class
left join pg_inherits parent on parent.inhrelid = class.oid
join pg_class part on part.oid in (class.oid, class.reltoastrelid)
  or exists (
    select from pg_index where indexrelid = part.oid and indrelid in (class.oid, class.reltoastrelid)
  )
where class.relnamespace = 'graphile_worker'::regnamespace and class.relkind = 'r'
group by 1
"""


async def test_about_counts_indexes_toast_tables_and_partitions(http: httpx.AsyncClient, jobs: Jobs) -> None:
    await jobs.connection.execute("set search_path = graphile_worker")
    for days in (7, 8):
        await jobs.connection.execute(
            f"select _private_py_add_partition('_private_py_errors'::regclass, current_date + {days})"
        )
    await jobs.connection.execute(
        "insert into _private_py_errors (job_id, attempt, task_id, failed_at, duration, is_final, error_type,"
        " message, traceback, fingerprint, pool_id, version, expires_on)"
        " select n, 1, 1, now(), 1, false, 'ValueError', '',"
        " (select string_agg(md5((n * 1000 + m)::text), '') from generate_series(1, 200) m),"
        " 'print', 'pool', '1.0', current_date + 7 + n % 2 from generate_series(1, 50) n"
    )
    await jobs.connection.execute("vacuum (analyze)")
    sizes = {row["name"]: row["bytes"] for row in await jobs.connection.fetch(SIZES)}
    tables = {each["name"]: each for each in (await http.get(f"{API}/about")).json()["tables"]}
    assert tables["_private_py_errors"]["rows"] == 50
    known = {name: each["bytes"] for name, each in tables.items() if each["bytes"] is not None}
    assert known["_private_py_errors"] > 50 * 6400
    assert known == {name: sizes[name] for name in known}


@pytest.mark.parametrize("path", PAGES)
async def test_a_schema_that_only_node_has_installed(create_database: Callable[..., str], path: str) -> None:
    url = create_database()
    connection: Any = await asyncpg.connect(url)
    try:
        await migrate(connection, SchemaName(), own_objects=False)
        await connection.execute("select graphile_worker.add_job('t', '{}', queue_name => 'q')")
        await connection.execute(
            "insert into graphile_worker._private_known_crontabs values ('nodes', now(), now())"
        )
        await connection.execute(
            "update graphile_worker._private_jobs set locked_by = 'node', locked_at = now()"
        )
        app = admin_app(connection_string=url, authorize=everyone_may)
        async with client_of(app) as client:
            page = await client.get(path)
            assert page.status_code == 200, page.text[:500]
            answer = await client.get(f"{API}{path}")
            assert answer.status_code == 200, answer.text[:500]
            if path == "/schedules":
                assert [each["identifier"] for each in answer.json()["items"]] == ["nodes"]
                assert answer.json()["missing"]
                one = await client.get("/schedule", params={"identifier": "nodes"})
                assert "No running Python worker has it" in one.text
            if path == "/workers":
                assert [each["id"] for each in answer.json()["items"]] == ["node"]
                assert (await client.get("/worker", params={"id": "node"})).status_code == 200
            if path == "/queues":
                assert [each["queue_name"] for each in answer.json()["items"]] == ["q"]
                assert (await client.get("/queue", params={"name": "q"})).status_code == 200
        await app.aclose()
    finally:
        await connection.close()


CALLS = [
    ("/tasks/pause", {"name": "t"}), ("/tasks/resume", {"name": "t"}), ("/queues/pause", {"name": "q"}),
    ("/queues/resume", {"name": "q"}), ("/queues/concurrency", {"name": "q", "concurrency": 2}),
    ("/schedules/pause", {"identifier": "nodes"}), ("/schedules/resume", {"identifier": "nodes"}),
    ("/schedules/run", {"identifier": "nodes"}), ("/workers/stop", {"id": "node"}),
    ("/workers/pause", {"id": "node"}), ("/maintenance/sweep", {}), ("/jobs/1/stack", {}),
]  # fmt: skip


async def test_what_cannot_work_in_nodes_schema_is_not_offered(create_database: Callable[..., str]) -> None:
    url = create_database()
    connection: Any = await asyncpg.connect(url)
    await migrate(connection, SchemaName(), own_objects=False)
    await connection.execute("select graphile_worker.add_job('t', '{}', queue_name => 'q')")
    await connection.execute(
        "insert into graphile_worker._private_known_crontabs values ('nodes', now(), now())"
    )
    app = admin_app(connection_string=url, authorize=everyone_may)
    async with client_of(app) as client:
        for page in ("/tasks", "/task?name=t", "/queue?name=q", "/schedule?identifier=nodes", "/doctor"):
            text = (await client.get(page)).text
            for path, _ in CALLS:
                assert f'"{path}' not in text, f"{page} offers {path}"
        assert "/maintenance/migrate" in (await client.get("/doctor")).text
        for path, body in CALLS:
            answer = await client.post(f"{API}{path}", json=body)
            assert answer.status_code == 409, (path, answer.text)
            assert answer.text.count("graphile-worker migrate") == 1, answer.text
            assert "_private_py_" in answer.json()["detail"]
        assert (await client.get("/tasks/pause", params={"name": "t"})).status_code == 409
        await migrate(connection, SchemaName())
        answer = await client.post(f"{API}/tasks/pause", json={"name": "t"})
        assert answer.status_code == 200, "tables that were created meanwhile are found"
        assert "/tasks/resume" in (await client.get("/task?name=t")).text
    await app.aclose()
    await connection.close()
