"""The crontab parser with arbitrary text, and its schedules against the plainest reading of them."""

from __future__ import annotations

import dataclasses
import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from cron.reference import zone_minutes
from fuzz.cases import fuzzed, tried
from fuzz.crontabs import MOMENTS, PATTERNS, Pattern, lines
from fuzz.desk import Desk
from fuzz.python_values import ANYTHING
from graphile_worker import CronItem, parse_cron_items, parse_crontab
from graphile_worker.cron.due import cron_job
from graphile_worker.cron.item import CronItemOptions, ParsedCronItem
from graphile_worker.database.statements.schedules import CronMinute, schedule_cron_jobs
from graphile_worker.errors import CrontabError
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.values.text import parse_time_phrase
from support.working import SCHEMA

TASK = re.compile(r"[A-Za-z_][A-Za-z0-9_:/.-]*")
MINUTE = datetime(2026, 1, 1, tzinfo=UTC)
STORED = f"""
select job.*, task.identifier, queue.queue_name from {SCHEMA}._private_jobs job
join {SCHEMA}._private_tasks task on task.id = job.task_id
left join {SCHEMA}._private_job_queues queue on queue.id = job.job_queue_id
"""
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]


async def schedule(desk: Desk, items: list[ParsedCronItem]) -> None:
    """What was accepted can be scheduled: the database takes the jobs, and they are what the items say."""
    jobs = [cron_job(item, MINUTE, backfilled=False) for item in items]
    async with desk.undone() as connection:
        await schedule_cron_jobs(connection, SchemaName(), [CronMinute(MINUTE, jobs)])
        rows = await connection.fetch(STORED)
    keys = [job.job_key for job in jobs if job.job_key]
    assert len(rows) == len(jobs) - len(keys) + len(set(keys))
    by_identifier = {job.identifier: job for job in jobs}
    for row in rows:
        stored = json.loads(row["payload"])
        assert stored["_cron"] == {"ts": "2026-01-01T00:00:00.000Z", "backfilled": False}
        if len(jobs) == 1:
            job = by_identifier[items[0].identifier]
            assert (row["identifier"], row["queue_name"]) == (job.task_identifier, job.queue_name)
            assert (row["priority"], row["key"]) == (job.priority or 0, job.job_key)
            assert row["max_attempts"] == (job.max_attempts or 25)


def check_text(desk: Desk, text: str) -> None:
    tried["crontab"] += 1
    count = len(re.split(r"\r?\n", text))
    try:
        items = parse_crontab(text, source="fuzz")
    except CrontabError as error:
        event("refused")
        _check_problems(error, count)
        return
    event("accepted" if items else "empty")
    assert len(items) <= count
    assert len({item.identifier for item in items}) == len(items)
    for item in items:
        assert TASK.fullmatch(item.task_identifier)
    if items:
        desk.run(schedule(desk, items))


def _check_problems(error: CrontabError, line_count: int) -> None:
    assert error.problems
    assert str(error)
    for problem in error.problems:
        assert problem.source == "fuzz"
        assert problem.line is not None
        assert 1 <= problem.line <= line_count
        assert problem.column is not None
        assert problem.column >= 1
        assert str(problem).startswith(f"fuzz:{problem.line}:{problem.column}: ")


@fuzzed(0.2)
@given(st.text() | st.text("0123456789*/,-? \t\n\r{}:'\"&=@#aMON\\\0\ud800\u2028"))
def test_any_text_is_read_or_every_fault_in_it_is_named(desk: Desk, text: str) -> None:
    check_text(desk, text)


@fuzzed(0.5)
@example(["* * * * * a {a:1e999}"])
@example(['* * * * * a {"\\u0000":1}'])
@example(["* * * * * a ?jobKey=%00"])
@example(["* * * * * a {a:" + '{"a":' * 3000 + "1" + "}" * 3001])
@example(["* * * * * a {a:999999999999999999999999999999999999}"])
@given(st.lists(lines(), min_size=1, max_size=3))
def test_lines_that_are_nearly_right_are_read_or_every_fault_in_them_is_named(
    desk: Desk, crontab: list[str]
) -> None:
    check_text(desk, "\n".join(crontab))


@fuzzed(0.3)
@given(PATTERNS, st.lists(MOMENTS, min_size=1, max_size=3))
def test_a_schedule_is_due_exactly_when_its_fields_say_so(pattern: Pattern, moments: list[datetime]) -> None:
    tried["crontab"] += 1
    (item,) = parse_crontab(f"{pattern.text} task")
    for moment in moments:
        minute = moment.replace(tzinfo=UTC)
        assert item.match.is_due_at(minute) == pattern.matches(minute)
        end = minute + timedelta(minutes=90)
        expected = [
            each
            for each in (minute + timedelta(minutes=number) for number in range(90))
            if pattern.matches(each)
        ]
        assert list(item.match.minutes_between(minute, end)) == expected


@fuzzed(0.02, short=10)
@given(PATTERNS, st.sampled_from(ZONES), MOMENTS, st.integers(1, 6))
def test_a_schedule_in_a_zone_keeps_to_its_wall_clock_when_the_clocks_change(
    pattern: Pattern, zone: str, moment: datetime, hours: int
) -> None:
    tried["crontab"] += 1
    (item,) = parse_crontab(f"{pattern.text} task ?tz={zone}")
    start = moment.replace(tzinfo=UTC)
    end = start + timedelta(hours=hours)
    expected = zone_minutes(pattern.plain_text, ZoneInfo(zone), start, end)
    assert list(item.match.minutes_between(start, end)) == expected


OPTION_NAMES = [field.name for field in dataclasses.fields(CronItemOptions)] + ["other"]
NAMED = st.one_of(st.sampled_from(["task", "* * * * *", "replace", "1d", "Europe/Berlin"]), ANYTHING)


@fuzzed(0.2)
@given(
    st.dictionaries(st.sampled_from(["task", "match", "options", "payload", "identifier", "pattern"]), NAMED)
    | st.fixed_dictionaries(
        {"task": st.just("task"), "match": st.just("* * * * *")},
        optional={
            "identifier": NAMED,
            "payload": NAMED,
            "options": st.dictionaries(
                st.sampled_from(
                    [
                        "backfill_period",
                        "max_attempts",
                        "queue_name",
                        "job_key",
                        "job_key_mode",
                        "priority",
                        "tz",
                        "other",
                    ]
                ),
                NAMED,
                max_size=3,
            ),
        },
    )
    | ANYTHING
)
@example({"task": "task", "match": "* * * * *", "options": "task"})
def test_items_written_in_code_are_taken_or_refused_in_words(desk: Desk, item: Any) -> None:
    tried["crontab"] += 1
    with suppress(CrontabError):
        desk.run(schedule(desk, parse_cron_items([item])))


@fuzzed(0.1)
@given(
    st.sampled_from(["every_n_minutes", "hourly_at", "daily_at", "weekly_on", "monthly_on", "yearly_on"]),
    st.lists(st.integers(-1, 61) | st.times() | NAMED, min_size=1, max_size=4),
)
def test_schedules_by_name_are_made_or_refused_in_words(desk: Desk, name: str, arguments: list[Any]) -> None:
    tried["crontab"] += 1
    try:
        item = getattr(CronItem, name)("task", *arguments)
    except CrontabError:
        return
    except TypeError as error:  # too many or too few arguments: Python's own complaint
        if "argument" not in str(error):
            raise
        return
    desk.run(schedule(desk, parse_cron_items([item])))


@fuzzed(0.1)
@given(st.text("0123456789smhdw", max_size=12) | st.text(max_size=5))
def test_a_time_phrase_is_the_sum_of_its_parts_or_refused(text: str) -> None:
    tried["crontab"] += 1
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    parts = re.findall(r"([0-9]+)([smhdw])", text) if text.isascii() else []
    seconds = sum(int(number) * units[unit] for number, unit in parts)
    is_phrase = bool(parts) and "".join(map("".join, parts)) == text and seconds <= 100 * 366 * 86400
    if is_phrase:
        assert parse_time_phrase(text) == seconds
    else:
        with pytest.raises(ValueError, match="found"):
            parse_time_phrase(text)
