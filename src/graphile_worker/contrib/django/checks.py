"""System checks: `manage.py check`. `recurring_checks` has those of recurring tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from .conf import worker_settings
from .schema import shortcoming

APP = "graphile_worker.contrib.django"


@register
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """E002 and E003: the setting GRAPHILE_WORKER."""
    try:
        chosen = worker_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="graphile_worker.E003")]
    return _check_alias(chosen.database)


def check_backend(backend: Any) -> Iterable[CheckMessage]:
    """E001, E002, W001 and W002: one backend of TASKS."""
    if not apps.is_installed(APP):
        yield Error(
            f"TASKS[{backend.alias!r}] needs {APP!r} in INSTALLED_APPS",
            hint="Its migrations install the schema.",
            id="graphile_worker.E001",
        )
    try:
        problems = _check_alias(backend.database)
    except ImproperlyConfigured:
        return  # E003
    yield from problems or _check_routers(backend)
    if not backend.queues:
        yield Warning(
            f"TASKS[{backend.alias!r}]['QUEUES'] is empty: a worker cannot know the queues",
            hint="Name them here, or with `manage.py graphile_worker --queue NAME`.",
            id="graphile_worker.W001",
        )


def _check_alias(alias: str) -> list[CheckMessage]:
    if alias not in connections:
        return [Error(f"there is no database {alias!r} in DATABASES", id="graphile_worker.E002")]
    if connections[alias].vendor != "postgresql":
        return [Error(f"the database {alias!r} is not PostgreSQL", id="graphile_worker.E002")]
    return []


def _check_routers(backend: Any) -> Iterable[CheckMessage]:
    if not settings.DATABASE_ROUTERS:
        return
    models = [model for model in apps.get_models() if model._meta.app_label != "graphile_worker"]
    written = sorted({router.db_for_write(model) for model in models})
    if written and backend.database not in written:
        yield Warning(
            f"TASKS[{backend.alias!r}] enqueues in the database {backend.database!r}, where no model is "
            "written: tasks that are enqueued in a transaction are not part of it",
            hint=f"Set DATABASE to an alias that your routers write to: {', '.join(map(repr, written))}.",
            id="graphile_worker.W002",
        )


@register(Tags.database)
def check_schema(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W003: `manage.py check --database default` looks whether the schema is installed."""
    try:
        chosen = worker_settings()
    except ImproperlyConfigured:
        return []  # E003
    if chosen.database not in (databases or ()) or _check_alias(chosen.database):
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
