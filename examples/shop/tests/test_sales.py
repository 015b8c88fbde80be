"""The endpoints that wait for the result of a job, and that ask for it later."""

from __future__ import annotations

import httpx

from graphile_worker import run
from graphile_worker.testing import RunJobs
from shop.worker import app


async def test_an_endpoint_waits_for_the_result(
    web: httpx.AsyncClient, services: tuple[object, ...], graphile_worker_database: str
) -> None:
    async with run(app=app, extensions=services, connection_string=graphile_worker_database):
        found = await web.get("/sales/socks")
        missing = await web.get("/sales/gloves")
    assert found.json() == {"sku": "socks", "orders": 0, "cents": 0}
    assert (missing.status_code, missing.json()) == (
        422,
        {"detail": "GiveUp: there is no product gloves"},
    )


async def test_an_endpoint_is_asked_until_the_job_has_ended(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...]
) -> None:
    begun = (await web.post("/sales/socks")).json()
    assert (await web.get(f"/sales/jobs/{begun['job_id']}")).json()["state"] == "ready"
    (await run_jobs(app=app, extensions=services)).check()
    answer = (await web.get(f"/sales/jobs/{begun['job_id']}")).json()
    assert (answer["state"], answer["sales"]) == ("completed", {"sku": "socks", "orders": 0, "cents": 0})


async def test_a_failure_is_told_without_the_place_in_the_code(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...]
) -> None:
    begun = (await web.post("/sales/gloves")).json()
    await run_jobs(app=app, extensions=services)
    answer = (await web.get(f"/sales/jobs/{begun['job_id']}")).json()
    assert (answer["state"], answer["error"]) == ("failed", "GiveUp: there is no product gloves")
