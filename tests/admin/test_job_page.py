"""The page of a job: what it shows, hides and lets people change."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from admin.test_job_list import fail, viewer
from graphile_worker import JobSpec, make_worker_utils
from graphile_worker.admin import admin_app, everyone_may
from support.working import SCHEMA, Jobs, Workers

from .conftest import client_of

__all__ = ["viewer"]
JOBS = "/api/v1/jobs"


async def test_a_job_has_a_page_and_an_answer(http: httpx.AsyncClient, jobs: Jobs) -> None:
    job = await jobs.add(
        "send_email", {"to": "ada", "n": 12345678901234567890}, key="mail:7", queue="mails", flags=["slow"]
    )
    other = await jobs.add("send_email", key="mail:8", queue="mails")
    answer = (await http.get(f"{JOBS}/{job}")).json()
    assert (answer["state"], answer["task_identifier"], answer["queue_name"], answer["flags"]) == (
        "ready", "send_email", "mails", ["slow"],
    )  # fmt: skip
    assert '"n":12345678901234567890' in (await http.get(f"{JOBS}/{job}")).text.replace(" ", "")
    page = (await http.get(f"/jobs/{job}")).text
    for part in ("send_email", "mails", "mail:7", "slow", "12345678901234567890", "Why it is not running"):
        assert part in page
    assert f'href="/jobs/{other}"' in page
    for label in (
        "curl",
        "graphile-worker add send_email",
        "select graphile_worker.add_job",
        "async def test_",
    ):
        assert label in page
    assert (await http.get(f"/jobs/{job}.json")).json() == answer


async def test_the_context_of_a_trace_is_folded_away(jobs: Jobs, database_url: str) -> None:
    trace = {"flags": 1, "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
    job = await jobs.add("send_email", {"_trace": trace, "to": "ada"})
    plain = await jobs.add("send_email", {"to": "ada"})
    links = {"Trace": "https://traces.example/{trace_id}", "Logs": "https://logs.example/{job_id}"}
    app = admin_app(connection_string=database_url, authorize=everyone_may, job_links=links)
    async with client_of(app) as http:
        page = (await http.get(f"/jobs/{job}")).text
        assert "_trace" not in page
        assert 'href="https://traces.example/0af7651916cd43dd8448eb211c80319c"' in page
        assert "<code>b7ad6b7169203331</code>" in page
        assert "traces.example" not in (await http.get(f"/jobs/{plain}")).text
        assert "_trace" not in (await http.get(f"/jobs/new?job={job}")).text
        assert (await http.get(f"{JOBS}/{job}")).json()["payload"]["_trace"] == trace
    await app.aclose()


async def test_a_job_that_never_was_is_not_found(http: httpx.AsyncClient) -> None:
    for path in ("/jobs/99", f"{JOBS}/99", f"{JOBS}/99999999999999999999", f"{JOBS}/99/explanation"):
        assert (await http.get(path)).status_code == 404, path


async def test_hostile_values_are_shown_as_text(http: httpx.AsyncClient, jobs: Jobs) -> None:
    attack = "</pre><script>alert(1)</script>\u202e\x1b[31m\r"
    job = await jobs.add(
        "<img src=x onerror=alert(1)>", {attack: attack}, key=attack, queue="<u>", flags=["<s>"]
    )
    await fail(jobs, job, f'Traceback\n  File "x/site-packages/lib/a.py", line 1, in f\n    g()\n{attack}')
    for path in (f"/jobs/{job}", "/jobs"):
        page = (await http.get(path)).text
        for forbidden in ("<script>alert", "<img src=x", "<u>", "<s>", "\u202e", "\x1b"):
            assert forbidden not in page, (path, forbidden)
    page = (await http.get(f"/jobs/{job}")).text
    assert "[U+202E]" in page
    assert "… 1 frame of lib" in page
    await fail(jobs, job, "\n".join(f'  File "{path}", line 1, in f' for path in (
        "/app/.venv/lib/python3.13/site-packages/asyncpg/pool.py", "/usr/lib/python3.13/asyncio/tasks.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py", "/app/lib/tasks.py",
    )))  # fmt: skip
    shown = (await http.get(f"/jobs/{job}")).text
    for part in ("… 1 frame of asyncpg", "… 1 frame of the standard library", "… 1 frame of yaml"):
        assert part in shown
    deep = await jobs.connection.fetchval(
        f"select id from {SCHEMA}.add_job('deep', (repeat('[', 2000) || repeat(']', 2000))::json)"
    )
    assert (await http.get(f"/jobs/{deep}")).status_code == 200
    long = await jobs.add("long", {"text": "x" * 100_000})
    page = (await http.get(f"/jobs/{long}")).text
    assert len(page) < 250_000
    assert f"/jobs/{long}/payload" in page
    assert len((await http.get(f"/jobs/{long}/payload")).json()["text"]) == 100_000


async def test_a_secret_is_revealed_to_those_who_may_and_the_audit_knows(
    http: httpx.AsyncClient, viewer: httpx.AsyncClient, jobs: Jobs
) -> None:
    job = await jobs.add("a", {"deep": [{"API-Key": "hunter2"}], "url": "amqp://u:hunter2@h", "n": 1})
    await fail(jobs, job, "login failed: password='hunter2'")
    for client in (http, viewer):
        for path in (f"/jobs/{job}", f"{JOBS}/{job}", f"/jobs/{job}/payload", f"{JOBS}/{job}/attempts"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert "hunter2" not in answer.text, path
    assert (await viewer.post(f"/jobs/{job}/reveal")).status_code == 403
    assert (await viewer.post(f"{JOBS}/{job}/reveal", json={})).status_code == 403
    address = (await http.post(f"/jobs/{job}/reveal")).headers["location"]
    for _ in range(2):  # it can be loaded again
        assert "hunter2" in (await http.get(address)).text
    assert "hunter2" not in (await viewer.get(address)).text
    assert "hunter2" not in (await http.get(address[:-1])).text
    other = await jobs.add("a", {"password": "swordfish"})
    assert "swordfish" not in (await http.get(address.replace(f"/{job}?", f"/{other}?"))).text
    revealed = (await http.post(f"{JOBS}/{job}/reveal", json={})).json()
    assert revealed["payload"]["deep"][0]["API-Key"] == "hunter2"
    entries = (await http.get("/api/v1/audit", params={"action": "reveal_payload"})).json()["items"]
    assert len(entries) == 2
    assert (await viewer.get(f"/jobs/{job}/edit")).status_code == 403


async def test_redaction_takes_paths_and_a_function(database_url: str, jobs: Jobs) -> None:
    job = await jobs.add("a", {"card": {"number": "4111", "name": "ada"}, "list": [{"pin": 1}]})
    app = admin_app(
        connection_string=database_url, authorize=everyone_may, redact=["card.number", "list.pin"]
    )
    async with client_of(app) as client:
        payload = (await client.get(f"{JOBS}/{job}")).json()["payload"]
    await app.aclose()
    assert payload == {"card": {"number": "[redacted]", "name": "ada"}, "list": [{"pin": "[redacted]"}]}

    def formatted(task: str, value: Any) -> Any:
        return {"task": task, "password": value["card"]["number"]}

    app = admin_app(connection_string=database_url, authorize=everyone_may, format_payload=formatted)
    async with client_of(app) as client:
        payload = (await client.get(f"{JOBS}/{job}")).json()["payload"]
    await app.aclose()
    assert payload == {"task": "a", "password": "[redacted]"}


async def test_a_payload_is_edited_where_nothing_has_changed(
    http: httpx.AsyncClient, viewer: httpx.AsyncClient, jobs: Jobs
) -> None:
    job = await jobs.add("a", {"n": 1})
    revision = (await http.get(f"{JOBS}/{job}")).json()["revision"]
    assert (await viewer.patch(f"{JOBS}/{job}", json={"payload": 1, "revision": 0})).status_code == 403
    changed = await http.patch(
        f"{JOBS}/{job}",
        content=f'{{"payload": {{"n": 2.50}}, "revision": {revision}}}',
        headers={"Content-Type": "application/json"},
    )
    assert (changed.status_code, changed.json()["payload"]) == (200, {"n": 2.5})
    assert (await jobs.one())["payload"] == '{"n": 2.50}'
    again = await http.patch(f"{JOBS}/{job}", json={"payload": {"n": 3}, "revision": revision})
    assert (again.status_code, again.json()["current"]) == (409, {"revision": revision + 1})
    form = (await http.get(f"/jobs/{job}/edit")).text
    assert "2.50" in form
    wrong = await http.post(f"/jobs/{job}/edit", data={"payload": "{", "revision": str(revision + 1)})
    assert wrong.status_code == 400
    assert "The payload is not JSON" in wrong.text
    saved = await http.post(f"/jobs/{job}/edit", data={"payload": '{"n": 4}', "revision": str(revision + 1)})
    assert saved.status_code == 303
    assert json.loads((await jobs.one())["payload"]) == {"n": 4}
    entries = (await http.get("/api/v1/audit", params={"action": "edit_payload"})).json()["items"]
    assert [entry["jobs"] for entry in entries] == [1, 1]
    undone = await http.post(f"/api/v1/audit/{entries[0]['id']}/undo", json={})
    assert undone.status_code == 200, undone.text
    assert json.loads((await jobs.one())["payload"]) == {"n": 2.5}
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set locked_at = now(), locked_by = 'p'")
    now = (await jobs.one())["revision"]
    running = await http.patch(f"{JOBS}/{job}", json={"payload": {}, "revision": now})
    assert (running.status_code, running.json()["current"]) == (409, {"locked_by": "p"})


async def test_a_job_is_added_by_the_api_and_by_the_form(http: httpx.AsyncClient, jobs: Jobs) -> None:
    answer = await http.post(
        JOBS,
        json={
            "task": "send_email", "payload": {"to": "ada"}, "queue": "mails", "priority": -3,
            "max_attempts": 4, "key": "k", "flags": ["slow"], "run_at": "2040-01-01T00:00:00Z",
        },
    )  # fmt: skip
    assert answer.status_code == 201, answer.text
    added = answer.json()
    assert (added["queue_name"], added["priority"], added["max_attempts"], added["key"], added["state"]) == (
        "mails", -3, 4, "k", "scheduled",
    )  # fmt: skip
    for body, said in (
        ({"task": ""}, "A value is not valid"),
        ({"task": "a", "priority": 40000}, "A value is not valid"),
        ({"task": "a", "colour": 1}, "The body is not valid"),
    ):
        refused = await http.post(JOBS, json=body)
        assert (refused.status_code, refused.json()["title"]) == (400, said), body
    page = (await http.get("/jobs/new", params={"job": added["id"]})).text
    assert 'value="send_email"' in page
    assert "&#34;to&#34;" in page
    sent = await http.post("/jobs/new", data={"task": "resize", "payload": '{"big": 12345678901234567890}'})
    assert sent.status_code == 303
    job = int(sent.headers["location"].rpartition("/")[2])
    rows = {row["id"]: row for row in await jobs.all()}
    assert rows[job]["payload"] == '{"big": 12345678901234567890}'
    http.cookies.set("gw_zone", "Europe/Berlin")
    assert "In Europe/Berlin; empty for now." in (await http.get("/jobs/new")).text
    sent = await http.post("/jobs/new", data={"task": "resize", "run_at": "2040-06-01T12:00"})
    job = int(sent.headers["location"].rpartition("/")[2])
    run_at = {row["id"]: row for row in await jobs.all()}[job]["run_at"]
    assert run_at.isoformat() == "2040-06-01T10:00:00+00:00"
    wrong = await http.post("/jobs/new", data={"task": "resize", "payload": "{", "priority": "2"})
    assert wrong.status_code == 400
    assert "The payload is not JSON" in wrong.text
    assert 'value="2"' in wrong.text


async def test_attempts_and_results_of_kept_jobs_stay_after_the_job(
    http: httpx.AsyncClient, database_url: str, workers: Workers
) -> None:
    async def flaky(payload: Any, helpers: Any) -> dict[str, Any]:
        if helpers.job.attempts == 1:
            raise ValueError("not yet, token=hunter2")
        return {"done": True, "secret": "hunter2"}

    async with make_worker_utils(connection_string=database_url) as utils:
        job = await utils.add_job(JobSpec("flaky", {"n": 1}, keep=True, keep_payload=True))
        await workers.once({"flaky": flaky})
        view = (await http.get(f"{JOBS}/{job.id}/explanation")).json()
        assert view["kind"] == "retry_later"
        await utils.reschedule_jobs([job.id], run_at=job.run_at)
        await workers.once({"flaky": flaky})
    answer = await http.get(f"{JOBS}/{job.id}")
    assert "hunter2" not in answer.text
    gone = answer.json()
    assert (gone["state"], gone["revision"], gone["payload"]) == ("completed", None, {"n": 1})
    assert gone["history"][0]["result"] == {"done": True, "secret": "[redacted]"}
    assert [attempt["attempt"] for attempt in gone["errors"]] == [1]
    page = (await http.get(f"/jobs/{job.id}")).text
    for part in ("no longer in the queue", "Attempt 1 failed", "Completed", "ValueError", "Result"):
        assert part in page
    assert "hunter2" not in page
    assert (await http.get(f"{JOBS}/{job.id}/explanation")).json()["kind"] == "gone"


@pytest.fixture
async def no_own_tables(jobs: Jobs) -> None:
    """A schema as Node installs it."""
    names = await jobs.connection.fetch(
        "select c.relname, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        f"where n.nspname = '{SCHEMA}' and c.relname like '\\_private\\_py\\_%' "
        "and c.relkind in ('r', 'p', 'i') and not c.relispartition order by c.relkind = 'i'"
    )
    for row in names:
        kind = "index" if row["relkind"] == b"i" else "table"
        await jobs.connection.execute(f'drop {kind} if exists {SCHEMA}."{row["relname"]}" cascade')


async def test_all_of_it_works_where_only_node_installed_the_schema(
    http: httpx.AsyncClient, jobs: Jobs, no_own_tables: None
) -> None:
    job = await jobs.add("a", {"password": "x"}, queue="q", key="k:1")
    failed = await jobs.add("a")
    await fail(jobs, failed, "no")
    for path in (
        "/jobs", "/jobs?state=failed", "/jobs?state=ready", "/jobs?state=running", "/jobs?task=a",
        f"/jobs/{job}",
        f"/jobs/{failed}", f"{JOBS}/{job}/explanation", f"{JOBS}/{failed}/explanation",
        "/jobs/new", "/jobs/export",
    ):  # fmt: skip
        assert (await http.get(path)).status_code == 200, path
    assert (await http.get(f"{JOBS}?state=failed")).json()["count"] == {"value": 1, "kind": "exact"}
    assert (await http.post(f"{JOBS}/{job}/reveal", json={})).status_code == 200
    assert (await http.patch(f"{JOBS}/{job}", json={"payload": 1, "revision": 0})).status_code == 200
    assert (await http.post(JOBS, json={"task": "b"})).status_code == 201
