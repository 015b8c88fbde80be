"""Wording that several packages share: counts, durations, time phrases, signals, suggestions. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

MINUTE, HOUR, DAY = 60, 3600, 86_400
_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_PHRASE = re.compile(r"(?:[0-9]+[smhdw])+")
_PART = re.compile(r"([0-9]+)([smhdw])")
LONGEST = 100 * 366 * DAY  # a century; more would only overflow the calendar


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float | timedelta, *, units: int = 2) -> str:
    """A duration as people read it: `0.4 ms`, `850 ms`, `1.5 s`, `41 s`, `2 min 5 s`, `3 h`, `2 days 4 h`.

    Below 10 of a unit there is one decimal, if it is not zero. From a minute on there are two units, the
    second only if it is not zero, or one with `units=1`. Hours go up to two days. What is longer than a
    century comes from a time of infinity.
    """
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if not abs(value) <= LONGEST:  # or not a number
        return "an unknown time"
    if value < 0:
        return f"-{duration(-value, units=units)}"
    if value == 0:
        return "0 s"
    if value < 0.9995:
        return f"{_short_number(max(1000 * value, 0.1))} ms"
    if value < 59.5:
        return f"{_short_number(value)} s"
    whole = round(value)
    if whole >= 2 * DAY:
        return _two_units(whole, DAY, "days", HOUR, "h", units)
    if whole >= HOUR:
        return _two_units(whole, HOUR, "h", MINUTE, "min", units)
    return _two_units(whole, MINUTE, "min", 1, "s", units)


def _two_units(seconds: int, size: int, unit: str, part_size: int, part_unit: str, units: int) -> str:
    number, rest = divmod(seconds, size)
    part = rest // part_size if units > 1 and number < 100 else 0
    return f"{number:,} {unit}" + (f" {part} {part_unit}" if part else "")


def _short_number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"


def parse_time_phrase(text: str) -> float:
    """The seconds of a phrase such as `4w3d2h1m`, with units in any order.

    Raises ValueError with a description of the syntax.
    """
    if len(text) > 200 or not _PHRASE.fullmatch(text):
        raise ValueError(f"found {text!r}; expected numbers with the units s, m, h, d or w, such as 4w3d2h1m")
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > LONGEST:
        raise ValueError(f"found {text!r}; expected at most a hundred years")
    return float(seconds)


def parse_when(text: str) -> datetime | timedelta:
    """Read a time or a period from now. Raises ValueError with a description of both."""
    text = text.strip()
    if text.lower() == "now":
        return timedelta()
    with suppress(ValueError):
        return timedelta(seconds=parse_time_phrase(text.removeprefix("+").lower()))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2030-01-31T12:00:00Z "
            "nor a period from now such as 5m, 2h or 1d12h, up to 100 years"
        ) from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add Z for UTC or an offset such as +02:00")
    return time


def parse_period(text: str) -> timedelta:
    """Read a length of time such as `1h30m`; a number without a unit is in seconds. Raises ValueError."""
    phrase = text.strip().lower()
    if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,6})?", phrase) and float(phrase) <= LONGEST:
        return timedelta(seconds=float(phrase))
    with suppress(ValueError):
        return timedelta(seconds=parse_time_phrase(phrase))
    raise ValueError(f"{text!r} is not a period such as 30s, 5m or 1h30m")


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most similar to a misspelt one, if any is similar enough."""
    from difflib import get_close_matches  # only errors need it

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def signal_name(number: int) -> str:
    """`SIGTERM`; a real-time signal without a name is `SIGRTMIN+n`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)
        return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"


SIMILAR = 0.75
"""Similarity of two names, from 0 to 1, above which one may be meant for the other."""
MOST_SHOWN = 3


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Known names that resemble this one in any case, or that end with it, as a nested task's name does."""
    from difflib import get_close_matches  # only misspelt names need it

    folded: dict[str, str] = {one.casefold(): one for one in sorted(known)}
    wanted = name.casefold()
    found = [one for key, one in folded.items() if key.endswith(f"/{wanted}")]
    found += [folded[key] for key in get_close_matches(wanted, folded, n=MOST_SHOWN, cutoff=SIMILAR)]
    return list(dict.fromkeys(found))[:MOST_SHOWN]


def did_you_mean(meant: list[str]) -> str:
    """A question at the end of a sentence; empty if there is no suggestion."""
    return f"; did you mean {' or '.join(repr(name) for name in meant)}?" if meant else ""


# -- permanent failures, in the words of exceptions, commands, the dashboard and Django ---------------------
# The shared schema stores them as `attempts = max_attempts`, also if a job was given up on its first attempt.
# What is known beside that is `attempts_made`; None if nothing is.


def how_it_failed(attempts_made: int | None, max_attempts: int | None) -> str:
    """After how many attempts a job failed permanently; empty if that is not known."""
    if attempts_made is None or max_attempts is None:
        return ""
    if attempts_made == 0:
        return "given up before its first attempt"
    if attempts_made < max_attempts:
        return f"gave up on attempt {attempts_made} of {max_attempts}"
    return "its only attempt used" if max_attempts == 1 else f"all {max_attempts} attempts used"


def failed_permanently(attempts_made: int | None, max_attempts: int | None) -> str:
    """The same as a whole: `failed permanently, gave up on attempt 1 of 4`."""
    how = how_it_failed(attempts_made, max_attempts)
    return f"failed permanently, {how}" if how else "failed permanently"
