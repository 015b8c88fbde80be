"""Loading recurring jobs: from parsed items, crontab text, or a crontab file, in this order.

`parse_cron_items` makes a `ParsedCronItem` of each `CronItem` that is defined in code. It is pure.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from ..errors import CrontabError, CrontabProblem, InvalidPayloadError
from ..tasks.task import Task
from .crontab import (
    OptionFault,
    check_identifier,
    check_identifiers,
    checked_options,
    checked_payload,
    parse_crontab,
)
from .fields import FieldError, parse_pattern
from .item import CronItem, ParsedCronItem, identifier_of
from .item_jobs import check_payload_of
from .matcher import FunctionMatcher, Matcher, PatternMatcher

logger = logging.getLogger("graphile_worker.cron")


def collect_cron_items(
    *,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    crontab_file: str | PathLike[str] | None = None,
    must_exist: bool = False,
) -> list[ParsedCronItem]:
    """The items of a worker; text or parsed items replace the file.

    With `must_exist`, for a file that the user has named, an unreadable file is an error.
    """
    if crontab is not None and parsed_cron_items is not None:
        raise CrontabError("give either `crontab` or `parsed_cron_items`, not both")
    if parsed_cron_items is not None:
        for item in parsed_cron_items:
            if not isinstance(item, ParsedCronItem):
                raise CrontabError(
                    f"parsed_cron_items: got {item!r}; pass items through parse_cron_items or parse_crontab"
                )
        check_identifiers(parsed_cron_items)
        return list(parsed_cron_items)
    if crontab is not None:
        return parse_crontab(crontab, source="crontab option")
    return [] if crontab_file is None else read_crontab_file(crontab_file, must_exist=must_exist)


def read_crontab_file(path: str | PathLike[str], *, must_exist: bool = False) -> list[ParsedCronItem]:
    """The items of a file. Raises CrontabError for invalid lines.

    A missing or unreadable file has no items, unless it `must_exist`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if must_exist:
            raise CrontabError(
                f"{path}: the crontab does not exist; create it, or leave out the option that names it"
            ) from None
        logger.debug("no crontab at %s; recurring jobs are off", path)
        return []
    except UnicodeDecodeError as error:
        raise CrontabError(f"{path}: the crontab is not UTF-8 text ({error})") from None
    except OSError as error:
        if must_exist:
            raise CrontabError(f"{path}: the crontab cannot be read: {error.strerror}") from None
        logger.error("the crontab %s cannot be read (%s); recurring jobs are off", path, error.strerror)
        return []
    return parse_crontab(text, source=str(path))


_KEYS = tuple(field.name for field in dataclasses.fields(CronItem))


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
