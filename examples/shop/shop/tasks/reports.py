"""nightly_report: a recurring job, in the time zone of the shop."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TypedDict
from zoneinfo import ZoneInfo

from sqlalchemy import func, select

from graphile_worker import JobHelpers, WorkerUtils, task

from ..database import Database
from ..mailer import Email
from ..models import Order, Report
from .emails import send_email

ZONE = ZoneInfo("Europe/Berlin")
OWNER = "owner@shop.example"


class CronRun(TypedDict):
    ts: datetime  # when it was due; a backfilled job may run hours later
    backfilled: bool


class NightlyReport(TypedDict):
    _cron: CronRun


@task
async def nightly_report(payload: NightlyReport, helpers: JobHelpers) -> None:
    day = payload["_cron"]["ts"].astimezone(ZONE).date() - timedelta(days=1)
    is_of_day = (Order.placed_at >= _midnight(day), Order.placed_at < _midnight(day + timedelta(days=1)))
    totals = select(func.count(), func.coalesce(func.sum(Order.cents), 0)).where(*is_of_day)
    async with helpers.extension(Database).transaction() as session:
        orders, cents = (await session.execute(totals)).one()
        await session.merge(Report(day=day, orders=orders, cents=cents))
        email = Email(OWNER, f"Report for {day}", f"{orders} orders, {cents / 100:.2f} euros")
        await WorkerUtils.bound(session).add_job(send_email, email)


def _midnight(day: date) -> datetime:
    """The first moment of the day in the shop's zone; a day may have 23 or 25 hours there."""
    return datetime(day.year, day.month, day.day, tzinfo=ZONE)
