"""The list of jobs: filters, orders, pages, counts, searches, files."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from admin.conftest import client_of
from graphile_worker.admin import AdminApp, Identity, admin_app
from graphile_worker.admin.jobs import listing, searching
from support.working import PATIENCE, SCHEMA, Jobs

JOBS = "/api/v1/jobs"


@pytest.fixture
async def viewer(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Someone who may not see secrets."""
    app: AdminApp = admin_app(
        connection_string=database_url, authorize=lambda request: Identity.with_role("vera", "viewer")
    )
    async with client_of(app) as client:
        yield client
    await app.aclose()


async def ids(http: httpx.AsyncClient, **query: Any) -> list[int]:
    answer = await http.get(JOBS, params=query)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["items"]]


async def fail(jobs: Jobs, job_id: int, error: str) -> None:
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = max_attempts, last_error = $2 where id = $1",
        job_id,
        error,
    )


async def test_filters_choose_jobs_from_the_box_and_from_parameters(
    http: httpx.AsyncClient, jobs: Jobs
) -> None:
    first = await jobs.add("send_email", {"user_id": 42}, key="mail:1", queue="mails", flags=["slow"])
    second = await jobs.add("resize", {"user_id": "42"}, priority=-5)
    third = await jobs.add("resize")
    await fail(jobs, third, "TimeoutError: no answer")
    assert await ids(http) == [third, second, first]
    assert await ids(http, order="oldest") == [first, second, third]
    assert await ids(http, order="run_order") == [second, first]
    for query in (
        {"state": "failed"}, {"q": "state:failed"}, {"error": "timeout"}, {"q": "timeout"},
        {"q": 'error:"no answer"'}, {"id": str(third)}, {"q": str(third)}, {"attempts": ">0"},
        {"failed": ">1h"},
    ):  # fmt: skip
        assert await ids(http, **query) == [third], query
    for query in (
        {"task": "send_email"}, {"queue": "mails"}, {"key": "mail:1"}, {"key": "mail*"}, {"flag": "slow"},
        {"q": "queue:mails payload.user_id:42"}, {"q": "mail:"},
    ):  # fmt: skip
        assert await ids(http, **query) == [first], query
    assert await ids(http, **{"payload.user_id": "42"}) == [second, first]
    assert await ids(http, priority="<0") == [second]
    assert await ids(http, state="ready") == [second, first]
    assert await ids(http, q="created:>1h run:<now state:ready task:resize") == [second]
    assert await ids(http, created="<1h") == []


async def test_a_filter_that_makes_no_sense_says_why(http: httpx.AsyncClient) -> None:
    for query, said in (
        ({"state": "done"}, "There is no state 'done'"),
        ({"priority": "low"}, "priority is not a number or a range"),
        ({"created": "soon"}, "created is not a time"),
        ({"q": "state:failed", "order": "run_order"}, "Only waiting jobs have a run order"),
        ({"task": "x" * 300}, "A value is not valid"),
        ({"limit": "201"}, "A value is not valid"),
        ({"after": "nonsense"}, "The cursor is not valid"),
    ):
        answer = await http.get(JOBS, params=query)
        assert (answer.status_code, answer.json()["title"]) == (400, said)
    page = await http.get("/jobs", params={"q": "state:done"})
    assert page.status_code == 400
    assert "There is no state" in page.text
    assert 'value="state:done"' in page.text


@pytest.mark.parametrize("order", ["newest", "oldest", "run_order"])
async def test_pages_follow_each_other_in_every_order(
    http: httpx.AsyncClient, jobs: Jobs, order: str
) -> None:
    added = await jobs.add_many("a", 7)
    wanted = added[::-1] if order == "newest" else added
    seen: list[int] = []
    cursor: str | None = None
    pages = []
    while True:
        query: dict[str, Any] = {"order": order, "limit": 3} | ({} if cursor is None else {"after": cursor})
        page = (await http.get(JOBS, params=query)).json()
        pages.append(page)
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == wanted
    assert [len(page["items"]) for page in pages] == [3, 3, 1]
    assert pages[0]["previous"] is None
    if order != "run_order":
        back = (
            await http.get(JOBS, params={"order": order, "limit": 3, "before": pages[2]["previous"]})
        ).json()
        assert back["items"] == pages[1]["items"]
        assert back["next"] == pages[1]["next"]
        again = (await http.get(JOBS, params={"order": order, "limit": 3, "before": back["previous"]})).json()
        assert again["items"] == pages[0]["items"]
        assert again["previous"] is None
    other = "oldest" if order == "newest" else "newest"
    answer = await http.get(JOBS, params={"order": other, "after": pages[0]["next"]})
    assert (answer.status_code, answer.json()["title"]) == (400, "The cursor is for another list")


async def test_counts_say_their_kind(
    http: httpx.AsyncClient, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await jobs.add_many("a", 9)
    await jobs.add("b")
    await jobs.connection.execute("analyze")

    async def count(**query: Any) -> tuple[int, str]:
        found = (await http.get(JOBS, params={"limit": 4, **query})).json()["count"]
        return found["value"], found["kind"]

    assert await count() == (10, "exact")
    assert await count(task="b") == (1, "exact")
    assert await count(task="a") == (4, "at_least")
    monkeypatch.setattr(listing, "BOUND", 5)
    assert await count() == (10, "estimate")
    assert await count(state="ready") == (5, "at_least")
    exact = await http.get(f"{JOBS}/count", params={"task": "a"})
    assert exact.json() == {"value": 9, "kind": "exact"}


def set_budget(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(searching, "BUDGET", seconds)


async def test_a_search_that_no_index_serves_says_how_far_it_came(
    http: httpx.AsyncClient, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = await jobs.add("rare")
    await jobs.add_many("common", 20)
    monkeypatch.setattr(searching, "STEP", 6)
    set_budget(monkeypatch, PATIENCE)
    whole = (await http.get(JOBS, params={"task": "rare"})).json()
    assert [job["id"] for job in whole["items"]] == [rare]
    assert whole["searched"]["is_complete"]
    set_budget(monkeypatch, 0.0)
    found: list[int] = []
    answer = (await http.get(JOBS, params={"task": "rare"})).json()
    assert answer["searched"] == {"jobs": 6, "of": {"value": 21, "kind": "exact"}, "is_complete": False}
    page = await http.get("/jobs", params={"task": "rare"})
    assert "Searched 6 of 21 jobs, 0 found." in page.text
    while answer["next"] is not None:
        found += [job["id"] for job in answer["items"]]
        answer = (await http.get(JOBS, params={"task": "rare", "after": answer["next"]})).json()
    found += [job["id"] for job in answer["items"]]
    assert found == [rare]


async def test_secrets_are_redacted_and_a_search_does_not_tell_them(
    http: httpx.AsyncClient, viewer: httpx.AsyncClient, jobs: Jobs
) -> None:
    secret = await jobs.add(
        "a", {"password": "hunter2", "big": 12345678901234567890, "url": "amqp://u:hunter2@h"}
    )
    await fail(jobs, secret, "cannot reach amqp://u:hunter2@h, token=hunter2 is wrong")
    for client in (http, viewer):
        listed = await client.get(JOBS, params={"payload": "true"})
        assert "hunter2" not in listed.text
        assert "12345678901234567890" in listed.text
        for path in ("/jobs", "/jobs/export", f"{JOBS}/export?format=csv"):
            assert "hunter2" not in (await client.get(path)).text
    assert await ids(http, error="hunter2") == [secret]
    assert await ids(http, **{"payload.password": "hunter2"}) == [secret]
    assert await ids(viewer, error="hunter2") == []
    assert await ids(viewer, q="hunter2") == []
    assert await ids(viewer, error="is wrong") == [secret]
    assert await ids(viewer, q="cannot reach") == [secret]
    for query in ({"payload.password": "hunter2"}, {"payload.url": "amqp://u:hunter2@h"}):
        answer = await viewer.get(JOBS, params=query)
        assert (answer.status_code, answer.json()["title"]) == (403, "This cannot be searched")
    counted = await viewer.get(f"{JOBS}/count", params={"error": "hunter2"})
    assert counted.json() == {"value": 0, "kind": "exact"}


async def test_files_hold_all_jobs_that_match_and_no_formulas(http: httpx.AsyncClient, jobs: Jobs) -> None:
    added = await jobs.add_many("a", 5)
    await jobs.add("b", key="=1+1")
    lines = (await http.get("/jobs/export", params={"task": "a", "order": "oldest"})).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == added
    assert json.loads(lines[0])["payload"] == {"n": 0}
    answer = await http.get(f"{JOBS}/export", params={"format": "csv", "limit": 4})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert rows[0]["key"] == "'=1+1"
    assert len(rows) == 4
    rest = await http.get(f"{JOBS}/export", params={"format": "csv", "after": answer.headers["x-next"]})
    assert len(list(csv.DictReader(io.StringIO(rest.text)))) == 2
    assert "x-next" not in rest.headers


async def test_the_page_lists_jobs_and_what_to_do_without_any(http: httpx.AsyncClient, jobs: Jobs) -> None:
    assert "There are no jobs." in (await http.get("/jobs")).text
    assert "No job matches." in (await http.get("/jobs", params={"task": "x"})).text
    job = await jobs.add("send_email", queue="mails", key="<script>alert(1)</script>")
    page = (await http.get("/jobs")).text
    assert f'href="/jobs/{job}"' in page
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    completion = (await http.get(f"{JOBS}/completion", params={"q": "task:send"})).json()["items"]
    assert completion == [{"value": "task:send_email", "hint": ""}]
    values = [
        item["value"] for item in (await http.get(f"{JOBS}/completion", params={"q": "s"})).json()["items"]
    ]
    assert values == ["state:", "task:send_email"]
    queues = (await http.get(f"{JOBS}/completion", params={"q": "queue:m"})).json()["items"]
    assert queues == [{"value": "queue:mails", "hint": ""}]


async def test_the_last_column_has_the_key_and_flags_or_a_dash(http: httpx.AsyncClient, jobs: Jobs) -> None:
    await jobs.add("neither")
    await jobs.add("flagged", flags=["bulk"])
    await jobs.add("keyed", key="mail:1")
    page = (await http.get("/jobs")).text
    cells = re.findall(r'<td class="cut slim wider">(.*?)</td>', page, re.DOTALL)
    assert [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in cells] == ["mail:1", "bulk", "—"]


async def test_the_buttons_of_the_list_lead_to_their_actions(
    http: httpx.AsyncClient, viewer: httpx.AsyncClient, jobs: Jobs
) -> None:
    first, second = await jobs.add("a"), await jobs.add("a")
    for job in (first, second):
        await fail(jobs, job, "boom")
    listed = "/jobs?q=state%3Afailed"
    page = (await http.get(listed)).text
    selection = re.search(r'<form id="selection" method="post" action="([^"]+)".*?</form>', page, re.DOTALL)
    assert selection is not None
    back = re.search(r'name="back" value="([^"]*)"', selection[0])
    assert back is not None
    names = re.findall(r'name="action" value="(\w+)"', selection[0])
    assert {"retry", "reschedule", "delete"} <= set(names)
    assert re.findall(r'name="ids" value="(\d+)"', page) == [str(second), str(first)]
    for name in names:
        asked = await http.post(
            selection[1], data={"action": name, "ids": str(first), "back": html.unescape(back[1])}
        )
        assert asked.status_code in (200, 303), (name, asked.text)
    forms = re.findall(
        r'<form class="inline" method="post" action="/operations/new".*?</form>', page, re.DOTALL
    )
    assert forms
    for form in forms:
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        asked = await http.post("/operations/new", data={k: html.unescape(v) for k, v in fields.items()})
        assert asked.status_code == 200, (fields, asked.text)
        assert "state:failed" in asked.text
    restricted = (await viewer.get(listed)).text
    assert 'name="action" value=' not in restricted
    assert "/operations/new" not in restricted
