"""When patterns and functions match, in UTC and across clock changes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cron.reference import at, utc_minutes, zone_minutes
from graphile_worker.cron.fields import parse_pattern
from graphile_worker.cron.matcher import FunctionMatcher, PatternMatcher, TimestampDigest
from support.cases import looped
from support.properties import examples

DIGESTS = [
    TimestampDigest(0, 0, 1, 1, 0),
    TimestampDigest(0, 0, 1, 1, 5),
    TimestampDigest(0, 0, 1, 1, 4),
    TimestampDigest(0, 15, 1, 7, 0),
    TimestampDigest(0, 15, 4, 7, 2),
    TimestampDigest(0, 15, 4, 7, 5),
    TimestampDigest(6, 15, 4, 7, 5),
]


def matcher(pattern: str, zone: str | None = None) -> PatternMatcher:
    return PatternMatcher(parse_pattern(pattern), None if zone is None else ZoneInfo(zone))


@pytest.mark.compat("cronMatcher")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("* * * * *", [1, 2, 3, 4, 5, 6, 7]),
        ("* * * * 5-6", [2, 6, 7]),
        ("0-5 15 3-4 7 0-2", [4, 5, 6]),
    ],
)
def test_patterns_match_digests(pattern: str, expected: list[int]) -> None:
    match = matcher(pattern)
    assert [number for number, digest in enumerate(DIGESTS, 1) if match(digest)] == expected


@looped(
    ("pattern", "date", "weekday", "expected"),
    [
        ("0 0 13 * 5", 13, 1, True),
        ("0 0 13 * 5", 1, 5, True),
        ("0 0 13 * 5", 1, 1, False),
        ("0 0 13 * 0-6", 1, 1, False),
        ("0 0 1-31 * 5", 1, 1, False),
        ("0 0 1-31 * 5", 1, 5, True),
    ],
)
def test_date_or_weekday_suffices_only_if_both_restrict(
    pattern: str, date: int, weekday: int, expected: bool
) -> None:
    assert matcher(pattern)(TimestampDigest(0, 0, date, 6, weekday)) is expected


def part(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])
    return st.one_of(
        number.map(str),
        span.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.tuples(span, st.integers(1, high + 5)).map(lambda pair: f"{pair[0][0]}-{pair[0][1]}/{pair[1]}"),
        st.integers(1, high + 5).map(lambda step: f"*/{step}"),
        st.just("*"),
    )


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.lists(part(low, high), min_size=1, max_size=3).map(",".join))


PATTERNS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join)
MOMENTS = st.datetimes(datetime(2019, 12, 1), datetime(2101, 2, 1)).map(
    lambda moment: moment.replace(second=0, microsecond=0, tzinfo=UTC)
)


@given(PATTERNS, MOMENTS, st.integers(0, 3 * 1440))
@example("0 0 29 2 *", datetime(2024, 2, 28, tzinfo=UTC), 2880)
@example("0 0 29 2 *", datetime(2100, 2, 28, tzinfo=UTC), 2880)
@examples(60)
def test_the_matcher_agrees_with_the_reference(pattern: str, start: datetime, minutes: int) -> None:
    end = start + timedelta(minutes=minutes)
    expected = utc_minutes(pattern, start, end)
    match = matcher(pattern)
    assert list(match.minutes_between(start, end)) == expected
    assert match.is_due_at(start) == (start in utc_minutes(pattern, start, start + timedelta(minutes=1)))


@given(PATTERNS, MOMENTS, st.integers(0, 1440), st.integers(0, 400 * 1440))
@examples()
def test_the_parts_of_an_interval_hold_what_the_whole_holds(
    pattern: str, start: datetime, first: int, second: int
) -> None:
    match = matcher(pattern)
    middle = start + timedelta(minutes=first)
    end = middle + timedelta(minutes=second % 5000 if "* *" in pattern else second)
    parts = [*match.minutes_between(start, middle), *match.minutes_between(middle, end)]
    assert parts == list(match.minutes_between(start, end))
    assert parts == sorted(set(parts))


# Each is a day on which clocks change: by an hour, by half an hour, by a day, at midnight, and not at all.
CHANGES = [
    ("Europe/Berlin", "2026-03-28 20:00"),
    ("Europe/Berlin", "2026-10-24 20:00"),
    ("America/New_York", "2026-11-01 00:00"),
    ("Australia/Lord_Howe", "2026-04-04 10:00"),
    ("Australia/Lord_Howe", "2026-10-03 10:00"),
    ("America/Sao_Paulo", "2018-11-03 20:00"),
    ("America/Sao_Paulo", "2018-02-17 20:00"),
    ("Pacific/Apia", "2011-12-30 00:00"),
    ("America/Havana", "2026-10-31 22:00"),
    ("Asia/Kathmandu", "2026-05-01 00:00"),
]
CLOCK_PATTERNS = st.tuples(
    field(0, 59),
    field(0, 5) | field(0, 23),
    st.just("*") | field(1, 31),
    st.just("*"),
    st.just("*") | field(0, 7),
).map(" ".join)


@given(CLOCK_PATTERNS, st.sampled_from(CHANGES), st.integers(0, 2000))
@examples(40)
def test_zones_agree_with_the_reference(pattern: str, change: tuple[str, str], minutes: int) -> None:
    zone, start = change[0], at(change[1])
    end = start + timedelta(minutes=minutes)
    match = matcher(pattern, zone)
    expected = zone_minutes(pattern, ZoneInfo(zone), start, end)
    assert list(match.minutes_between(start, end)) == expected
    assert all(match.is_due_at(minute) for minute in expected)


def runs(pattern: str, zone: str, start: str, end: str) -> list[str]:
    return [f"{minute:%d %H:%M}" for minute in matcher(pattern, zone).minutes_between(at(start), at(end))]


def test_a_zone_moves_a_daily_run_with_its_clock() -> None:
    assert runs("0 4 * * *", "Europe/Berlin", "2026-03-28 00:00", "2026-03-31 00:00") == [
        "28 03:00",
        "29 02:00",
        "30 02:00",
    ]
    assert runs("0 4 * * *", "Asia/Kathmandu", "2026-03-28 00:00", "2026-03-29 00:00") == ["28 22:15"]


@looped("pattern", ["30 2 * * *", "0 2 * * *", "*/15 2 * * *", "0,30 2 29 3 *"])
def test_in_the_hour_that_does_not_exist_it_runs_once_at_the_first_instant_after(pattern: str) -> None:
    assert runs(pattern, "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 12:00") == ["29 01:00"]


def test_a_run_put_after_the_gap_and_one_that_is_due_there_are_one() -> None:
    assert runs("30 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 12:00") == [
        "29 01:00",
        "29 01:30",
    ]
    assert runs("0 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 12:00") == ["29 01:00"]


def test_in_the_hour_that_repeats_it_runs_once() -> None:
    assert runs("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-25 12:00") == ["25 00:30"]
    assert runs("0,30 2 * * *", "America/New_York", "2026-11-01 00:00", "2026-11-02 00:00") == [
        "01 07:00",
        "01 07:30",
    ]
    assert runs("30 1 * * *", "America/New_York", "2026-11-01 00:00", "2026-11-02 00:00") == ["01 05:30"]


def test_what_runs_in_every_hour_goes_on_with_real_time() -> None:
    assert len(runs("* * * * *", "Europe/Berlin", "2026-10-25 00:00", "2026-10-25 03:00")) == 180
    assert runs("30 * * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 03:00") == [
        "29 00:30",
        "29 01:30",
        "29 02:30",
    ]


def test_a_function_is_asked_for_every_minute() -> None:
    asked: list[TimestampDigest] = []

    def match(digest: TimestampDigest) -> bool:
        asked.append(digest)
        return digest.min == 31

    due = list(
        FunctionMatcher(match).minutes_between(
            at("2026-01-01 00:29") + timedelta(seconds=1), at("2026-01-01 00:33")
        )
    )
    assert due == [at("2026-01-01 00:31")]
    assert [digest.min for digest in asked] == [30, 31, 32]


def test_a_function_of_a_zone_sees_its_wall_clock() -> None:
    match = FunctionMatcher(lambda digest: digest.hour == 4, ZoneInfo("Asia/Tokyo"))
    assert match.is_due_at(at("2026-01-01 19:00"))
    assert not match.is_due_at(at("2026-01-01 04:00"))


def test_a_function_that_fails_is_reported_once_and_is_not_due(caplog: pytest.LogCaptureFixture) -> None:
    def match(digest: TimestampDigest) -> Any:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        assert (
            list(FunctionMatcher(match, name="x").minutes_between(at("2026-01-01"), at("2026-01-02"))) == []
        )
    assert [record.message for record in caplog.records if "'x' failed" in record.message] != []
    assert len(caplog.records) == 1
