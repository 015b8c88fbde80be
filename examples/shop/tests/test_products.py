"""The search index follows changes, and a bad row does not stop an import."""

from __future__ import annotations

from datetime import timedelta

import httpx

from graphile_worker.testing import AddedJobs, FakeClock, RunJobs
from shop.tasks.catalogue import import_products
from shop.tasks.search import index_product
from shop.worker import app


async def test_several_changes_update_the_index_once(
    graphile_worker_clock: FakeClock,
    web: httpx.AsyncClient,
    run_jobs: RunJobs,
    services: tuple[object, ...],
    added_jobs: AddedJobs,
) -> None:
    for cents in (1000, 900, 800):
        (await web.put("/products/mug", json={"name": "Coffee mug", "cents": cents})).raise_for_status()
    assert len(await added_jobs(index_product)) == 1
    assert (await web.get("/products", params={"q": "coffee"})).json() == []

    (await run_jobs(app=app, extensions=services, until=timedelta(seconds=10))).check()

    (found,) = (await web.get("/products", params={"q": "coffee"})).json()
    assert (found["sku"], found["cents"]) == ("mug", 800)


async def test_only_the_bad_row_of_an_import_stays(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...], added_jobs: AddedJobs
) -> None:
    good = {"sku": "lamp", "name": "Desk lamp", "price": "49.00"}
    bad = {"sku": "chair", "name": "Chair", "price": "a lot"}
    (await web.post("/products/import", json=[good, bad])).raise_for_status()

    ran = await run_jobs(app=app, extensions=services)

    assert "chair: 'a lot' is not a price" in str(ran.failed[0].error)
    (job,) = await added_jobs(import_products)
    assert job.payload == [bad]
    assert [job.key for job in await added_jobs(index_product)] == ["index:lamp"]
