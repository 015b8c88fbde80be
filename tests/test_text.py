"""Wording that log lines, errors and commands share."""

from __future__ import annotations

import math

import pytest

from graphile_worker.values.text import closest, count, duration, parse_time_phrase


def test_a_count_has_its_noun_in_singular_or_plural() -> None:
    assert [count(number, "job") for number in (0, 1, 2, 2000)] == ["0 jobs", "1 job", "2 jobs", "2,000 jobs"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0004, "0 s"),
        (0.05, "0.05 s"),
        (0.4, "0.4 s"),
        (0.97, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (403, "6 min 43 s"),
        (22020, "6 h 7 min"),
        (273_600, "3 d 4 h"),
        (math.inf, "an unknown time"),
    ],
)
def test_a_duration_has_the_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


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
