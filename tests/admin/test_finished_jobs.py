"""The list of finished jobs, and what the search box finds besides jobs in the queue."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from admin.callers import drop_own_tables
from admin.test_job_list import fail, ids, viewer
from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.admin.jobs import searching
from graphile_worker.database.statements.job_filter import JobFilter
from graphile_worker.diagnostics.json_shapes import details_as_json, finished_job_as_json, record_as_json
from support.working import SCHEMA, Jobs, Workers

__all__ = ["viewer"]
JOBS = "/api/v1/jobs"
FINISHED: dict[str, Any] = {"state": "finished"}


async def keep(jobs: Jobs, job_id: int, state: str = "completed", task: str = "a", **values: Any) -> None:
    """Put a finished job into the history, as if a worker had kept it."""
    connection, history = jobs.connection, f"{SCHEMA}._private_py_history"
    await connection.execute(
        f"insert into {SCHEMA}._private_tasks (identifier) values ($1) on conflict do nothing", task
    )
    await connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{history}'::regclass, current_date + 7)"
    )
    row = {"queue_name": None, "job_key": None, "error": None, "duration": 1.0, "ago": 0, "pool_id": "pool"}
    await connection.execute(
        f"insert into {history} (job_id, task_id, state, priority, attempts, max_attempts, created_at, "
        "run_at, started_at, finished_at, expires_on, queue_name, job_key, error, duration, pool_id) "
        "select $1, id, $2, 0, 2, 5, now(), now(), now(), date_trunc('day', now()) - interval '1 s' * $8, "
        f"current_date + 7, $4, $5, $6, $7, $9 from {SCHEMA}._private_tasks where identifier = $3",
        job_id, state, task, *(row | values).values(),
    )  # fmt: skip


async def test_finished_jobs_are_found_by_every_condition(http: httpx.AsyncClient, jobs: Jobs) -> None:
    await keep(jobs, 901, task="mail", queue_name="out", job_key="mail:1", duration=0.2, ago=30)
    await keep(jobs, 902, "failed", "mail", error="TimeoutError: no answer", duration=45.0, ago=20)
    await keep(jobs, 903, "cancelled", "resize", pool_id="other", ago=10)
    assert await ids(http, **FINISHED) == [903, 902, 901]
    for query, found in (
        ({"outcome": "failed"}, [902]),
        ({"outcome": "completed"}, [901]),
        ({"outcome": "cancelled", "task": "resize"}, [903]),
        ({"outcome": "cancelled", "task": "mail"}, []),
        ({"task": "mail"}, [902, 901]),
        ({"queue": "out"}, [901]),
        ({"key": "mail:1"}, [901]),
        ({"key": "mail*"}, [901]),
        ({"worker": "other"}, [903]),
        ({"error": "timeouterror"}, [902]),
        ({"text": "timeout"}, [902]),
        ({"text": "resi"}, [903]),
        ({"duration": ">30s"}, [902]),
        ({"duration": "<500ms"}, [901]),
        ({"duration": "100ms..2s"}, [903, 901]),
        ({"id": "902"}, [902]),
        ({"id": "901-902"}, [902, 901]),
        ({"finished": "<2020-01-01"}, []),
        ({"finished": ">30d"}, [903, 902, 901]),
    ):
        assert await ids(http, **FINISHED, **query) == found, query
    assert await ids(http, q="outcome:failed task:mail") == [902]
    row = (await http.get(JOBS, params={**FINISHED, "id": "902"})).json()["items"][0]
    assert (row["state"], row["attempts_made"], row["duration"], row["revision"]) == ("failed", 2, 45.0, None)
    refused = await http.get(JOBS, params={**FINISHED, "priority": "1"})
    assert (refused.status_code, refused.json()["title"]) == (
        400,
        "Finished jobs are not searched by priority",
    )
    page = await http.get("/jobs", params=FINISHED)
    assert "TimeoutError: no answer" in page.text
    assert 'aria-sort="descending"' in page.text
    assert "/jobs/903" in page.text
    assert 'name="action"' not in page.text  # nothing of it can be changed
    changed = await http.post("/api/v1/operations", json={"action": "delete", "filter": "state:finished"})
    assert (changed.status_code, changed.json()["title"]) == (400, "Finished jobs cannot be changed")


@pytest.mark.parametrize("condition", [{}, {"task": "a"}, {"outcome": "failed"}, {"queue": "q"}])
async def test_pages_of_finished_jobs_lose_none_of_one_instant(
    http: httpx.AsyncClient, jobs: Jobs, condition: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of a batch end at the same time; a step of the search ends between two of them."""
    for job_id in (5, 1, 4, 2, 3):
        await keep(jobs, job_id, "failed", queue_name="q")
    await keep(jobs, 6, "failed", queue_name="q", ago=5)
    monkeypatch.setattr(searching, "STEP", 2)
    seen: list[int] = []
    query: dict[str, Any] = {**FINISHED, **condition, "limit": 2}
    while True:
        page = (await http.get(JOBS, params=query)).json()
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert seen == [5, 4, 3, 2, 1, 6]


async def test_secrets_of_finished_jobs_are_neither_shown_nor_found(
    http: httpx.AsyncClient, viewer: httpx.AsyncClient, jobs: Jobs
) -> None:
    await keep(jobs, 7, "failed", error="login refused: password=hunter2")
    for client in (http, viewer):
        for path in ("/jobs", JOBS, "/jobs/export", f"{JOBS}/export"):
            answer = await client.get(path, params=FINISHED)
            assert "login refused" in answer.text
            assert "hunter2" not in answer.text
    assert await ids(http, **FINISHED, error="hunter2") == [7]
    assert await ids(viewer, **FINISHED, error="hunter2") == []
    assert await ids(viewer, **FINISHED, text="hunter2") == []
    assert await ids(viewer, **FINISHED, error="refused") == [7]


async def test_without_kept_jobs_the_page_says_how_to_keep_them(http: httpx.AsyncClient, jobs: Jobs) -> None:
    assert "@task(keep=True)" in (await http.get("/jobs", params=FINISHED)).text
    assert (await http.get(JOBS, params=FINISHED)).json()["problem"].startswith("No finished job is kept")
    await drop_own_tables(jobs.connection)
    page = await http.get("/jobs", params=FINISHED)
    assert page.status_code == 200
    assert "graphile-worker migrate" in page.text


async def test_names_in_the_api_are_those_of_the_command_line(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers
) -> None:
    """Rows, details, errors and ends of jobs have the same keys in both."""

    async def no(payload: Any, helpers: Any) -> None:
        raise ValueError("no")

    kept = await utils.add_job(JobSpec("no", keep=True, max_attempts=1))
    await workers.once({"no": no})
    (details,) = await utils.jobs.list()
    (row,) = (await http.get(JOBS, params={"payload": "true"})).json()["items"]
    assert set(details_as_json(details)) <= set(row)
    record = await utils.jobs.get_record(kept.id)
    found = (await http.get(f"{JOBS}/{kept.id}")).json()
    expected = json.loads(json.dumps(record_as_json(record), default=str))
    assert set(expected) <= set(found)
    assert set(expected["errors"][0]) == set(found["errors"][0])
    assert set(expected["history"][0]) == set(found["history"][0])
    (finished,) = (await http.get(JOBS, params=FINISHED)).json()["items"]
    assert set(finished_job_as_json(record.history[0])) - {"error", "result"} <= set(finished)


# -- states, counts and orders ------------------------------------------------------------------------------


async def test_tabs_count_the_jobs_of_each_state(
    http: httpx.AsyncClient, jobs: Jobs, utils: WorkerUtils
) -> None:
    first, *_ = await jobs.add_many("a", 3)
    await fail(jobs, first, "no")
    await utils.add_job("a", run_at=timedelta(hours=1))
    retrying = await utils.add_job("a", run_at=timedelta(hours=1))
    await utils.reschedule_jobs([retrying.id], attempts=2)
    await keep(jobs, 900)
    page = (await http.get("/jobs")).text
    for text in ("All 5", "Ready 2", "Scheduled 2", "Retrying 1", "Running 0", "Failed 1", "Finished 1"):
        assert f">{text}</a>" in page, text
    assert await ids(http, state="retrying") == [retrying.id]
    assert [job.id for job in await utils.jobs.list(JobFilter(state="retrying"))] == [retrying.id]
    done = await utils.complete_jobs(filter=JobFilter(state="retrying"))
    assert done.changed == 1


async def test_headers_say_the_order_and_lead_to_another(http: httpx.AsyncClient, jobs: Jobs) -> None:
    await jobs.add_many("a", 2)
    newest = (await http.get("/jobs")).text
    assert 'aria-sort="descending"><a class="sort" href="/jobs?order=oldest">Id</a>' in newest
    assert '<a class="sort" href="/jobs?order=run_order">When</a>' in newest
    assert 'aria-sort="ascending"><a class="sort" href="/jobs?order=newest">Id</a>' in (
        await http.get("/jobs?order=oldest")
    ).text  # fmt: skip
    waiting = (await http.get("/jobs?state=ready")).text
    assert 'aria-sort="ascending">When</th>' in waiting


async def test_what_changes_all_jobs_that_match_stands_above_them(
    http: httpx.AsyncClient, jobs: Jobs
) -> None:
    await jobs.add_many("a", 3)
    page = (await http.get("/jobs?task=a")).text
    assert page.index("All 3 that match") < page.index("<table")


async def test_jobs_of_a_queue_come_from_its_index(http: httpx.AsyncClient, jobs: Jobs) -> None:
    waiting = await jobs.add("a", queue="mails")
    failed = await jobs.add("a", queue="mails")
    await fail(jobs, failed, "no")
    await jobs.add("a", queue="mails [2] not a track")
    found = (await http.get(JOBS, params={"queue": "mails"})).json()
    assert ([job["id"] for job in found["items"]], found["order"], found["searched"]) == (
        [waiting], "run_order", None,
    )  # fmt: skip
    assert await ids(http, queue="mails", order="newest") == [failed, waiting]
    assert await ids(http, queue="mails", state="failed") == [failed]
    page = (await http.get("/jobs", params={"queue": "mails"})).text
    assert "/jobs?state=failed&amp;queue=mails" in page
    assert "that match, in any state" in page


# -- the search box -----------------------------------------------------------------------------------------


async def test_the_search_box_finds_queues_schedules_and_jobs_that_are_gone(
    http: httpx.AsyncClient, jobs: Jobs
) -> None:
    await jobs.add("import_users", queue="imports")
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_known_crontabs (identifier, known_since) "
        "values ('nightly imports', now())"
    )
    await keep(jobs, 4711)
    found = (await http.get("/api/v1/find", params={"q": "import"})).json()["items"]
    assert [(item["kind"], item["label"]) for item in found] == [
        ("task", "import_users"), ("queue", "imports"), ("schedule", "nightly imports"),
    ]  # fmt: skip
    for item in found:
        assert (await http.get(item["path"])).status_code == 200, item
    page = (await http.get("/jobs", params={"q": "imports"})).text
    assert 'href="/queue?name=imports"' in page
    assert (await http.get("/api/v1/find", params={"q": "4711"})).json()["items"] == [
        {"label": "4711", "kind": "job", "path": "/jobs/4711"}
    ]
    gone = (await http.get("/jobs", params={"q": "4711"})).text
    assert "No job matches" not in gone
    assert 'href="/jobs/4711"' in gone
    assert "No job matches" in (await http.get("/jobs", params={"q": "4712"})).text
