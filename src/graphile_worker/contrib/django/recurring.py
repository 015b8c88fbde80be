"""Recurring tasks: what CRONTAB and CRON_ITEMS say, and whether it fits the tasks of the project.

The worker calls `recurring_jobs`; `checks` calls the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.utils.module_loading import import_string

from ...cron import ParsedCronItem, parse_cron_item
from ...cron.crontab import check_identifiers, read_crontab
from ...cron.item_jobs import check_payload_of
from ...errors import ConfigError, CrontabError, CrontabProblem, InvalidArgumentError, JobError
from ...tasks.task import AnyTask
from ...values.text import closest
from .conf import DjangoSettings, place


def recurring_jobs(chosen: DjangoSettings) -> list[ParsedCronItem]:
    """The recurring jobs of both keys. Raises CrontabError, which lists every problem."""
    items, problems = read_crontab(chosen.crontab or "", source=place("CRONTAB"))
    for number, item in enumerate(_listed(chosen.cron_items)):
        try:
            items.append(parse_cron_item(item, source=f"{place('CRON_ITEMS')}, item {number}"))
        except CrontabError as error:
            problems += error.problems
    if problems:
        raise CrontabError("\n".join(map(str, problems)), problems=problems)
    check_identifiers(items)
    return items


def _listed(given: Any) -> Iterable[Any]:
    where = place("CRON_ITEMS")
    if isinstance(given, str):
        where = f"{where}: {given}"
        try:
            given = import_string(given)
        except ImportError as error:
            raise ConfigError(f"{where}: {error}") from error
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"{where}: expected a list of CronItem or of dictionaries, got {given!r}")
    return given


def misfits(
    items: Iterable[ParsedCronItem], own: Mapping[str, AnyTask], found: Mapping[str, Any]
) -> Iterator[CrontabProblem]:
    """A problem for each item whose task cannot take its payload."""
    for item in items:
        try:
            if item.task_identifier in own:
                check_payload_of(own[item.task_identifier], item.payload)
            elif item.task_identifier in found:
                _check_arguments(found[item.task_identifier], item.payload or {})
        except (InvalidArgumentError, JobError) as error:
            yield _problem(item, f"{item.task_identifier}: {error}")


def unknown_tasks(items: Iterable[ParsedCronItem], known: Iterable[str]) -> Iterator[CrontabProblem]:
    """A problem for each item whose task the project does not have."""
    names = set(known)
    for item in items:
        if item.task_identifier not in names:
            near = closest(item.task_identifier, names, cutoff=0.7)
            hint = f"; did you mean {near!r}?" if near else ""
            yield _problem(item, f"this project has no task {item.task_identifier!r}{hint}")


def tasks_named(items: Iterable[ParsedCronItem]) -> dict[str, Any]:
    """The tasks of Django's framework that the items name, by identifier."""
    from .tasks import InvalidTask, find_task

    found = {}
    for name in {item.task_identifier for item in items}:
        try:
            task = find_task(name)
        except (ImportError, InvalidTask):  # InvalidTask: its backend does not have the queue
            continue
        if task is not None:
            found[name] = task
    return found


def _check_arguments(task: Any, payload: Mapping[str, Any]) -> None:
    from .tasks import ARGUMENTS, arguments_of

    args, kwargs = arguments_of(payload)
    if other := sorted(payload.keys() - {"args", "kwargs"}):
        raise JobError(f"{ARGUMENTS}; it has {', '.join(map(repr, other))}")
    context = [None] if task.takes_context else []
    try:
        inspect.signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise JobError(str(error)) from None


def _problem(item: ParsedCronItem, message: str) -> CrontabProblem:
    return CrontabProblem(source=item.source, line=item.line, column=item.column, message=message)
