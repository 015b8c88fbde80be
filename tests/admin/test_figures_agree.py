"""Figures that stand side by side say the same, and charts say what they leave out."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import httpx

from graphile_worker import JobSpec, WorkerUtils, run_once
from support.working import SCHEMA

PAGES = "select pg_relation_size($1::text::regclass) / current_setting('block_size')::int"


async def pages(connection: Any) -> int:
    found: int = await connection.fetchval(PAGES, f"{SCHEMA}._private_jobs")
    return found


async def test_the_tab_counts_all_jobs_that_wait_for_a_retry(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    """Also more than a large table lets it read."""
    await utils.add_jobs([JobSpec("a", run_at=timedelta(hours=1))] * 300)
    await connection.execute(f"update {SCHEMA}._private_jobs set attempts = 1 where id % 3 > 0")
    assert ">Retrying 200</a>" in (await http.get("/jobs")).text


async def test_a_table_of_a_thousand_jobs_is_counted(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    """No "≈ 0" beside exact numbers."""
    payload = {"text": "x" * 700}
    await utils.add_jobs([JobSpec("many", payload)] * 1_200)
    await utils.add_jobs([JobSpec("few", payload)] * 3)
    assert 100 < await pages(connection) < 200
    rows = {row["name"]: row["ready"] for row in (await http.get("/api/v1/tasks")).json()["items"]}
    assert rows == {
        "many": {"value": 1_200, "kind": "exact"}, "few": {"value": 3, "kind": "exact"},
    }  # fmt: skip


async def test_the_chart_of_a_group_says_how_many_attempts_it_has(
    http: httpx.AsyncClient, utils: WorkerUtils, database_url: str
) -> None:
    async def fail(payload: Any) -> None:
        raise ValueError("the bank is closed")

    async def title(number: int) -> str:
        await utils.add_jobs([JobSpec("charge", max_attempts=1)] * number)
        await run_once(connection_string=database_url, task_list={"charge": fail})
        (group,) = (await http.get("/api/v1/failures")).json()["items"]
        page = (await http.get(f"/failures/{group['fingerprint']}")).text
        return page.partition('<h2 class="chart-title">')[2].partition("</h2>")[0]

    assert await title(2) == "Failed attempts in the last 7 days"
    # Of each minute a hundred are kept.
    assert re.fullmatch(r"Failed attempts in the last 7 days, the latest \d+ of 500", await title(498))


async def test_a_paused_queue_has_its_reason_as_a_sentence(
    http: httpx.AsyncClient, utils: WorkerUtils
) -> None:
    await utils.add_job("a", queue_name="q")
    await utils.queues.pause("q", until=timedelta(hours=1), reason="bank")
    page = (await http.get("/queue", params={"name": "q"})).text
    assert ".</span> <span>Reason: bank</span>" in page


async def test_a_page_has_the_whole_name(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    """As long as names may be; lists cut them."""
    name = "q" * 124 + "-end"
    await utils.add_job(name, queue_name=name)
    for path in ("/queue", "/task"):
        page = (await http.get(path, params={"name": name})).text
        assert f"<h1>{name}" in page, path
        assert f'data-copy="{name}"' in page, path
