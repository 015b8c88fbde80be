"""Patterns in words: "weekdays at 09:00", "every 5 minutes". Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .fields import CronFields, FieldError, parse_pattern

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# fmt: off
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)
# fmt: on
_MOST_TIMES = 4  # times of a day that are written out
_MOST_VALUES = 6


def describe_pattern(pattern: str) -> str:
    """What a pattern means; the pattern itself if it cannot be read."""
    try:
        return describe_fields(parse_pattern(pattern))
    except FieldError:
        return pattern


def describe_fields(fields: CronFields) -> str:
    """When the five fields are due, in words."""
    days = _days(fields)
    times = _times(fields)
    if not days:
        is_of_day = len(fields.hours) < 24 and times.startswith("at ")
        return f"every day {times}" if is_of_day else times
    return f"{days} {times}" if times.startswith("at ") else f"{times}, {days}"


def _times(fields: CronFields) -> str:
    """The times of a day."""
    hours, minutes = fields.hours, fields.minutes
    if len(hours) == 24:
        return _minutes(minutes)
    if len(hours) * len(minutes) <= _MOST_TIMES:
        return "at " + _listed([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if len(minutes) == 1 and (step := _step(hours, 24)) is not None:
        return f"every {step} hours" + ("" if minutes == (0,) else f" at {minutes[0]} minutes past")
    return f"{_minutes(minutes)}, {_hours(hours)}"


def _minutes(minutes: Sequence[int]) -> str:
    if len(minutes) == 60:
        return "every minute"
    if (step := _step(minutes, 60)) is not None:
        return f"every {step} minutes"
    if len(minutes) == 1:
        return "every hour" if minutes[0] == 0 else f"every hour at {minutes[0]} minutes past"
    return f"at {_values(minutes)} minutes past every hour"


def _hours(hours: Sequence[int]) -> str:
    runs = _runs(hours)
    if len(runs) <= 2:
        return " and ".join(f"from {first:02}:00 to {last:02}:59" for first, last in runs)
    return "in the hours " + _values(hours)


def _days(fields: CronFields) -> str:
    """The days, empty for every day; if both are restricted, either suffices."""
    parts = [part for part in (_dates(fields.dates), _weekdays(fields.weekdays)) if part]
    days = " and on ".join(parts) if len(parts) == 2 else "".join(parts)
    if len(fields.months) == 12:
        return days
    months = _listed([_MONTHS[month - 1] for month in fields.months])
    if not days:
        return f"every day in {months}"
    return f"{days.removesuffix(' of each month')} in {months}"


def _dates(dates: Sequence[int]) -> str:
    if len(dates) == 31:
        return ""
    return f"on day {_values(dates)} of each month"


def _weekdays(weekdays: Sequence[int]) -> str:
    found = set(weekdays)
    if len(found) == 7:
        return ""
    if found == {1, 2, 3, 4, 5}:
        return "weekdays"
    if found == {0, 6}:
        return "weekends"
    ordered = sorted(found, key=lambda day: (day + 6) % 7)  # the week begins on Monday
    return _listed([f"{_WEEKDAYS[day]}s" for day in ordered])


def _values(values: Sequence[int]) -> str:
    runs = _runs(values)
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    if len(texts) > _MOST_VALUES:
        texts = [*texts[: _MOST_VALUES - 1], f"{len(texts) - _MOST_VALUES + 1} more"]
    return _listed(texts)


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of consecutive values; pairs stay apart."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return [
        part for first, last in runs
        for part in ([(first, first), (last, last)] if last == first + 1 else [(first, last)])
    ]  # fmt: skip


def _step(values: Sequence[int], size: int) -> int | None:
    """The step of `*/n` from zero; None for other lists."""
    if len(values) < 2 or values[0] != 0:
        return None
    step = values[1]
    return step if list(values) == list(range(0, size, step)) and step > 1 else None


def _listed(texts: Sequence[str]) -> str:
    if len(texts) <= 1:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
