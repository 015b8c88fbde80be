"""What the scheduler decides: which minutes are due, which were missed, when to tick and how long to rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cron.reference import at, utc_minutes
from graphile_worker.cron import CronItem, ParsedCronItem, parse_cron_item, parse_crontab
from graphile_worker.cron.due import (
    DueMinute,
    KnownCrontab,
    backoff,
    cron_job,
    due_between,
    due_for_backfill,
    due_when_late,
    first_tick,
)
from graphile_worker.cron.matcher import round_down
from support.cases import looped
from support.properties import examples


def shown(due: Iterable[DueMinute]) -> list[tuple[str, list[str]]]:
    return [(f"{minute:%H:%M}", [item.identifier for item in items]) for minute, items in due]


def known(identifier: str, since: str, last: str | None = None) -> dict[str, KnownCrontab]:
    return {identifier: KnownCrontab(identifier, at(since), None if last is None else at(last))}


def test_due_minutes_come_in_order_with_their_items_in_the_order_of_the_crontab() -> None:
    items = parse_crontab("*/20 * * * * z\n*/30 * * * * a\n59 23 * * * never_here")
    assert shown(due_between(items, at("2026-01-01 00:00"), at("2026-01-01 01:01"))) == [
        ("00:00", ["z", "a"]),
        ("00:20", ["z"]),
        ("00:30", ["a"]),
        ("00:40", ["z"]),
        ("01:00", ["z", "a"]),
    ]


def test_one_minute_and_no_minute() -> None:
    items = parse_crontab("*/20 * * * * z\n*/30 * * * * a")
    assert shown(due_between(items, at("2026-01-01 00:20"), at("2026-01-01 00:21"))) == [("00:20", ["z"])]
    assert shown(due_between(items, at("2026-01-01 00:21"), at("2026-01-01 00:22"))) == []
    assert shown(due_between(items, at("2026-01-01 00:20"), at("2026-01-01 00:20"))) == []
    assert shown(due_between([], at("2026-01-01 00:20"), at("2026-01-02 00:20"))) == []
    late = at("2026-01-01 00:19") + timedelta(seconds=30)
    assert shown(due_between(items, late, late + timedelta(minutes=1))) == [("00:20", ["z"])]


@given(
    st.lists(st.sampled_from(["* * * * *", "*/7 * * * *", "5-50/9 */3 * * *", "0 0 * * 1"]), max_size=4),
    st.integers(0, 100_000),
    st.lists(st.integers(0, 3000), max_size=5),
)
@examples(60)
def test_any_split_of_an_interval_holds_what_the_whole_holds(
    patterns: list[str], start: int, steps: list[int]
) -> None:
    items = [parse_cron_item(CronItem(f"t{number}", pattern)) for number, pattern in enumerate(patterns)]
    cuts = [at("2024-01-01 00:00") + timedelta(minutes=start)]
    for step in steps:
        cuts.append(cuts[-1] + timedelta(minutes=step))
    whole = list(due_between(items, cuts[0], cuts[-1]))
    parts = [due for a, b in itertools.pairwise(cuts) for due in due_between(items, a, b)]
    assert parts == whole


@pytest.mark.compat("CS2")
@looped(
    ("fill", "row", "expected"),
    [
        ("1d", known("a", "2025-12-01 00:00", "2025-12-31 22:00"), ["23:00", "00:00"]),
        ("90m", known("a", "2025-12-01 00:00", "2025-12-31 20:00"), ["23:00", "00:00"]),
        ("1d", known("a", "2025-12-01 00:00", "2025-12-31 22:59:30"), ["23:00", "00:00"]),
        ("1d", known("a", "2025-12-31 23:00"), ["23:00", "00:00"]),
        ("1d", known("a", "2025-12-31 23:01"), ["00:00"]),
        ("1d", known("a", "2025-12-01 00:00", "2026-01-01 00:00"), []),
        ("1d", known("a", "2025-12-01 00:00", "2026-02-01 00:00"), []),
        ("0s", known("a", "2025-12-01 00:00", "2025-12-31 20:00"), []),
        ("100w", known("b", "2025-12-01 00:00"), []),
        ("5000w", known("a", "2025-12-31 23:30"), ["00:00"]),
    ],
)
def test_backfill_goes_back_as_far_as_the_period_and_what_is_known(
    fill: str, row: dict[str, KnownCrontab], expected: list[str]
) -> None:
    items = parse_crontab(f"0 * * * * a ?fill={fill}")
    due = due_for_backfill(items, row, at("2026-01-01 00:30"))
    assert [minute for minute, _ in shown(due)] == expected


@pytest.mark.compat("CS2")
def test_backfill_ends_before_the_start_and_takes_a_minute_as_old_as_the_period() -> None:
    items = parse_crontab("* * * * * a ?fill=3m")
    row = known("a", "2025-01-01 00:00", "2025-01-02 00:00")
    due = due_for_backfill(items, row, at("2026-01-01 00:30"))
    assert [minute for minute, _ in shown(due)] == ["00:27", "00:28", "00:29"]


def test_after_a_failure_backfill_goes_back_to_the_minute_that_is_owed() -> None:
    items = parse_crontab("* * * * * a ?fill=1m\n* * * * * b")
    rows = known("a", "2025-01-01", "2026-01-01 00:10") | known("b", "2025-01-01", "2026-01-01 00:10")
    due = due_for_backfill(items, rows, at("2026-01-01 00:14"), at("2026-01-01 00:11"))
    assert shown(due) == [("00:11", ["a"]), ("00:12", ["a"]), ("00:13", ["a"])]


def test_after_a_long_failure_what_is_owed_is_bounded() -> None:
    items = parse_crontab("0 * * * * a ?fill=1m\n0 * * * * b ?fill=2w")
    rows = known("a", "2020-01-01", "2020-01-02 00:00") | known("b", "2020-01-01", "2020-01-02 00:00")
    due = list(due_for_backfill(items, rows, at("2026-01-15 00:30"), at("2020-01-02 00:01")))
    assert next(minute for minute, group in due if items[0] in group) == at("2026-01-08 01:00")
    assert next(minute for minute, group in due if items[1] in group) == at("2026-01-01 01:00")


@looped(
    ("expected", "current", "first_a", "first_b"),
    [
        ("2026-01-08 00:00", "2026-01-15 00:00", "2026-01-08 00:00", "2026-01-08 00:00"),
        ("2026-01-07 23:59", "2026-01-15 00:00", "2026-01-08 00:00", "2026-01-08 00:00"),
        ("2020-01-01 00:00", "2026-01-15 00:00", "2026-01-08 00:00", "2026-01-01 00:00"),
        ("0001-01-03 00:00", "9999-12-30 00:00", "9999-12-23 00:00", "9999-12-16 00:00"),
    ],
)
def test_a_late_tick_goes_back_a_week_or_the_backfill_period(
    expected: str, current: str, first_a: str, first_b: str
) -> None:
    items = parse_crontab("0 */6 * * * a ?fill=1h\n0 */6 * * * b ?fill=2w")
    due = list(due_when_late(items, at(expected), at(current)))
    assert next(minute for minute, group in due if items[0] in group) == at(first_a)
    assert next(minute for minute, group in due if items[1] in group) == at(first_b)
    assert due[-1] == (at(current), items)


def test_a_backfill_period_longer_than_the_calendar_is_no_error() -> None:
    item = parse_cron_item(CronItem("a", "0 0 1 1 *", {"backfill_period": 1e14}))
    due = due_when_late([item], at("2020-01-01 00:00"), at("2026-01-05 00:00"))
    assert len(list(due)) == 7


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 */2 * * *"]),
    st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 40_000)), min_size=1, max_size=5),
)
@examples(60)
def test_backfill_and_ticks_take_each_due_minute_once(pattern: str, lifetimes: list[tuple[int, int]]) -> None:
    """A worker is alive for some seconds and down for some, again and again."""
    item = parse_cron_item(CronItem("a", pattern, {"backfill_period": "4w"}))
    begin = now = at("2026-01-01 00:00") + timedelta(seconds=17)
    row = KnownCrontab("a", begin, None)
    taken: list[datetime] = []
    for alive, away in lifetimes:
        backfilled = [minute for minute, _ in due_for_backfill([item], {"a": row}, now)]
        end = now + timedelta(seconds=alive)
        ticked = [minute for minute, _ in due_between([item], first_tick(now, None), end)]
        for minute in (*backfilled, *ticked):
            taken.append(minute)
            row = KnownCrontab("a", begin, minute)
        now = end + timedelta(seconds=away)
    taken += [minute for minute, _ in due_for_backfill([item], {"a": row}, now)]
    last = round_down(now - timedelta(microseconds=1))
    assert taken == utc_minutes(pattern, at("2026-01-01 00:01"), last + timedelta(minutes=1))


@pytest.mark.compat("CS3")
@looped(
    ("start", "owed", "expected"),
    [
        ("2026-01-01 00:00:00", None, "2026-01-01 00:00"),
        ("2026-01-01 00:00:00.001", None, "2026-01-01 00:01"),
        ("2026-01-01 00:00:59", None, "2026-01-01 00:01"),
        ("2026-01-01 00:05:01", "2026-01-01 00:03", "2026-01-01 00:03"),
        ("2026-01-01 00:05:01", "2026-01-01 00:09", "2026-01-01 00:06"),
    ],
)
def test_the_first_tick_is_the_next_minute_or_the_one_that_is_owed(
    start: str, owed: str | None, expected: str
) -> None:
    assert first_tick(at(start), None if owed is None else at(owed)) == at(expected)


def job_payload(item: ParsedCronItem, backfilled: bool) -> str:
    job = cron_job(item, datetime(2026, 11, 15, tzinfo=UTC), backfilled=backfilled)
    return msgspec.json.encode(job.payload).decode()


@pytest.mark.compat("CS5")
@pytest.mark.parametrize(
    ("payload", "backfilled", "expected"),
    [
        ("{x:1}", True, '{"x":1,"_cron":{"ts":"2026-11-15T00:00:00.000Z","backfilled":true}}'),
        ("", False, '{"_cron":{"ts":"2026-11-15T00:00:00.000Z","backfilled":false}}'),
        ("{_cron:1}", False, '{"_cron":{"ts":"2026-11-15T00:00:00.000Z","backfilled":false}}'),
    ],
)
def test_the_payload_says_to_the_letter_what_it_is_for(payload: str, backfilled: bool, expected: str) -> None:
    (item,) = parse_crontab(f"* * * * * a {payload}")
    assert job_payload(item, backfilled) == expected


def test_a_job_takes_the_options_of_its_item_and_an_empty_key_is_none() -> None:
    options = "id=x&queue=q&max=3&priority=-2&jobKey=k&jobKeyMode=preserve_run_at"
    text = f"* * * * * a ?{options}\n* * * * * b ?jobKey="
    first, second = (cron_job(item, at("2026-01-01 00:01"), backfilled=False) for item in parse_crontab(text))
    assert (first.identifier, first.task_identifier, first.queue_name) == ("x", "a", "q")
    assert (first.max_attempts, first.priority, first.run_at) == (3, -2, at("2026-01-01 00:01"))
    assert (first.job_key, first.job_key_mode) == ("k", "preserve_run_at")
    assert (second.job_key, second.job_key_mode) == (None, None)


@pytest.mark.compat("RP5")
def test_the_rest_grows_from_a_fifth_of_a_second_to_a_minute() -> None:
    assert [round(backoff(failures, 0.5), 4) for failures in (1, 2, 3)] == [0.2, 0.3, 0.45]
    assert backoff(50, 0.5) == backoff(1_000_000, 0.5) == 60
    assert (backoff(1, 0), backoff(1, 1)) == pytest.approx((0.1, 0.3))
