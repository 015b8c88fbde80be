"""Installs or upgrades the schema of the jobs."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from ....db.blocking import run_blocking
from ....db.foreign import as_blocking_connection
from ....migrate.run import migrate
from ....schema_name import SchemaName
from ..conf import worker_settings


def install(apps: Any, schema_editor: Any) -> None:
    chosen = worker_settings()
    connection = schema_editor.connection
    if connection.alias == chosen.database:
        run_blocking(migrate(as_blocking_connection(connection), SchemaName(chosen.schema)))


class Migration(migrations.Migration):
    """Going back leaves the schema as it is: it may have jobs, and other programs may use it."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012
    operations = [migrations.RunPython(install, migrations.RunPython.noop)]  # noqa: RUF012
