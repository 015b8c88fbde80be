"""Recurring jobs defined in code: CronItem to ParsedCronItem. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from ..errors import CrontabError, CrontabProblem, InvalidPayloadError
from ..tasks.task import Task
from .check import OptionFault, check_identifier, checked_options, checked_payload
from .fields import FieldError, parse_pattern
from .item import CronItem, ParsedCronItem, identifier_of
from .matcher import FunctionMatcher, Matcher, PatternMatcher
from .task_side import check_payload_of

_KEYS = ("task", "match", "options", "payload", "identifier")


def parse_cron_items(items: Iterable[CronItem | Mapping[str, Any]]) -> list[ParsedCronItem]:
    """Validate recurring jobs defined in code. Raises CrontabError, which lists every problem."""
    if isinstance(items, str | bytes | Mapping | CronItem):
        raise CrontabError(f"parse_cron_items takes a list of CronItem, got {items!r}")
    parsed: list[ParsedCronItem] = []
    problems: list[CrontabProblem] = []
    for number, item in enumerate(items):
        source = f"item {number} of parse_cron_items"
        try:
            parsed.append(parse_cron_item(item, source=source))
        except CrontabError as error:
            problems += error.problems or (CrontabProblem(source=source, message=str(error)),)
    if problems:
        raise CrontabError("\n".join(map(str, problems)), problems=problems)
    return parsed


def parse_cron_item(item: CronItem | Mapping[str, Any], *, source: str = "cron item") -> ParsedCronItem:
    """Validate one recurring job; `source` names it in the error."""
    try:
        return _parse(_as_item(item), source)
    except (FieldError, OptionFault, CrontabError, InvalidPayloadError) as error:
        where = f"{error.option}: " if isinstance(error, OptionFault) else ""
        problem = CrontabProblem(source=source, message=f"{where}{error}")
        raise CrontabError(str(problem), problems=[problem]) from None


def _as_item(item: object) -> CronItem:
    if isinstance(item, CronItem):
        return item
    if not isinstance(item, Mapping):
        raise CrontabError(f"expected a CronItem, got {item!r}")
    if "pattern" in item:
        raise CrontabError("`pattern` is not a field of a cron item; the field is called `match`")
    for key in item:
        if key not in _KEYS:
            raise CrontabError(f"unknown field {key!r}; allowed: {', '.join(_KEYS)}")
    for key in ("task", "match"):
        if item.get(key) is None:
            raise CrontabError(f"`{key}` is missing")
    return CronItem(**{key: value for key, value in item.items() if value is not None})


def _parse(item: CronItem, source: str) -> ParsedCronItem:
    task = identifier_of(item.task)
    check_identifier("task", task)
    identifier = task if item.identifier is None else item.identifier
    check_identifier("identifier", identifier)
    options = checked_options(item.options)
    payload = {} if item.payload is None else checked_payload(item.payload)
    if isinstance(item.task, Task):
        check_payload_of(item.task, payload)
    return ParsedCronItem(
        task_identifier=task,
        match=_matcher(item.match, options.tz, identifier),
        options=options,
        payload=payload,
        identifier=identifier,
        pattern=item.match if isinstance(item.match, str) else None,
        source=source,
    )


def _matcher(match: object, zone: ZoneInfo | None, identifier: str) -> Matcher:
    if isinstance(match, str):
        return PatternMatcher(parse_pattern(match), zone)
    if inspect.iscoroutinefunction(match):
        raise CrontabError("`match` is a coroutine function; it must be a plain function")
    if callable(match):
        return FunctionMatcher(match, zone, identifier)
    raise CrontabError(f"`match` must be a pattern or a function, got {match!r}")
