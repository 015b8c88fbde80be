"""The chart on the page of a queue: kept jobs that finished, and gaps where nothing is known."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from admin.callers import drop_own_tables
from graphile_worker import WorkerUtils
from graphile_worker.admin import AdminApp
from graphile_worker.admin.answers import RangeName
from graphile_worker.admin.live.hub import hubs_of
from graphile_worker.admin.queues import queries
from graphile_worker.admin.tasks.series import RANGES
from support.working import SCHEMA

HISTORY = f"{SCHEMA}._private_py_history"
Keep = Callable[..., Awaitable[None]]


@pytest.fixture
async def keep(connection: Any) -> Keep:
    """Puts finished jobs into the history, as workers keep them."""
    await connection.execute(f"insert into {SCHEMA}._private_py_task_names values (901, 'mail')")
    await connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{HISTORY}'::regclass, current_date + 7)"
    )

    async def keep(queue: str | None, state: str, *, minutes_ago: float, number: int = 1) -> None:
        await connection.execute(
            f"insert into {HISTORY} (job_id, task_id, state, queue_name, priority, attempts, max_attempts, "
            "created_at, run_at, finished_at, expires_on) select n, 901, $1, $2, 0, 1, 25, now(), now(), "
            "date_trunc('minute', now()) - $3::float8 * interval '1 minute', current_date + 7 "
            "from generate_series(1, $4::integer) n",
            state, queue, minutes_ago, number,
        )  # fmt: skip

    return keep


@pytest.fixture
async def page(admin: AdminApp, http: httpx.AsyncClient, utils: WorkerUtils) -> Callable[..., Awaitable[str]]:
    """Reads the page of the queue `q`, whose chart is not remembered."""
    await utils.add_job("mail", queue_name="q")

    async def page(**query: str) -> str:
        hubs_of(admin).of(admin.databases[0])._shared.clear()
        answer = await http.get("/queue", params={"name": "q", **query})
        assert answer.status_code == 200, answer.text
        return answer.text

    return page


def values_in(page: str) -> dict[str, list[str]]:
    found = re.findall(r'data-name="(\w+)" data-values="([^"]*)"', page)
    return {name: values.split(",") for name, values in found}


async def test_the_chart_counts_the_kept_jobs_of_the_queue(keep: Keep, page: Any) -> None:
    await keep("other", "completed", minutes_ago=29.5, number=4)
    await keep("q", "completed", minutes_ago=9.5, number=6)
    await keep("q", "failed", minutes_ago=9.5)
    await keep("q", "completed", minutes_ago=4.5, number=2)
    await keep("q", "cancelled", minutes_ago=4.5)
    await keep("q [2]", "completed", minutes_ago=4.5)
    await keep("q", "completed", minutes_ago=-0.1, number=100)  # in a step that is not over
    text = await page()
    assert "Only jobs that are kept are counted. The gap is the time before the earliest" in text
    found = values_in(text)
    assert len(found["completed"]) == 60
    assert [value for value in found["completed"] if value not in ("", "0")] == ["6", "2"]
    assert [value for value in found["failed"] if value not in ("", "0")] == ["1"]
    known = [number for number, value in enumerate(found["completed"]) if value]
    assert known == list(range(known[0], 60))  # nothing is known of the time before the history begins
    assert 29 <= 60 - known[0] <= 31
    assert 'aria-current="true">1 h</a>' in text
    text = await page(range="15m")
    assert "Only jobs that are kept are counted.</p>" in text
    assert len(values_in(text)["completed"]) == 15


async def test_only_the_latest_jobs_are_read_and_the_page_says_so(
    keep: Keep, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minutes in range(2, 30):
        await keep("q" if minutes % 2 else None, "completed", minutes_ago=minutes - 0.5)
    assert "nothing is known" not in await page()
    monkeypatch.setattr(queries, "MOST_FINISHED", 10)
    text = await page()
    assert re.search(
        r"The latest 10 finished jobs of all queues were read, back to <time .*nothing is known", text
    )
    found = values_in(text)["completed"]
    assert found.count("") >= 48
    assert found.count("1") in (4, 5)


async def test_a_queue_whose_completed_jobs_are_not_kept(keep: Keep, page: Any, connection: Any) -> None:
    text = await page()
    assert "No finished job of this queue was found in the last 1 h." in text
    assert "No completed one was found: by default, workers keep failed jobs only" in text
    await keep("q", "failed", minutes_ago=9.5)
    text = await page()
    assert set(values_in(text)) == {"failed"}  # workers keep failed jobs by default
    assert "No completed one was found: by default, workers keep failed jobs only" in text


async def test_without_a_history_the_page_says_what_it_needs(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    await utils.add_job("mail", queue_name="q")
    await drop_own_tables(connection)
    text = (await http.get("/queue", params={"name": "q"})).text
    assert "Finished jobs: not recorded here." in text


async def test_a_wrong_range_is_refused_and_the_api_has_no_chart(http: httpx.AsyncClient, page: Any) -> None:
    await page()
    assert (await http.get("/queue", params={"name": "q", "range": "1y"})).status_code == 400
    assert set((await http.get("/api/v1/queue", params={"name": "q"})).json()) == {
        "queue",
        "running",
        "stuck",
    }


@pytest.mark.parametrize("name", RANGES)
async def test_every_range_can_be_chosen(keep: Keep, page: Any, name: RangeName) -> None:
    await keep("q", "completed", minutes_ago=60 * 24 * 3)
    text = await page(range=name)
    values = values_in(text)
    assert all(len(each) == RANGES[name].count for each in values.values())
    assert bool(values) == (RANGES[name].seconds > 3 * 24 * 3600)
