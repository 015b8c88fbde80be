"""Actions, operations and the audit as pages, without script."""

from __future__ import annotations

from typing import Any

import httpx

from admin.test_operations import add_failed, ended
from graphile_worker import WorkerUtils


async def test_an_action_asks_first_and_offers_to_undo(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    jobs = [(await utils.add_job("a")).id for _ in range(2)]
    fields: dict[str, Any] = {"action": "delete", "ids": jobs, "back": "/jobs?state=failed"}
    question = await http.post("/jobs/actions", data=fields)
    assert question.status_code == 200
    assert f"Delete jobs {jobs[0]} and {jobs[1]}?" in question.text
    assert len(await utils.jobs.list()) == 2
    done = await http.post("/jobs/actions", data={**fields, "confirmed": "yes", "reason": "<b>"})
    assert (done.status_code, done.headers["location"]) == (303, "/jobs?state=failed")
    assert await utils.jobs.list() == []
    entry = (await http.get("/api/v1/audit")).json()["items"][0]
    undone = await http.post(f"/audit/{entry['id']}/undo")
    assert undone.status_code == 303
    assert len(await utils.jobs.list()) == 2


async def test_back_never_leads_to_another_site(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a")
    for back in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        done = await http.post("/jobs/actions", data={"action": "retry", "ids": job.id, "back": back})
        assert done.headers["location"] == f"/jobs/{job.id}"


async def test_reschedule_says_the_time_in_utc(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a")
    http.cookies.set("gw_zone", "Europe/Berlin")
    form = await http.get("/jobs/actions", params={"action": "reschedule", "ids": job.id})
    assert "Your time zone: Europe/Berlin" in form.text
    fields = {"action": "reschedule", "ids": job.id, "run_at": "2040-06-01T12:00", "priority": "5"}
    question = await http.post("/jobs/actions", data=fields)
    assert "2040-06-01 10:00:00 UTC" in question.text
    await http.post("/jobs/actions", data={**fields, "confirmed": "yes"})
    details = await utils.jobs.get(job.id)
    assert details is not None
    assert (details.run_at.isoformat(), details.priority) == ("2040-06-01T10:00:00+00:00", 5)
    wrong = await http.post("/jobs/actions", data={**fields, "run_at": "soon", "confirmed": "yes"})
    assert wrong.status_code == 400


async def test_an_operation_from_the_question_to_the_end(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    await add_failed(utils, 7)
    fields = {"action": "retry", "q": "state:failed"}
    question = await http.post("/operations/new", data=fields)
    assert "<strong>7 jobs</strong>" in question.text
    begun = await http.post("/operations/new", data={**fields, "confirmed": "yes"})
    assert begun.status_code == 303
    path = begun.headers["location"]
    await ended(http, int(path.rpartition("/")[2]))
    page = await http.get(path)
    assert "7 jobs changed" in page.text
    assert "state:failed" in page.text
    assert path.rpartition("/")[2] in (await http.get("/operations")).text
    audit = await http.get(
        "/audit", params={"since": "2020-01-01", "action": "retry", "who": "anonymous", "job": ""}
    )
    assert "state:failed" in audit.text
    assert "Undo" in audit.text


async def test_a_running_operation_can_be_stopped_on_its_page(
    http: httpx.AsyncClient, utils: WorkerUtils
) -> None:
    await add_failed(utils, 9)
    fields = {"action": "retry", "q": "state:failed", "rate": "1", "confirmed": "yes"}
    path = (await http.post("/operations/new", data=fields)).headers["location"]
    page = await http.get(path)
    assert 'http-equiv="refresh"' in page.text  # without script, the page reloads itself
    stopped = await http.post(f"{path}/stop")
    assert stopped.status_code == 303
    done = await ended(http, int(path.rpartition("/")[2]))
    assert done["state"] == "stopped"
    assert "Stopped by a person." in (await http.get(path)).text


async def test_pages_without_the_tables(http: httpx.AsyncClient, connection: Any) -> None:
    for table in ("audit", "before", "operations", "muted_errors"):
        await connection.execute(f"drop table graphile_worker._private_py_{table}")
    for path in ("/audit", "/operations"):
        page = await http.get(path)
        assert page.status_code == 200
        assert "graphile-worker migrate" in page.text
