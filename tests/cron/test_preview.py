"""The next runs of a crontab."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cron.reference import at
from graphile_worker.cron import CronItem, parse_cron_items, parse_crontab, upcoming_runs


def test_runs_come_in_order_of_time_and_then_of_the_lines() -> None:
    items = parse_crontab("*/30 * * * * half\n0 * * * * full\n0 0 29 2 * leap")
    runs = upcoming_runs(items, at("2097-02-28 23:10"), 4)
    assert [(run.at, run.item.task_identifier) for run in runs] == [
        (at("2097-02-28 23:30"), "half"),
        (at("2097-03-01 00:00"), "half"),
        (at("2097-03-01 00:00"), "full"),
        (at("2097-03-01 00:30"), "half"),
    ]
    (leap,) = upcoming_runs(items[2:], at("2097-03-01 00:00"), 1)
    assert leap.at == at("2104-02-29 00:00")  # 2100 is no leap year


def test_what_never_runs_ends_the_search() -> None:
    assert upcoming_runs(parse_crontab("0 0 30 2 * never"), at("2026-01-01 00:00"), 5) == []
    functions = parse_cron_items([CronItem("never", lambda _: False)])
    assert upcoming_runs(functions, at("2026-01-01 00:00"), 5) == []


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_the_ends_of_the_calendar_are_no_error(zone: str) -> None:
    items = parse_crontab(f"0 12 * * * noon ?tz={zone}")
    assert len(upcoming_runs(items, datetime.min.replace(tzinfo=UTC), 3)) == 3
    assert len(upcoming_runs(items, datetime(9999, 12, 20, tzinfo=UTC), 1000)) in range(9, 12)
    assert upcoming_runs(items, datetime.max.replace(tzinfo=UTC), 3) == []
