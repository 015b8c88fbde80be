"""The five time fields of a crontab line, from text to sets of numbers. Pure; no dates, no time zones.

A field is a comma-separated list of numbers, ranges `a-b`, `*` and `*/n`. Unlike in Node, it may also hold
names of months and weekdays and ranges with steps `a-b/n`; `@daily` and the like replace all five fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MACROS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

# fmt: off
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)
# fmt: on
WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")

_EVERY = re.compile(r"\*(?:/([0-9]+))?")
_RANGE = re.compile(r"([0-9]+|[A-Za-z]+)(?:-([0-9]+|[A-Za-z]+)(?:/([0-9]+))?)?")
_SAFE_DIGITS = 9  # longer numbers are always out of range, and Python refuses to parse very long ones


class FieldError(ValueError):
    """A problem in a pattern, and the `offset` of its first character."""

    def __init__(self, message: str, offset: int = 0) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One of the five fields: its name, its bounds, and the names of its values."""

    name: str
    lowest: int
    highest: int
    words: Mapping[str, int]

    @property
    def largest_written(self) -> int:
        """The largest number in text: Sunday may be 7."""
        return 7 if self is WEEKDAY else self.highest

    @property
    def allowed(self) -> str:
        words = f" or names such as {next(iter(self.words)).upper()}" if self.words else ""
        return f"{self.lowest} to {self.largest_written}{words}"


def _words(names: Sequence[str], first: int) -> dict[str, int]:
    short = {name[:3]: number for number, name in enumerate(names, first)}
    return short | {name: number for number, name in enumerate(names, first)}


MINUTE = FieldKind("minute", 0, 59, {})
HOUR = FieldKind("hour", 0, 23, {})
DATE = FieldKind("day of month", 1, 31, {})
MONTH = FieldKind("month", 1, 12, _words(MONTHS, 1))
WEEKDAY = FieldKind("weekday", 0, 6, _words(WEEKDAYS, 0))
KINDS = (MINUTE, HOUR, DATE, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class CronFields:
    """The values each field allows, sorted; weekdays from 0 = Sunday to 6."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    dates: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]


def parse_pattern(pattern: str) -> CronFields:
    """Parse five fields separated by white space, or one `@` word. Raises FieldError."""
    if pattern.startswith("@"):
        return parse_pattern(expand_macro(pattern))
    fields = [(match.group(), match.start()) for match in re.finditer(r"\S+", pattern)]
    if len(fields) != len(KINDS) or pattern != pattern.strip():
        raise FieldError(
            f"got {pattern!r}; expected five time fields (minute, hour, day of month, month, weekday) "
            f"with no space around them, or one of {', '.join(MACROS)}"
        )
    return CronFields(*(parse_field(text, kind, at) for (text, at), kind in zip(fields, KINDS, strict=True)))


def expand_macro(word: str) -> str:
    """The five fields that an `@` word means."""
    try:
        return MACROS[word.lower()]
    except KeyError:
        raise FieldError(f"unknown word {word!r}; allowed: {', '.join(MACROS)}") from None


def parse_field(text: str, kind: FieldKind, offset: int = 0) -> tuple[int, ...]:
    """The values that a field allows; `offset` is its position, for error messages."""
    values: set[int] = set()
    for part in text.split(","):
        values.update(_parse_part(part, kind, offset))
        offset += len(part) + 1
    return tuple(sorted(values))


def _parse_part(part: str, kind: FieldKind, offset: int) -> Iterator[int]:
    if every := _EVERY.fullmatch(part):
        return iter(range(kind.lowest, kind.highest + 1, _step(every.group(1), kind, offset)))
    match = _RANGE.fullmatch(part)
    if match is None:
        raise FieldError(_unsupported(part, kind), offset)
    first_text, last_text, step_text = match.groups()
    first = _number(first_text, kind, offset)
    if last_text is None:
        return _wrapped([first], kind)
    last = _number(last_text, kind, offset + match.start(2))
    if kind is WEEKDAY and last == 0 and not last_text.isdigit():
        last = 7  # SAT-SUN: a week may end with Sunday
    if last <= first:
        raise FieldError(f"{kind.name}: the end of the range {part!r} must be larger than its start", offset)
    return _wrapped(range(first, last + 1, _step(step_text, kind, offset)), kind)


def _wrapped(values: Sequence[int], kind: FieldKind) -> Iterator[int]:
    return (value % 7 for value in values) if kind is WEEKDAY else iter(values)


def _number(text: str, kind: FieldKind, offset: int) -> int:
    if not text.isdigit():
        try:
            return kind.words[text.lower()]
        except KeyError:
            raise FieldError(_unsupported(text, kind), offset) from None
    value = int(text) if len(text) <= _SAFE_DIGITS else None
    if value is None or value > kind.largest_written:
        raise FieldError(f"{kind.name}: {text} is too large; allowed: {kind.allowed}", offset)
    if value < kind.lowest:
        raise FieldError(f"{kind.name}: {text} is too small; allowed: {kind.allowed}", offset)
    return value


def _step(text: str | None, kind: FieldKind, offset: int) -> int:
    if text is None:
        return 1
    step = int(text[-_SAFE_DIGITS:]) if text.lstrip("0") == text[-_SAFE_DIGITS:].lstrip("0") else 10**9
    if step == 0:
        raise FieldError(f"{kind.name}: the step must be 1 or more, got {text}", offset)
    return step


def _unsupported(found: str, kind: FieldKind) -> str:
    return (
        f"{kind.name}: unsupported syntax {found!r}; allowed: {kind.allowed}, a range a-b or a-b/n, "
        "*, */n, or a comma list of these"
    )
