"""The nightly report, with virtual time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from sqlalchemy import select

from graphile_worker.testing import FakeClock, RunJobs
from shop.database import Database
from shop.dev.fakes import FakeMail
from shop.models import Order, Report
from shop.tasks.reports import nightly_report
from shop.worker import app


async def test_each_night_reports_the_orders_of_the_day_before(
    graphile_worker_clock: FakeClock,
    database: Database,
    run_jobs: RunJobs,
    services: tuple[object, ...],
    mail: FakeMail,
) -> None:
    await graphile_worker_clock.set(datetime(2027, 6, 1, 12, tzinfo=UTC))
    in_the_evening = datetime(2027, 6, 1, 21, tzinfo=UTC)
    after_midnight_in_berlin = datetime(2027, 6, 1, 23, tzinfo=UTC)
    async with database.transaction() as session:
        for placed_at in (in_the_evening, after_midnight_in_berlin):
            session.add(Order(customer_id=1, sku="socks", quantity=1, cents=1200, placed_at=placed_at))

    (await run_jobs(app=app, extensions=services, until=timedelta(days=2))).check()

    async with database.transaction() as session:
        reports = list(await session.scalars(select(Report).order_by(Report.day)))
    assert [(report.day.day, report.orders) for report in reports] == [(1, 1), (2, 1)]
    assert mail.subjects == [f"Report for {date(2027, 6, day)}" for day in (1, 2)]


async def test_there_is_one_report_in_the_night_in_which_clocks_are_set_back(
    graphile_worker_clock: FakeClock, database: Database, run_jobs: RunJobs, services: tuple[object, ...]
) -> None:
    await graphile_worker_clock.set(datetime(2027, 10, 30, 12, tzinfo=UTC))
    ran = await run_jobs(app=app, extensions=services, until=timedelta(days=1))  # half past two comes twice
    assert len(ran.of(nightly_report)) == 1
