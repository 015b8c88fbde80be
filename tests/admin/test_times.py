"""Times and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from graphile_worker.admin.web import show

NOW = datetime(2026, 11, 16, 3, 14, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "—"), (0, "0 s"), (252, "4 min 12 s"), (timedelta(seconds=5), "5 s"),
    ],
)  # fmt: skip
def test_a_duration_that_is_unknown_is_a_dash(seconds: float | timedelta | None, text: str) -> None:
    assert show.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"), (-12, "12 s ago"), (200, "in 3 min"), (-7300, "2 h ago"), (-200_000, "2 days ago"),
        (400 * 365 * 86_400, "never"),
    ],
)  # fmt: skip
def test_a_time_is_relative(seconds: float, text: str) -> None:
    assert show.relative(NOW + timedelta(seconds=seconds), NOW) == text


def test_an_exact_time_is_in_the_zone_of_the_viewer() -> None:
    berlin = show.zone_named("Europe/Berlin")
    assert show.instant(NOW, berlin) == "2026-11-16 04:14:07 CET"
    assert show.clock(NOW, NOW, berlin) == "04:14:07"
    assert show.clock(NOW - timedelta(days=1), NOW, berlin) == "15 Nov 04:14"
    assert show.clock(NOW - timedelta(days=400), NOW) == "2025-10-12 03:14"


@pytest.mark.parametrize("name", ["", "Nowhere/Land", "../../etc/passwd", "x" * 1000, "\0", "/etc/localtime"])
def test_an_unknown_zone_is_utc(name: str) -> None:
    assert show.zone_name(show.zone_named(name)) == "UTC"


def test_times_in_a_text_are_found() -> None:
    text = "Paused until 2030-01-31 12:00:00 UTC (deploy). Not 2030-31-31 12:00:00 UTC."
    first, second, rest = show.times_in(text)
    assert first == ("Paused until ", datetime(2030, 1, 31, 12, tzinfo=UTC))
    assert second == (" (deploy). Not 2030-31-31 12:00:00 UTC", None)
    assert rest == (".", None)
    assert list(show.times_in("")) == [("", None)]


def test_times_outside_of_the_calendar_are_never() -> None:
    assert show.instant(datetime.max.replace(tzinfo=UTC), show.zone_named("Asia/Tokyo")) == "never"
    assert show.relative(datetime.max.replace(tzinfo=UTC), NOW) == "never"
