"""Recurring tasks; the setting GRAPHILE_WORKER names this list."""

from graphile_worker import CronItem

from .tasks import count_sales

BERLIN = "Europe/Berlin"
OF_A_WEEK = {"kwargs": {"days": 7}}
CRON_ITEMS = [
    CronItem.daily_at(count_sales, 4, tz=BERLIN),
    CronItem.weekly_on(count_sales, "monday", 5, tz=BERLIN, identifier="weekly_sales", payload=OF_A_WEEK),
]
