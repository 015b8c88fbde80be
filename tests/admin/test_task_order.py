"""The list of tasks in the order that was asked for."""

from __future__ import annotations

import httpx
import pytest

from admin.test_overview import Past
from graphile_worker import JobSpec, WorkerUtils

from .test_overview import past as past

ORDERS = {
    "name": ["a", "b", "c"],
    "waiting": ["b", "a", "c"],
    "rate": ["c", "a", "b"],
    "failing": ["a", "c", "b"],
    "p95": ["a", "c", "b"],
    "workers": ["a", "b", "c"],
}


async def test_the_largest_value_comes_first(http: httpx.AsyncClient, utils: WorkerUtils, past: Past) -> None:
    await utils.add_jobs([JobSpec("b")] * 5 + [JobSpec("a")] * 2 + [JobSpec("c")])
    await past.statistics("a", completed=2, failed=8, minutes=range(1, 20))
    await past.statistics("c", completed=50, failed=1, minutes=range(1, 20))
    for order, names in ORDERS.items():
        found = (await http.get("/api/v1/tasks", params={"order": order})).json()["items"]
        assert [row["name"] for row in found] == names, order
    page = (await http.get("/tasks", params={"order": "failing", "q": ""})).text
    assert '<th scope="col" class="num" aria-sort="descending">Failing</th>' in page
    assert '<a class="sort" href="/tasks?order=waiting">Waiting</a>' in page
    assert page.index(">a</a>") < page.index(">c</a>") < page.index(">b</a>")


@pytest.mark.parametrize("order", ["secret", "name,rate"])
async def test_another_order_is_refused(http: httpx.AsyncClient, order: str) -> None:
    assert (await http.get("/api/v1/tasks", params={"order": order})).status_code == 400
