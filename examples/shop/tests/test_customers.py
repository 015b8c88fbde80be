"""Signing up, and an e-mail that is refused at first."""

from __future__ import annotations

from datetime import timedelta

import httpx

from graphile_worker.testing import AddedJobs, FakeClock, RunJobs
from shop.dev.fakes import FakeMail
from shop.worker import app


async def test_signing_up_sends_a_welcome(
    web: httpx.AsyncClient, run_jobs: RunJobs, services: tuple[object, ...], mail: FakeMail
) -> None:
    (await web.post("/customers", json={"name": "Grace", "email": "grace@example.com"})).raise_for_status()
    (await run_jobs(app=app, extensions=services)).check()
    assert mail.subjects == ["Welcome"]


async def test_an_address_that_is_taken_adds_no_job(web: httpx.AsyncClient, added_jobs: AddedJobs) -> None:
    taken = await web.post("/customers", json={"name": "Ada", "email": "ada@example.com"})
    assert taken.status_code == 409
    assert await added_jobs() == []


async def test_an_email_that_is_refused_is_retried(
    graphile_worker_clock: FakeClock,
    web: httpx.AsyncClient,
    run_jobs: RunJobs,
    services: tuple[object, ...],
    mail: FakeMail,
) -> None:
    (await web.post("/customers", json={"name": "Bob", "email": "bob@greylist.example"})).raise_for_status()
    ran = await run_jobs(app=app, extensions=services, until=timedelta(minutes=1))
    assert [type(run.error) for run in ran.failed] == [httpx.HTTPStatusError]
    assert mail.subjects == ["Welcome"]
