"""System checks: `manage.py check`. The backend has those of TASKS."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from ...errors import ConfigError, CrontabError, CrontabProblem
from .conf import DjangoSettings, check_alias, worker_settings
from .schema import shortcoming


@register
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """E002 and E003: the setting GRAPHILE_WORKER."""
    try:
        chosen = worker_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="graphile_worker.E003")]
    return check_alias(chosen.database)


@register(Tags.database)
def check_schema(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W003: `manage.py check --database default` looks whether the schema is installed."""
    try:
        chosen = worker_settings()
    except ImproperlyConfigured:
        return []  # E003
    if chosen.database not in (databases or ()) or check_alias(chosen.database):
        return []
    if sys.argv[1:2] == ["migrate"]:  # which does it next
        return []
    found = shortcoming(chosen.database)
    if found is None:
        return []
    problem = "is not installed" if found == "missing" else "is older than this version of graphile-worker"
    return [
        Warning(
            f"the schema {chosen.schema!r} in the database {chosen.database!r} {problem}",
            hint="Run `manage.py migrate`.",
            id="graphile_worker.W003",
        )
    ]


@register
def check_recurring(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """E003, E004 and W004. Nothing is imported for a project without recurring tasks."""
    try:
        chosen = worker_settings()
    except ImproperlyConfigured:
        return []  # E003
    return list(_problems(chosen)) if chosen.crontab or chosen.cron_items else []


def _problems(chosen: DjangoSettings) -> Iterator[CheckMessage]:
    from .recurring import misfits, recurring_jobs, tasks_named, unknown_tasks
    from .worker import django_tasks, has_framework, own_tasks

    try:
        items = recurring_jobs(chosen)
    except CrontabError as error:
        yield from (Error(_line(problem), id="graphile_worker.E003") for problem in error.problems)
        return
    except ConfigError as error:
        yield Error(str(error), id="graphile_worker.E003")
        return
    own = {task.identifier: task for task in own_tasks(chosen)}
    of_django = tasks_named(items) if has_framework() else {}
    for problem in misfits(items, own, of_django):
        yield Error(_line(problem), id="graphile_worker.E004")
    known = {*own, *of_django, *(task.identifier for task in django_tasks())}
    for problem in unknown_tasks(items, known):
        yield Warning(
            _line(problem),
            hint="Tasks are named by their identifiers, those of Django by the path of the function.",
            id="graphile_worker.W004",
        )


def _line(problem: CrontabProblem) -> str:
    """Without the line of the crontab that a terminal shows below."""
    return f"{problem.place}: {problem.message}"
