"""System checks of recurring tasks: CRONTAB and CRON_ITEMS of the setting, and the tasks they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from ...errors import ConfigError
from .conf import DjangoSettings, worker_settings


@register
def check_recurring(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """E003, E004 and W004. Nothing is imported for a project without recurring tasks."""
    try:
        chosen = worker_settings()
    except ImproperlyConfigured:
        return []  # E003 of `checks`
    return list(_problems(chosen)) if chosen.crontab or chosen.cron_items else []


def _problems(chosen: DjangoSettings) -> Iterator[CheckMessage]:
    from .recurring import misfits, recurring_jobs, tasks_named, unknown_tasks
    from .worker import django_tasks, has_framework, own_tasks

    try:
        items = recurring_jobs(chosen)
    except ConfigError as error:
        yield from (Error(line, id="graphile_worker.E003") for line in str(error).splitlines())
        return
    own = {task.identifier: task for task in own_tasks(chosen)}
    of_django = tasks_named(items) if has_framework() else {}
    for problem in misfits(items, own, of_django):
        yield Error(str(problem), id="graphile_worker.E004")
    known = {*own, *of_django, *(task.identifier for task in django_tasks())}
    for problem in unknown_tasks(items, known):
        yield Warning(
            str(problem),
            hint="Tasks are named by their identifiers, those of Django by the path of the function.",
            id="graphile_worker.W004",
        )
