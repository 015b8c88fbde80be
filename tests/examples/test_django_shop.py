"""The Django shop: started by its one command, with a worker that runs tasks of Django's framework."""

from __future__ import annotations

import json
from typing import Any

import httpx

from support.working import until

STARTS_WITHIN = 120  # seconds


async def test_an_order_is_charged_and_seen_in_the_admin(example: Any) -> None:
    del example.environment["DATABASE_URL"]
    example.blocks = [
        block.replace("localhost:8000", f"localhost:{example.port}") for block in example.blocks
    ]
    log = example.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{example.port}", timeout=60) as client:

        async def answers() -> bool:
            try:
                return (await client.get("/orders/1/")).status_code == 404
            except httpx.TransportError:
                assert example._started[-1][0].poll() is None, log.read_text()
                return False

        async def is_charged() -> bool:
            return bool((await client.get("/orders/1/")).json()["status"] == "SUCCESSFUL")

        await until(answers, timeout=STARTS_WITHIN, every=0.2)
        assert json.loads(example.run())["id"] == 1
        await until(is_charged, every=0.1)
        assert json.loads(example.run())["result"] == "charged 1200 cents"
        await client.post("/orders/", data={"sku": "hat", "cents": "900", "card": "4000"})
        await until(lambda: "the card was declined" in log.read_text())
        page = await signed_in(client, "/admin/graphile_worker/finishedjob/")
        assert "charged 1200 cents" in page
        assert "orders.tasks.charge" in page
    shown = example.run()
    assert "setting GRAPHILE_WORKER['OPTIONS']" in shown
    assert "weekly_sales" in shown
    example.run(timeout=STARTS_WITHIN)
    assert example.is_done
    example.stop()
    assert "receipt for socks" in log.read_text()


async def signed_in(client: httpx.AsyncClient, page: str) -> str:
    """A page of the admin as its user sees it."""
    await client.get("/admin/login/")
    token = client.cookies["csrftoken"]
    form = {"username": "ada", "password": "demo", "next": page, "csrfmiddlewaretoken": token}
    return (await client.post("/admin/login/", data=form, follow_redirects=True)).text
