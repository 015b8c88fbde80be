"""What a worker registers about its recurring jobs, so that others can see, pause and run them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..database.statements.schedules import ScheduleDefinition
from ..errors import InvalidArgumentError
from ..tasks.task import AnyTask
from ..values.payload import encode
from ..values.unique import Unique
from .item import ParsedCronItem
from .matcher import FunctionMatcher
from .task_side import NO_OPTIONS, job_options, options_of, payload_at

REGISTERED_OPTIONS = ("queue_name", "max_attempts", "job_key", "job_key_mode", "priority")


def schedule_definitions(
    items: Sequence[ParsedCronItem], tasks: Mapping[str, AnyTask]
) -> list[ScheduleDefinition]:
    """One definition for each item; options of its task fill in what it does not set."""
    return [_definition(item, tasks.get(item.task_identifier)) for item in items]


def _definition(item: ParsedCronItem, task: AnyTask | None) -> ScheduleDefinition:
    zone = item.options.tz
    return ScheduleDefinition(
        identifier=item.identifier,
        task_identifier=item.task_identifier,
        pattern=item.pattern,
        zone=None if zone is None else zone.key,
        payload=None if item.payload is None else encode(item.payload),
        options=_options(item, task),
        source=_source(item),
    )


def _options(item: ParsedCronItem, task: AnyTask | None) -> dict[str, Any]:
    try:
        of_task = options_of(task, payload_at(item.payload, datetime.now(UTC), backfilled=False))
    except InvalidArgumentError:  # the scheduler reports it whenever the item is due
        of_task = NO_OPTIONS
    merged = job_options(item.options, of_task)
    options: dict[str, Any] = {
        name: merged[name] for name in REGISTERED_OPTIONS if merged.get(name) is not None
    }
    if isinstance(flags := merged.get("flags"), Iterable):
        options["flags"] = sorted(flags)
    if isinstance(unique := merged.get("unique"), Unique):
        options["unique"] = msgspec.to_builtins(unique)
    if item.options.backfill_period:
        options["backfill_period"] = item.options.backfill_period
    return options


def _source(item: ParsedCronItem) -> str | None:
    """The file and line of a crontab, or of the function that decides; else that it comes from code."""
    if item.line is not None and item.source:
        return f"{item.source}:{item.line}"
    if isinstance(item.match, FunctionMatcher):
        code = getattr(inspect.unwrap(item.match.function), "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}"
    return "code"
