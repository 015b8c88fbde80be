"""Recurring jobs written in code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from graphile_worker.cron import CronItem, CronItemOptions, TimestampDigest, parse_cron_item, parse_cron_items
from graphile_worker.cron.matcher import PatternMatcher
from graphile_worker.errors import CrontabError
from support.cases import looped

pytestmark = pytest.mark.compat("CR10")


@dataclass
class Named:
    identifier: str


@dataclass
class Greeting:
    to: str
    at: datetime


def test_the_least_an_item_needs_is_a_task_and_a_time() -> None:
    (item,) = parse_cron_items([CronItem(task="a", match="1 2 3 4 5")])
    assert (item.task_identifier, item.identifier, item.payload, item.pattern) == ("a", "a", {}, "1 2 3 4 5")
    assert item.options.backfill_period == 0


def test_an_item_takes_a_task_object_options_and_a_typed_payload() -> None:
    greeting = Greeting("a@example.com", datetime(2026, 1, 2, 3, 4))
    options = CronItemOptions(
        backfill_period=timedelta(hours=2), max_attempts=3, queue_name="any / name", job_key="k", priority=-1
    )
    item = parse_cron_item(CronItem(Named("users/greet"), "@daily", options, greeting, "greet-daily"))
    assert (item.task_identifier, item.identifier) == ("users/greet", "greet-daily")
    assert item.payload == {"to": "a@example.com", "at": "2026-01-02T03:04:00"}
    assert (item.options.backfill_period, item.options.job_key_mode) == (7200.0, "replace")
    assert (item.options.max_attempts, item.options.queue_name, item.options.priority) == (
        3,
        "any / name",
        -1,
    )


def test_options_may_be_a_mapping_and_the_period_a_phrase() -> None:
    item = parse_cron_item(CronItem("a", "* * * * *", {"backfill_period": "1d2h", "tz": "Asia/Tokyo"}))
    assert item.options.backfill_period == 93600
    assert str(item.options.tz) == "Asia/Tokyo"


def test_options_may_be_keywords_instead() -> None:
    keywords = CronItem("a", "* * * * *", payload={"b": 1}, identifier="c", tz="Asia/Tokyo", max_attempts=3)
    options = CronItemOptions(tz="Asia/Tokyo", max_attempts=3)
    assert keywords == CronItem("a", "* * * * *", options, {"b": 1}, "c")
    assert replace(keywords, match="@daily").options == options
    with pytest.raises(CrontabError, match="as keywords or in `options`, not both"):
        CronItem("a", "* * * * *", options, priority=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'prio'"):
        CronItem("a", "* * * * *", prio=1)  # type: ignore[call-arg]


def test_a_function_of_the_digest_may_decide() -> None:
    item = parse_cron_item(CronItem("a", lambda digest: digest.min == 3 and digest.dow == 0))
    assert item.match(TimestampDigest(3, 0, 1, 1, 0))
    assert not item.match(TimestampDigest(3, 0, 1, 1, 1))
    assert item.pattern is None


def test_identifiers_need_not_be_unique_here() -> None:
    assert len(parse_cron_items([CronItem("a", "0 4 * * *"), CronItem("a", "0 16 * * *")])) == 2


@looped(
    ("item", "message"),
    [
        ({"task": "a", "pattern": "* * * * *"}, "the field is called `match`"),
        ({"task": "a"}, "`match` is missing"),
        ({"match": "* * * * *"}, "`task` is missing"),
        ({"task": "a", "match": "* * * * *", "Payload": {}}, "unknown field 'Payload'"),
        ("* * * * * a", "expected a CronItem"),
        (CronItem("a", "foo"), "expected five time fields"),
        (CronItem("a", 5), "must be a pattern or a function"),  # type: ignore[arg-type]
        (CronItem(None, "* * * * *"), "must be a task or its identifier"),  # type: ignore[arg-type]
        (CronItem("", "* * * * *"), "task: must not be empty"),
        (CronItem("a" * 129, "* * * * *"), "at most 128"),
        (CronItem("a", "* * * * *", identifier=""), "identifier: must not be empty"),
        (CronItem("a", "* * * * *", identifier=5), "identifier: expected text"),  # type: ignore[arg-type]
        (CronItem("a", "* * * * *", {"max_attempt": 3}), "did you mean max_attempts?"),
        (CronItem("a", "* * * * *", {"max_attempts": 0}), "max_attempts: must be from 1 to 32767, got 0"),
        (
            CronItem("a", "* * * * *", {"max_attempts": True}),
            "max_attempts: expected a whole number",
        ),
        (CronItem("a", "* * * * *", {"priority": 1.5}), "priority: expected a whole number, got 1.5"),
        (CronItem("a", "* * * * *", {"queue_name": 5}), "queue_name: expected text"),
        (CronItem("a", "* * * * *", {"job_key": "a\0"}), "cannot store"),
        (
            CronItem("a", "* * * * *", {"job_key_mode": "unsafe_dedupe"}),
            "job_key_mode: expected one of",
        ),
        (CronItem("a", "* * * * *", {"backfill_period": -1}), "0 or more seconds"),
        (CronItem("a", "* * * * *", {"backfill_period": "1y"}), "such as 4w3d2h1m"),
        (CronItem("a", "* * * * *", {"backfill_period": None}), "expected seconds or a timedelta"),
        (CronItem("a", "* * * * *", {"tz": "Mars/Base"}), "unknown time zone"),
        (CronItem("a", "* * * * *", {"tz": 3}), "expected the name of a time zone"),
        (CronItem("a", "* * * * *", payload=[1]), "payload: expected an object"),
        (CronItem("a", "* * * * *", payload={"a": object()}), "payload: "),
    ],
)
def test_a_bad_item_is_refused_by_its_number(item: Any, message: str) -> None:
    with pytest.raises(CrontabError) as caught:
        parse_cron_items([CronItem("fine", "* * * * *"), item])
    assert str(caught.value).startswith("item 1 of parse_cron_items: ")
    assert message in str(caught.value)


def test_a_coroutine_function_cannot_match() -> None:
    async def match(digest: TimestampDigest) -> bool:
        return True

    with pytest.raises(CrontabError, match="must be a plain function"):
        parse_cron_item(CronItem("a", match))


def test_all_bad_items_are_reported_together() -> None:
    with pytest.raises(CrontabError) as caught:
        parse_cron_items([CronItem("a", "x"), CronItem("b", "* * * * *"), CronItem("c", "y")])
    assert [problem.source for problem in caught.value.problems] == [
        "item 0 of parse_cron_items",
        "item 2 of parse_cron_items",
    ]


def test_one_item_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(CrontabError, match="takes a list"):
        parse_cron_items(CronItem("a", "* * * * *"))  # type: ignore[arg-type]


@looped(
    ("item", "pattern"),
    [
        (CronItem.every_minute("a"), "* * * * *"),
        (CronItem.every_n_minutes("a", 15), "*/15 * * * *"),
        (CronItem.every_n_minutes("a", 60), "0 * * * *"),
        (CronItem.hourly_at("a", 5), "5 * * * *"),
        (CronItem.daily_at("a", 4, 30), "30 4 * * *"),
        (CronItem.daily_at("a", hour=4), "0 4 * * *"),
        (CronItem.daily_at("a", time(4, 30)), "30 4 * * *"),
        (CronItem.weekly_on("a", "monday", 4), "0 4 * * 1"),
        (CronItem.weekly_on("a", 7), "0 0 * * 0"),
        (CronItem.monthly_on("a", 31, 1, 2), "2 1 31 * *"),
        (CronItem.yearly_on("a", "dec", 24, time(18)), "0 18 24 12 *"),
    ],
)
def test_constructors_mean_the_same_as_patterns(item: CronItem, pattern: str) -> None:
    made, written = parse_cron_items([item, CronItem("a", pattern)])
    assert isinstance(made.match, PatternMatcher)
    assert isinstance(written.match, PatternMatcher)
    assert made.match.fields == written.match.fields


def test_constructors_take_a_task_a_payload_and_the_options() -> None:
    item = CronItem.daily_at(
        Named("report"),
        hour=4,
        payload={"kind": "daily"},
        identifier="daily-report",
        backfill_period="1d",
        max_attempts=3,
        queue_name="reports",
        job_key="report",
        job_key_mode="preserve_run_at",
        priority=5,
        tz="Europe/Berlin",
    )
    parsed = parse_cron_item(item)
    assert (parsed.task_identifier, parsed.identifier, parsed.payload) == (
        "report",
        "daily-report",
        {"kind": "daily"},
    )
    options = parsed.options
    assert (options.backfill_period, options.max_attempts, options.queue_name) == (86400, 3, "reports")
    assert (options.job_key, options.job_key_mode, options.priority) == ("report", "preserve_run_at", 5)
    assert str(options.tz) == "Europe/Berlin"


@looped(
    "make",
    [
        lambda: CronItem.every_n_minutes("a", 0),
        lambda: CronItem.every_n_minutes("a", 61),
        lambda: CronItem.hourly_at("a", 60),
        lambda: CronItem.daily_at("a", 24),
        lambda: CronItem.weekly_on("a", "someday"),
        lambda: CronItem.monthly_on("a", 0),
        lambda: CronItem.yearly_on("a", 13, 1),
    ],
)
def test_constructors_refuse_what_no_calendar_has(make: Any) -> None:
    with pytest.raises(CrontabError, match=r"allowed|from 1 to 60"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CronItem.daily_at("a", time(4, tzinfo=ZoneInfo("Europe/Berlin"))), "tz="),
        (lambda: CronItem.weekly_on("a", 1, time(4, 30, 15)), "whole minute"),
        (lambda: CronItem.monthly_on("a", 1, time(4), 30), "given without minute="),
    ],
)
def test_constructors_refuse_the_parts_of_a_time_that_they_would_ignore(make: Any, message: str) -> None:
    with pytest.raises(CrontabError, match=message):
        make()
