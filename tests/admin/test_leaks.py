"""What one person may not see is on no page, in no answer and in no file."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from scripts.lively.addresses import addresses, is_readable, subject_of

from admin.conftest import client_of
from graphile_worker import JobSpec, make_worker_utils
from graphile_worker.admin import Identity, admin_app, everyone_may
from graphile_worker.admin.security.identity import ROLES
from graphile_worker.admin.table import ROUTES
from support.working import SCHEMA, Jobs, Workers

SECRET = "hunter2"
TYPES = ("text/html", "application/json")


async def leaky(payload: Any, helpers: Any) -> dict[str, Any]:
    if payload.get("fails"):
        inner = f'{{\\"token\\": \\"{SECRET}\\"}}'
        raise ValueError(f"no: password='{SECRET} {SECRET}', amqp://u:{SECRET}@h, {inner}")
    return {"secret": SECRET}


@pytest.fixture
async def secrets(database_url: str, workers: Workers, jobs: Jobs) -> None:
    """Jobs with the secret in every part that is redacted; one has been edited, one deleted."""
    payload = {"password": SECRET, "card": {"number": SECRET}, "url": f"amqp://u:{SECRET}@h", "country": "CH"}
    async with make_worker_utils(connection_string=database_url) as utils:
        for number in range(4):
            spec = JobSpec(
                "leaky", {**payload, "fails": True}, max_attempts=1, keep=True, keep_payload=True,
                queue_name="q", job_key=f"k:{number}",
            )  # fmt: skip
            await utils.add_job(spec)
        await utils.add_job(JobSpec("leaky", payload, keep=True, keep_payload=True))
        await workers.once({"leaky": leaky})
        await utils.add_job(JobSpec("leaky", payload, queue_name="q", job_key="k:waits"))
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(app) as http:
        waits = await jobs.connection.fetchval(f"select max(id) from {SCHEMA}._private_jobs")
        failed = await jobs.connection.fetchval(f"select min(id) from {SCHEMA}._private_jobs")
        edit = {"payload": {**payload, "n": 1}, "revision": 0}
        assert (await http.patch(f"/api/v1/jobs/{waits}", json=edit)).status_code == 200
        for action in ("retry", "give_up", "delete"):
            body = {"action": action, "ids": [failed]}
            assert (await http.post("/api/v1/jobs/actions", json=body)).json()["changed"] == [failed]
        assert (await http.post(f"/api/v1/jobs/{waits}/reveal", json={})).status_code == 200
    await app.aclose()


@pytest.fixture
async def told_secrets(database_url: str, secrets: None, jobs: Jobs) -> None:
    """The same in what people and programs write about jobs: reasons, a note, defaults of a payload."""
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    waits = await jobs.connection.fetchval(f"select max(id) from {SCHEMA}._private_jobs")
    async with client_of(app) as http:
        reason = f"because of password={SECRET}"
        for path, name in (("/queues/pause", "q"), ("/tasks/pause", "leaky"), ("/tasks/pause", "")):
            paused = await http.post(f"/api/v1{path}", json={"name": name, "reason": reason})
            assert paused.status_code == 200, paused.text
        body = {"action": "give_up", "ids": [waits], "reason": reason}
        assert (await http.post("/api/v1/jobs/actions", json=body)).json()["changed"] == [waits]
    await app.aclose()
    note = f"The first job, 1, failed again: ValueError: token='{SECRET}'"
    values = f'{{"reason": "{reason}"}}'
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_py_operations (audit_id, action, arguments, chosen, target, stage, "
        "expected, expected_kind, up_to, state, note, finished_at) "
        "select max(id), 'retry', $2::text::json, '{}', 'x', 'watching', 1, 'exact', 0, 'stopped', $1, now() "
        f"from {SCHEMA}._private_py_audit",
        note,
        values,
    )
    shape = {
        "type": "object",
        "properties": {
            "api_token": {"type": "string", "default": SECRET, "examples": [SECRET]},
            "url": {"type": "string", "default": f"amqp://u:{SECRET}@h"},
            "card": {"type": "object", "default": {"number": SECRET, "name": "shown"}},
            "deep": {"$ref": "#/$defs/Card"},
        },
        "$defs": {"Card": {"type": "object", "properties": {"number": {"default": SECRET}}}},
    }
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_py_task_descriptions (identifier, payload_type, payload_schema) "
        "values ('leaky', 'Leaky', $1::text::json)",
        json.dumps(shape),
    )


async def paths(jobs: Jobs) -> list[str]:
    """Everything that can be read."""
    await jobs.connection.execute(f"set search_path to {SCHEMA}")
    found: list[str] = []
    for route in ROUTES:
        if not is_readable(route) or route.streams:
            continue
        subject = subject_of(route.path)
        if subject is None:
            found.append(route.path)
        else:
            values = [row[0] for row in await jobs.connection.fetch(subject[1])]
            found += addresses(route.path, subject[0], values)
    return found


async def test_a_viewer_sees_no_secret_anywhere(database_url: str, told_secrets: None, jobs: Jobs) -> None:
    def viewer(request: object) -> Identity:
        return Identity(name="eve", permissions=ROLES["viewer"] | {"jobs.add", "jobs.retry"}, how="test")

    app = admin_app(connection_string=database_url, authorize=viewer, redact=["card.number"])
    seen = 0
    async with client_of(app) as http:
        everything = [*await paths(jobs), "/api/v1/jobs?payload=true", "/jobs/export?format=csv"]
        everything += [
            f"/jobs/new?job={row['id']}"
            for row in await jobs.connection.fetch("select id from _private_jobs")
        ]
        for path in everything:
            for accept in TYPES if not path.startswith("/api") else TYPES[:1]:
                answer = await http.get(path, headers={"Accept": accept})
                assert SECRET not in answer.text, f"{path} as {accept}"
                seen += "[redacted]" in answer.text
    assert seen > 20
    await app.aclose()


async def test_without_the_right_to_the_audit_it_shows_nowhere(
    database_url: str, secrets: None, jobs: Jobs
) -> None:
    def reader(request: object) -> Identity:
        return Identity(name="eve", permissions=frozenset({"jobs.read"}), how="test")

    app = admin_app(connection_string=database_url, authorize=reader)
    async with client_of(app) as http:
        for path in await paths(jobs):
            answer = await http.get(path, headers={"Accept": "text/html"})
            assert "anonymous" not in answer.text, path  # who did it
    await app.aclose()


async def test_what_is_in_one_database_is_not_seen_through_another(
    database_url: str, secrets: None, jobs: Jobs
) -> None:
    other = "graphile_worker_other"
    async with make_worker_utils(connection_string=database_url, schema=other) as utils:
        await utils.migrate()
    from graphile_worker.admin.database import Database

    app = admin_app(
        databases={
            "one": Database("one", connection_string=database_url),
            "two": Database("two", connection_string=database_url, schema=other),
        },
        authorize=everyone_may,
    )
    async with client_of(app) as http:
        body = {"action": "reschedule", "priority": 3, "filter": "task:leaky"}
        begun = (await http.post("/api/v1/operations", json=body, headers={"Idempotency-Key": "a"})).json()
        assert (await http.get(f"/~one/api/v1/operations/{begun['id']}")).status_code == 200
        assert (await http.get(f"/~two/api/v1/operations/{begun['id']}")).status_code == 404
        assert (await http.get("/~two/api/v1/audit")).json()["items"] == []
        assert (await http.get("/~two/api/v1/jobs")).json()["items"] == []
        # The same key about another database is another request.
        answer = await http.post("/~two/api/v1/operations", json=body, headers={"Idempotency-Key": "a"})
        assert "idempotency-replayed" not in answer.headers
        # The notice of one database, with its button Undo, is not shown on pages of another.
        job = await jobs.connection.fetchval(f"select max(id) from {SCHEMA}._private_jobs")
        done = await http.post("/jobs/actions", data={"action": "retry", "ids": str(job)})
        assert done.status_code == 303
        assert "undo" not in (await http.get("/~two/queues")).text.lower()
        assert await _shows_undo(http, "/queues")
    await app.aclose()
    await jobs.connection.execute(f"drop schema {other} cascade")


async def _shows_undo(http: httpx.AsyncClient, path: str) -> bool:
    return "/undo" in (await http.get(path)).text
