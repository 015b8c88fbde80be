"""Wording that log lines, errors and commands share."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import pytest

from graphile_worker.values.text import closest, count, duration, parse_time_phrase


def test_a_count_has_its_noun_in_singular_or_plural() -> None:
    assert [count(number, "job") for number in (0, 1, 2, 2000)] == ["0 jobs", "1 job", "2 jobs", "2,000 jobs"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.000004, "0.1 ms"),
        (0.0004, "0.4 ms"),
        (0.006, "6 ms"),
        (0.0123, "12 ms"),
        (0.85, "850 ms"),
        (0.9996, "1 s"),
        (1.5, "1.5 s"),
        (timedelta(seconds=5), "5 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (403, "6 min 43 s"),
        (3599.6, "1 h"),
        (22020, "6 h 7 min"),
        (172_799, "47 h 59 min"),
        (172_800, "2 days"),
        (273_600, "3 days 4 h"),
        (timedelta(days=1000, hours=4), "1,000 days"),
        (-90, "-1 min 30 s"),
        (math.inf, "an unknown time"),
        (-math.inf, "an unknown time"),
        (math.nan, "an unknown time"),
        (datetime.max - datetime(2030, 1, 1), "an unknown time"),
    ],
)
def test_a_duration_has_the_two_largest_units(seconds: float | timedelta, text: str) -> None:
    assert duration(seconds) == text


def test_a_duration_may_have_one_unit() -> None:
    values = (0.85, 41, 403, 22020, 172_799, 273_600, -90)
    expected = ["850 ms", "41 s", "6 min", "6 h", "47 h", "3 days", "-1 min"]
    assert [duration(value, units=1) for value in values] == expected


def test_a_time_phrase_adds_up_its_parts() -> None:
    assert parse_time_phrase("1w2d3h4m5s") == 788645
    with pytest.raises(ValueError, match="such as 4w3d2h1m"):
        parse_time_phrase("5 minutes")
    with pytest.raises(ValueError, match="at most a hundred years"):
        parse_time_phrase("6000w")


def test_the_closest_name_is_suggested_if_it_is_similar_enough() -> None:
    assert closest("prioity", ["payload", "priority"]) == "priority"
    assert closest("prioity", {"payload": 1}) is None
    assert closest("helo", ["hello"], cutoff=0.95) is None
