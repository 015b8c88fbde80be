"""The club against a real PostgreSQL, with a clock that the tests set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from club.database import create_tables
from club.mailer import Mailer
from club.reports import weekly_report
from club.tasks import send_welcome
from club.web import api
from graphile_worker.testing import AddedJobs, FakeClock, RunJobs

ADA = {"name": "Ada", "email": "ada@example.com"}


class FakeMailer(Mailer):
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_down = False

    async def send(self, to: str, text: str) -> None:
        if self.is_down:
            self.is_down = False  # the next attempt succeeds
            raise ConnectionError("the mail service does not answer")
        self.sent.append(text)


@pytest.fixture
def mailer() -> FakeMailer:
    return FakeMailer()


@pytest.fixture
async def web(
    graphile_worker_database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the web application, which runs in this process with a database of its own."""
    monkeypatch.setenv("DATABASE_URL", graphile_worker_database)
    await create_tables()
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://club") as client,
    ):
        yield client


async def test_a_new_member_is_welcomed(
    web: httpx.AsyncClient, run_jobs: RunJobs, mailer: FakeMailer
) -> None:
    assert (await web.post("/members", json=ADA)).status_code == 201
    (await run_jobs(extensions={Mailer: mailer})).check()
    assert mailer.sent == ["Welcome, Ada!"]


async def test_who_joins_twice_is_welcomed_once(web: httpx.AsyncClient, added_jobs: AddedJobs) -> None:
    await web.post("/members", json=ADA)
    assert (await web.post("/members", json=ADA)).status_code == 409
    assert len(await added_jobs(send_welcome)) == 1


async def test_an_email_that_fails_is_sent_later(
    graphile_worker_clock: FakeClock, web: httpx.AsyncClient, run_jobs: RunJobs, mailer: FakeMailer
) -> None:
    mailer.is_down = True
    await web.post("/members", json=ADA)
    ran = await run_jobs(extensions={Mailer: mailer}, until=timedelta(minutes=1))
    assert [type(run.error) for run in ran.failed] == [ConnectionError]
    assert mailer.sent == ["Welcome, Ada!"]


async def test_the_owner_gets_a_report_every_monday(
    graphile_worker_clock: FakeClock, web: httpx.AsyncClient, run_jobs: RunJobs, mailer: FakeMailer
) -> None:
    await graphile_worker_clock.set(datetime(2027, 3, 1, 12, tzinfo=UTC))  # a Monday
    ran = await run_jobs(extensions={Mailer: mailer}, until=timedelta(days=14))
    assert len(ran.of(weekly_report)) == 2
