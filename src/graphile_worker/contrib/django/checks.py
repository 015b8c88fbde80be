"""System checks: `manage.py check`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from ...db.blocking import run_blocking
from ...db.foreign import as_blocking_connection
from ...migrate.state import read_state
from ...schema_name import SchemaName
from .conf import worker_settings

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
    """E001, E002 and W001: one backend of TASKS."""
    if not apps.is_installed(APP):
        yield Error(
            f"TASKS[{backend.alias!r}] needs {APP!r} in INSTALLED_APPS",
            hint="Its migrations install the schema.",
            id="graphile_worker.E001",
        )
    try:
        yield from _check_alias(backend.database)
    except ImproperlyConfigured:
        return  # E003
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
    connection = as_blocking_connection(connections[chosen.database])
    state = run_blocking(read_state(connection, SchemaName(chosen.schema)))
    if state.revision is None:
        return [
            Warning(
                f"the schema {chosen.schema!r} is not installed in the database {chosen.database!r}",
                hint="Run `manage.py migrate`.",
                id="graphile_worker.W003",
            )
        ]
    return []
