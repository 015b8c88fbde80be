"""Recurring jobs: crontabs and items in code, and the scheduler that adds their jobs.

`crontab` and `load` parse, `matcher` and `due` decide, `scheduler` acts. `runner` and what is above it import
this package. Start in `due`, which is pure, then `scheduler`.
"""

from .crontab import parse_crontab, read_crontab
from .item import CronItem, CronItemOptions, ParsedCronItem, ParsedCronOptions
from .load import collect_cron_items, parse_cron_item, parse_cron_items, read_crontab_file
from .matcher import TimestampDigest
from .preview import UpcomingRun, upcoming_runs
from .scheduler import CronScheduler

__all__ = [
    "CronItem",
    "CronItemOptions",
    "CronScheduler",
    "ParsedCronItem",
    "ParsedCronOptions",
    "TimestampDigest",
    "UpcomingRun",
    "collect_cron_items",
    "parse_cron_item",
    "parse_cron_items",
    "parse_crontab",
    "read_crontab",
    "read_crontab_file",
    "upcoming_runs",
]
