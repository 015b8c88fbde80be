"""The `?id=…&fill=…` part of a crontab line: from URL query syntax to options and problems. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from ..spec import MAX_IDENTIFIER_LENGTH
from .check import JOB_KEY_MODES, OptionFault, checked_options
from .item import ParsedCronOptions

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_QUEUE = re.compile(r"[A-Za-z0-9_:-]+")
_DIGITS = re.compile(r"[0-9]{1,9}")
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_ANYTHING = re.compile(r".*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Key:
    """One option of a crontab line: its field, the pattern of its value, and that pattern in words."""

    field: str
    pattern: re.Pattern[str]
    allowed: str
    is_number: bool = False


_KEYS = {
    "id": _Key("identifier", _NAME, "a letter or underscore, then letters, digits, _ and -"),
    "fill": _Key("backfill_period", re.compile(r"(?:[0-9]+[smhdw])+"), "a time phrase such as 4w3d2h1m"),
    "max": _Key("max_attempts", _DIGITS, "a whole number from 1 to 32767", True),
    "queue": _Key("queue_name", _QUEUE, "letters, digits, _, : and -"),
    "jobKey": _Key("job_key", _ANYTHING, "any text"),
    "jobKeyMode": _Key("job_key_mode", re.compile("|".join(JOB_KEY_MODES)), " or ".join(JOB_KEY_MODES)),
    "priority": _Key("priority", _WHOLE, "a whole number such as 3 or -3", True),
    "tz": _Key("tz", re.compile(r".+"), "a time zone such as Europe/Berlin"),
}
_OTHER_SPELLINGS = {"job_key": "jobKey", "job_key_mode": "jobKeyMode"}


@dataclass(frozen=True, slots=True)
class OptionText:
    """The options of one line, and their problems as (offset, message)."""

    options: ParsedCronOptions
    identifier: str | None
    faults: tuple[tuple[int, str], ...]


def parse_option_text(text: str) -> OptionText:
    """Parse the text after the `?`. Offsets count from its first character."""
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    faults: list[tuple[int, str]] = []
    for offset, written, value in _segments(text):
        name = _OTHER_SPELLINGS.get(written, written)
        key = _KEYS.get(name)
        if key is None:
            faults.append((offset, f"unknown option {written!r}; allowed: {', '.join(_KEYS)}"))
        elif key.field in places:
            faults.append((offset, f"the option {written!r} is given twice"))
        else:
            places[key.field] = offset
            if key.pattern.fullmatch(value):
                values[key.field] = int(value) if key.is_number else value
            else:
                faults.append((offset, f"the option {written!r} has value {value!r}; allowed: {key.allowed}"))
    identifier = values.pop("identifier", None)
    options = ParsedCronOptions()
    try:
        options = checked_options(values)
    except OptionFault:
        faults += _every_fault(values, places)
    if identifier and len(identifier) > MAX_IDENTIFIER_LENGTH:
        faults.append(
            (places["identifier"], f"the option 'id' has more than {MAX_IDENTIFIER_LENGTH} characters")
        )
    return OptionText(options, identifier, tuple(sorted(faults)))


def _every_fault(values: dict[str, Any], places: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Offset and message of each invalid value; a check of all at once finds only the first."""
    for field, value in values.items():
        try:
            checked_options({field: value})
        except OptionFault as fault:
            yield places[field], f"the option {_written(field)!r}: {fault}"


def _segments(text: str) -> Iterator[tuple[int, str, str]]:
    """Offset, key and value of each `key=value`, decoded; empty segments are skipped, as in browsers."""
    offset = 0
    for segment in text.split("&"):
        if segment:
            key, _, value = segment.partition("=")
            yield offset, unquote_plus(key), unquote_plus(value)
        offset += len(segment) + 1


def _written(field: str) -> str:
    return next(name for name, key in _KEYS.items() if key.field == field)
