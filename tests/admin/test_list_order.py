"""Lists of workers, queues and error groups in the order that was asked for."""

from __future__ import annotations

from typing import Any, get_args

import httpx
import pytest

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.admin.answers import in_order
from graphile_worker.admin.failures import queries as failures
from graphile_worker.admin.failures.queries import FailureOrder
from graphile_worker.admin.queues import views as queues
from graphile_worker.admin.queues.queries import QueueOrder
from graphile_worker.admin.tasks import views as tasks
from graphile_worker.admin.tasks.queries import TaskOrder
from graphile_worker.admin.workers import views as workers
from graphile_worker.admin.workers.queries import WorkerOrder
from support.working import SCHEMA, Jobs

ORDERS: tuple[tuple[Any, Any, str], ...] = (
    (TaskOrder, tasks, "busiest"), (WorkerOrder, workers, "usual"), (QueueOrder, queues, "usual"),
    (FailureOrder, failures, "last"),
)  # fmt: skip
GROUP = f"""
insert into {SCHEMA}._private_py_error_groups values
  ($1, 901, 'OSError', $1, 'shop.py in send', now() - $2 * interval '1 minute',
   now() - $3 * interval '1 minute', $4, 4, 7, '1.4.2', '1.4.2')
"""
WORKER = f"""
insert into {SCHEMA}._private_py_workers
  (id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, jobs_held, running)
select
  $1::text, 'host-' || $1::text, 1, '1.0', array['t'], $2, 'heartbeat', interval '1 day', interval '1 day',
  $3::integer, coalesce(jsonb_agg(jsonb_build_array(n, 1.5)), '[]')
from generate_series(1, $3) n
"""


def test_what_is_not_known_comes_last_and_equal_rows_are_by_name() -> None:
    rows = [("b", 1), ("x", None), ("a", 1), ("c", 2)]
    values = {"name": lambda row: row[0], "rate": lambda row: row[1], "oldest": lambda row: row[1]}
    for order, names in (("rate", "cabx"), ("oldest", "abcx"), ("name", "abcx"), ("as read", "bxac")):
        assert "".join(name for name, _ in in_order(rows, order, values)) == names, order


@pytest.mark.parametrize(
    ("orders", "module", "usual"), ORDERS, ids=["tasks", "workers", "queues", "failures"]
)
def test_every_order_has_a_value(orders: Any, module: Any, usual: str) -> None:
    assert set(get_args(orders)) == {usual, *module.VALUES}


@pytest.mark.parametrize("path", ["workers", "queues", "failures"])
async def test_another_order_is_refused(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(f"/api/v1/{path}", params={"order": "secret"})).status_code == 400


async def names_of(http: httpx.AsyncClient, path: str, name: str, **query: Any) -> list[str]:
    answer = await http.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return [row[name] for row in answer.json()["items"]]


async def test_queues_are_sorted_and_a_page_of_them_says_what_is(
    http: httpx.AsyncClient, utils: WorkerUtils, jobs: Jobs
) -> None:
    specs = [("a", 2), ("b", 5), ("c", 1), ("d", 1)]
    await utils.add_jobs([JobSpec("t", queue_name=name) for name, number in specs for _ in range(number)])
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = now() - interval '1 hour' where job_queue_id = "
        f"(select id from {SCHEMA}._private_job_queues where queue_name = 'c')"
    )
    for order, names in (("waiting", "bacd"), ("name", "abcd"), ("oldest", "c"), ("locked", "abcd")):
        found = await names_of(http, "queues", "queue_name", order=order)
        assert "".join(found).startswith(names), order
    assert await names_of(http, "queues", "queue_name", order="waiting", limit=2) == ["b", "a"]
    page = (await http.get("/queues", params={"order": "waiting"})).text
    assert '<th scope="col" class="num" aria-sort="descending">Waiting</th>' in page
    assert '<a class="sort" href="/queues?order=oldest">Oldest</a>' in page
    assert "Only the queues on this page are sorted." not in page
    page = (await http.get("/queues", params={"order": "name", "limit": 2})).text
    assert '<th scope="col" class="cut" aria-sort="ascending">Queue</th>' in page
    assert "Only the queues on this page are sorted." in page
    assert "/queues?order=name&amp;after=" in page


async def test_error_groups_are_sorted_over_all_pages(
    http: httpx.AsyncClient, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connection.execute(f"insert into {SCHEMA}._private_py_task_names values (901, 'mail')")
    for name, first, last, errors in (("aa", 50, 3, 7), ("bb", 5, 2, 70), ("cc", 40, 1, 1), ("dd", 9, 4, 9)):
        await connection.execute(GROUP, name * 8, first, last, errors)
    for order, names in (("last", "cbad"), ("first", "bdca"), ("name", "abcd"), ("attempts", "bdac")):
        seen, query = "", {"order": order, "limit": "3"}
        while True:
            found = (await http.get("/api/v1/failures", params=query)).json()
            seen += "".join(group["fingerprint"][0] for group in found["items"])
            if found.get("next") is None:
                break
            query["after"] = found["next"]
        assert seen == names, order
    page = (await http.get("/failures", params={"order": "attempts", "period": "7d", "limit": "3"})).text
    assert '<th scope="col" class="num wide" aria-sort="descending">Attempts</th>' in page
    assert '<a class="sort" href="/failures?period=7d&amp;order=failed">Failed</a>' in page
    assert "/failures?period=7d&amp;order=attempts&amp;after=3" in page
    assert failures.NOT_ALL not in page
    for wrong in ("x", "-1", "501", "9" * 50):
        answer = await http.get("/api/v1/failures", params={"order": "failed", "after": wrong})
        assert answer.status_code == 400, wrong
    monkeypatch.setattr(failures, "GROUPS", 2)
    found = (await http.get("/api/v1/failures", params={"order": "attempts"})).json()
    assert [group["fingerprint"][0] for group in found["items"]] == ["b", "c"]
    assert found["note"] == failures.NOT_ALL


async def test_workers_are_sorted(http: httpx.AsyncClient, connection: Any) -> None:
    for name, slots, busy in (("a", 4, 1), ("b", 20, 0), ("c", 10, 2)):
        await connection.execute(WORKER, name, slots, busy)
    for order, names in (("slots", "bca"), ("busy", "cab"), ("name", "abc"), ("memory", "abc")):
        assert "".join(await names_of(http, "workers", "id", order=order)) == names, order
    page = (await http.get("/workers", params={"order": "busy"})).text
    assert '<th scope="col" class="num" aria-sort="descending">Busy</th>' in page
    phone = page.partition('<details class="phone body">')[2].partition("</details>")[0]
    for name in (
        "name",
        "slots",
        "memory",
        "processor",
        "rate",
        "failing",
        "since",
    ):  # also of hidden columns
        assert f'<a href="/workers?order={name}">' in phone
    assert '<a href="/workers?order=busy" aria-current="true">Busy</a>' in phone
