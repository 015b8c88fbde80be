"""The tasks of the demo's shop, and made-up jobs for them. They only wait; some of them fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ...tasks import JobHelpers
from ...tasks.decorator import task
from ...values.spec import JobSpec

CRONTAB = """
* * * * * count_stock ?id=stock
0 4 * * * back_up ?id=nightly
"""
CUSTOMERS = ("ada", "grace", "linus", "barbara", "ken", "radia", "edsger", "frances")

chance = random.Random()  # noqa: S311 - made-up data


@dataclass(frozen=True)
class Release:
    """The version of the shop that a worker runs."""

    version: str
    sends_emails: bool = True


@dataclass
class Email:
    to: str
    template: str
    order: int


@task(max_attempts=3, owner="the mail team")
async def send_email(payload: Email, helpers: JobHelpers) -> None:
    await _wait(0.1)
    if not helpers.extension(Release).sends_emails:
        raise ConnectionError("smtp.example.com closed the connection: TLS is required")


@task
async def resize_image(payload: dict[str, Any]) -> None:
    await _wait(0.2)


@task(max_attempts=4)
async def deliver_webhook(payload: dict[str, Any]) -> None:
    await _wait(0.3)
    if chance.random() < 0.015:
        raise TimeoutError("the customer's server did not answer within 5 seconds")


@task(queue_name="invoices")
async def write_invoice(payload: dict[str, Any]) -> None:
    await _wait(1.8)


@task
async def import_orders(payload: dict[str, Any], helpers: JobHelpers) -> None:
    pages = payload["pages"]
    for page in range(1, pages + 1):
        await helpers.progress(page / pages, f"page {page} of {pages}")
        await _wait(0.8)


@task
async def remind(payload: dict[str, Any]) -> None:
    await _wait(0.1)


@task
async def count_stock() -> None:
    await _wait(4.0)


@task
async def back_up() -> None:
    await _wait(8.0)


TASKS = [
    send_email, resize_image, deliver_webhook, write_invoice, import_orders, remind, count_stock, back_up
]  # fmt: skip
LOAD = (
    (send_email, 3.0, 0.1), (resize_image, 2.0, 0.2), (deliver_webhook, 1.0, 0.3), (write_invoice, 0.5, 1.8),
    (import_orders, 0.2, 6.4),
)  # fmt: skip
"""Tasks, how many jobs customers cause per second, and how long one takes. The queue is just fast enough."""


def new_jobs(seconds: float) -> Iterator[JobSpec]:
    """What customers cause in this time."""
    for task_, rate, _ in (*LOAD, (remind, 0.1, 0.1)):
        for _ in range(int(rate * seconds + chance.random())):
            yield new_job(task_)


def new_job(task_: Any) -> JobSpec:
    """A job with a payload such as this task gets."""
    number, customer = chance.randrange(1000, 9999), chance.choice(CUSTOMERS)
    if task_ is send_email:
        template = chance.choice(("welcome", "receipt", "shipped"))
        return JobSpec(task_, Email(f"{customer}@example.com", template, number))
    if task_ is remind:
        return JobSpec(
            task_, {"customer": customer}, run_at=timedelta(minutes=chance.randrange(30, 300)),
            job_key=f"remind:{customer}:{number}",
        )  # fmt: skip
    queue = f"imports of {customer}" if task_ is import_orders else None  # None: that of the task
    return JobSpec(task_, {
        resize_image: {"image": f"products/{number}.jpg", "sizes": [320, 640, 1280]},
        deliver_webhook: {"url": f"https://hooks.example.com/{customer}", "event": "order.paid"},
        write_invoice: {"order": number, "customer": customer},
        import_orders: {"file": f"orders-{number}.csv", "pages": chance.randrange(4, 13)},
    }[task_], queue_name=queue)  # fmt: skip


async def _wait(seconds: float) -> None:
    await asyncio.sleep(seconds * chance.lognormvariate(0, 0.3))
