"""Patterns in words, and what a change of the clock means for them."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import pytest

from graphile_worker.cron.preview import clock_changes, describe_pattern
from support.cases import looped

BERLIN = ZoneInfo("Europe/Berlin")
TODAY = date(2026, 11, 16)


@looped(
    ("pattern", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 * * * *", "every hour"),
        ("@hourly", "every hour"),
        ("15 * * * *", "every hour at 15 minutes past"),
        ("0,30 * * * *", "every 30 minutes"),
        ("5,20 * * * *", "at 5 and 20 minutes past every hour"),
        ("0 4 * * *", "every day at 04:00"),
        ("30 4,16 * * *", "every day at 04:30 and 16:30"),
        ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00"),
        ("0 */2 * * *", "every 2 hours"),
        ("10 */2 * * *", "every 2 hours at 10 minutes past"),
        ("0 9 * * 1-5", "weekdays at 09:00"),
        ("0 9 * * sat,sun", "weekends at 09:00"),
        ("0 9 * * 0,1,3", "Mondays, Wednesdays and Sundays at 09:00"),
        ("*/15 9-17 * * 1-5", "every 15 minutes, from 09:00 to 17:59, weekdays"),
        ("0 0 1 * *", "on day 1 of each month at 00:00"),
        ("0 0 1,15 * *", "on day 1 and 15 of each month at 00:00"),
        ("0 0 1 1 *", "on day 1 in January at 00:00"),
        ("0 0 * 6-8 *", "every day in June, July and August at 00:00"),
        ("0 0 13 * 5", "on day 13 of each month and on Fridays at 00:00"),
        ("not a pattern", "not a pattern"),
    ],
)
def test_a_pattern_in_words(pattern: str, words: str) -> None:
    assert describe_pattern(pattern) == words


@pytest.mark.parametrize("pattern", ["1--100000000 * * * *", "*/0 * * * *", "9" * 5000 + " * * * *"])
def test_an_absurd_pattern_takes_no_time(pattern: str) -> None:
    assert describe_pattern(pattern) == pattern


def test_runs_in_the_skipped_and_in_the_repeated_hour_are_named() -> None:
    found = [change.text for change in clock_changes("30 2 * * *", BERLIN, TODAY)]
    assert found == [
        "28 March 2027: 02:30 does not exist; runs at 03:00",
        "31 October 2027: 02:30 comes twice; runs the first time only",
    ]


def test_other_runs_are_not() -> None:
    assert clock_changes("30 4 * * *", BERLIN, TODAY) == ()
    assert clock_changes("30 * * * *", BERLIN, TODAY) == ()
    assert clock_changes("30 2 * * *", None, TODAY) == ()
    assert clock_changes("30 2 * * 1", BERLIN, TODAY) == ()
