"""Validation of recurring jobs, from a crontab or from code. Pure.

The limits are those of JobSpec. An item that the database rejects would block all others of its minute, so
it is rejected when it is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from ..errors import CrontabError, CrontabProblem, InvalidArgumentError
from ..values.payload import encode
from ..values.spec import MAX_IDENTIFIER_LENGTH, JobSpec, check_job_key_mode, check_name
from ..values.text import closest, parse_time_phrase
from .item import CronItemOptions, ParsedCronItem, ParsedCronOptions
from .matcher import find_zone

JOB_KEY_MODES = ("replace", "preserve_run_at")


class OptionFault(ValueError):
    """An option has an invalid value; `option` is its name in CronItemOptions."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(message)


def checked_options(options: CronItemOptions | Mapping[str, Any]) -> ParsedCronOptions:
    """The options, validated and in their final form. Raises OptionFault."""
    if isinstance(options, Mapping):
        options = _from_mapping(options)
    if not isinstance(options, CronItemOptions):
        raise OptionFault("options", f"expected CronItemOptions or a mapping, got {options!r}")
    mode = options.job_key_mode
    with _option_faults():
        JobSpec(
            "any",
            queue_name=options.queue_name,
            max_attempts=options.max_attempts,
            job_key=None if options.job_key == "" else options.job_key,
            priority=options.priority,
        )
        if mode is not None:
            check_job_key_mode(mode, JOB_KEY_MODES)
    return ParsedCronOptions(
        backfill_period=_period(options.backfill_period),
        max_attempts=options.max_attempts,
        queue_name=options.queue_name,
        job_key=options.job_key,
        job_key_mode=mode or ("replace" if options.job_key else None),
        priority=options.priority,
        tz=_zone(options.tz),
    )


def check_identifier(what: str, identifier: object) -> None:
    """Reject an identifier that the database cannot store."""
    with _option_faults():
        check_name(what, identifier, MAX_IDENTIFIER_LENGTH)


@contextmanager
def _option_faults() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        raise OptionFault(error.argument, str(error).removeprefix(f"{error.argument}: ")) from None


def check_identifiers(items: Iterable[ParsedCronItem]) -> None:
    """Reject two items with the same identifier: they would share their last_execution."""
    first: dict[str, ParsedCronItem] = {}
    problems = []
    for item in items:
        other = first.setdefault(item.identifier, item)
        if other is not item:
            message = f"the identifier {item.identifier!r} is already used in {other.place}; change one"
            source = item.source or "cron item"
            problems.append(CrontabProblem(source=source, line=item.line, message=message))
    if problems:
        raise CrontabError("\n".join(map(str, problems)), problems=problems)


def checked_payload(payload: Any) -> dict[str, Any]:
    """The payload as a JSON object, from a mapping, a dataclass, a msgspec struct or a pydantic model."""
    with _option_faults():
        value = msgspec.json.decode(encode(payload))
    if not isinstance(value, dict):
        raise OptionFault("payload", f"expected an object, got {payload!r}")
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
        raise OptionFault("backfill_period", f"expected seconds or a timedelta, got {value!r}")
    if not 0 <= seconds < math.inf:
        raise OptionFault("backfill_period", f"expected 0 or more seconds, got {value!r}")
    return float(seconds)


def _zone(value: object) -> ZoneInfo | None:
    if value is None or isinstance(value, ZoneInfo):
        return value
    if not isinstance(value, str):
        raise OptionFault("tz", f"expected the name of a time zone, got {value!r}")
    try:
        return find_zone(value)
    except CrontabError as error:
        raise OptionFault("tz", str(error)) from None
