"""Checks that hold for every recurring job, from a crontab or from code. Pure.

Each bound is one the database would enforce when the job is added. One item that the database refuses would
stop all others of its minute, so it is refused when it is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from ..errors import CrontabError, CrontabProblem, InvalidArgumentError
from ..payload import encode
from ..text import closest, parse_time_phrase
from .item import CronItemOptions, ParsedCronItem, ParsedCronOptions
from .zone import find_zone

SMALLEST, LARGEST = -(2**15), 2**15 - 1  # PostgreSQL's smallint
LONGEST_NAME = 128  # of a task, a queue or an item
LONGEST_KEY = 512
JOB_KEY_MODES = ("replace", "preserve_run_at")


class OptionFault(ValueError):
    """An option has a value that cannot be used; `option` names it as CronItemOptions does."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(message)


def checked_options(options: CronItemOptions | Mapping[str, Any]) -> ParsedCronOptions:
    """The options with every value in its final form. Raises OptionFault."""
    if isinstance(options, Mapping):
        options = _from_mapping(options)
    if not isinstance(options, CronItemOptions):
        raise OptionFault("options", f"expected CronItemOptions or a mapping, found {options!r}")
    _check_whole("max_attempts", options.max_attempts, 1, LARGEST)
    _check_whole("priority", options.priority, SMALLEST, LARGEST)
    _check_text("queue_name", options.queue_name, LONGEST_NAME)
    _check_text("job_key", options.job_key, LONGEST_KEY)
    mode = options.job_key_mode
    if mode is not None and mode not in JOB_KEY_MODES:
        raise OptionFault("job_key_mode", f"found {mode!r}; allowed: {', '.join(JOB_KEY_MODES)}")
    return ParsedCronOptions(
        backfill_period=_period(options.backfill_period),
        max_attempts=options.max_attempts,
        queue_name=options.queue_name,
        job_key=options.job_key,
        job_key_mode=mode or ("replace" if options.job_key else None),
        priority=options.priority,
        tz=_zone(options.tz),
    )


def check_name(what: str, name: str) -> None:
    """Refuse a task name or an identifier that the database cannot hold."""
    if not name:
        raise OptionFault(what, "it is empty")
    _check_text(what, name, LONGEST_NAME)


def check_identifiers(items: Iterable[ParsedCronItem]) -> None:
    """Refuse two items with one identifier: each would take the other's history for its own."""
    first: dict[str, ParsedCronItem] = {}
    problems = []
    for item in items:
        other = first.setdefault(item.identifier, item)
        if other is not item:
            message = f"the identifier {item.identifier!r} is used in {other.place} already; give one its own"
            source = item.source or "cron item"
            problems.append(CrontabProblem(source=source, line=item.line, message=message))
    if problems:
        raise CrontabError("\n".join(map(str, problems)), problems=problems)


def checked_payload(payload: Any) -> dict[str, Any]:
    """The payload as a JSON object, from a mapping, a dataclass, a msgspec struct or a pydantic model."""
    try:
        value = msgspec.json.decode(encode(payload))
    except InvalidArgumentError as error:
        raise OptionFault("payload", str(error).removeprefix("payload: ")) from None
    if not isinstance(value, dict):
        raise OptionFault("payload", f"expected an object, found {payload!r}")
    return value


def _from_mapping(values: Mapping[str, Any]) -> CronItemOptions:
    known = [field.name for field in dataclasses.fields(CronItemOptions)]
    for name in values:
        if name not in known:
            near = closest(name, known)
            hint = f"did you mean {near}? " if near else ""
            raise OptionFault(name, f"unknown option; {hint}allowed: {', '.join(known)}")
    return CronItemOptions(**values)


def _period(value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_time_phrase(value)
        except ValueError as error:
            raise OptionFault("backfill_period", str(error)) from None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise OptionFault("backfill_period", f"expected seconds or a timedelta, found {value!r}")
    if not 0 <= seconds < math.inf:
        raise OptionFault("backfill_period", f"expected 0 or more seconds, found {value!r}")
    return float(seconds)


def _zone(value: object) -> ZoneInfo | None:
    if value is None or isinstance(value, ZoneInfo):
        return value
    if not isinstance(value, str):
        raise OptionFault("tz", f"expected the name of a time zone, found {value!r}")
    try:
        return find_zone(value)
    except CrontabError as error:
        raise OptionFault("tz", str(error)) from None


def _check_whole(option: str, value: object, least: int, most: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionFault(option, f"found {value!r}; allowed: whole numbers from {least} to {most}")


def _check_text(option: str, value: object, longest: int) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise OptionFault(option, f"expected text, found {value!r}")
    if len(value) > longest:
        raise OptionFault(option, f"found {len(value)} characters; allowed: at most {longest}")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise OptionFault(option, "found a character that PostgreSQL cannot store")
