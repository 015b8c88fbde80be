"""From the order to the invoice, and what happens if the card is declined."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphile_worker.testing import AddedJobs, FakeClock, RunJobs
from shop.dev.fakes import FakeBank, FakeMail
from shop.tasks.payments import charge_card
from shop.tasks.reviews import ask_for_review
from shop.worker import app


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOP_ARCHIVE", str(tmp_path))
    return tmp_path


async def place_order(web: httpx.AsyncClient, card: str = "4242") -> Any:
    response = await web.post("/orders", json={"customer_id": 1, "sku": "socks", "quantity": 2, "card": card})
    return response.raise_for_status().json()


async def test_an_order_adds_a_job_that_charges_the_card(
    web: httpx.AsyncClient, added_jobs: AddedJobs
) -> None:
    order = await place_order(web)
    assert (order["cents"], order["status"]) == (2400, "placed")
    (job,) = await added_jobs(charge_card)
    assert (job.payload, job.max_attempts) == ({"order_id": order["id"]}, 5)


async def test_an_order_is_paid_and_the_invoice_sent(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...], mail: FakeMail, bank: FakeBank
) -> None:
    order = await place_order(web)

    (await run_jobs(app=app, extensions=services)).check()

    assert (await web.get(f"/orders/{order['id']}")).json()["status"] == "paid"
    assert bank.captured == {"authorization-1"}
    assert mail.subjects == [f"Order {order['id']}", "Invoice 1"]


async def test_the_invoice_is_archived(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...], archive: Path
) -> None:
    order = await place_order(web)
    (await run_jobs(app=app, extensions=services)).check()
    invoice = (await web.get(f"/orders/{order['id']}/invoice")).json()["text"]
    assert "Wool socks" in invoice
    with gzip.open(archive / f"invoice-{order['id']}.json.gz") as archived:
        assert json.load(archived)["payload"]["text"] == invoice


async def test_a_declined_card_leaves_neither_an_order_nor_a_job(
    web: httpx.AsyncClient, added_jobs: AddedJobs
) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="402 Payment Required"):
        await place_order(web, card="4000")
    assert (await web.get("/orders/1")).status_code == 404
    assert await added_jobs() == []


async def test_a_payment_that_fails_later_is_not_retried(
    web: httpx.AsyncClient,
    run_jobs: RunJobs,
    services: tuple[object, ...],
    added_jobs: AddedJobs,
    mail: FakeMail,
) -> None:
    order = await place_order(web, card="4001")
    (await run_jobs(app=app, extensions=services)).check()
    assert (await web.get(f"/orders/{order['id']}")).json()["status"] == "payment failed"
    assert f"Order {order['id']}: payment failed" in mail.subjects
    assert await added_jobs() == []


async def test_invoices_of_a_customer_are_numbered_without_gaps(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...], mail: FakeMail
) -> None:
    for _ in range(5):
        await place_order(web)
    (await run_jobs(app=app, extensions=services, concurrency=5)).check()
    invoices = [subject for subject in mail.subjects if subject.startswith("Invoice")]
    assert sorted(invoices) == [f"Invoice {number}" for number in range(1, 6)]


async def test_the_shop_asks_for_a_review_a_week_later(
    graphile_worker_clock: FakeClock,
    web: httpx.AsyncClient,
    run_jobs: RunJobs,
    services: tuple[object, ...],
    added_jobs: AddedJobs,
    mail: FakeMail,
) -> None:
    await place_order(web)
    (await run_jobs(app=app, extensions=services, until=timedelta(days=6))).check()
    assert len(await added_jobs(ask_for_review)) == 1
    (await run_jobs(app=app, extensions=services, until=timedelta(days=2))).check()
    assert "How do you like Wool socks?" in mail.subjects
