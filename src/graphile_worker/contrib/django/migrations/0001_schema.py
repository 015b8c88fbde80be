"""Installs or upgrades the schema of the jobs."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from .. import schema


def install(apps: Any, schema_editor: Any) -> None:
    schema.install(schema_editor.connection.alias)


def keep(apps: Any, schema_editor: Any) -> None:
    print("\n  The schema of the jobs stays: drop it by hand if nothing uses it.", end="")  # noqa: T201


class Migration(migrations.Migration):
    """Going back leaves the schema as it is: it may have jobs, and other programs may use it."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012
    operations = [migrations.RunPython(install, keep)]  # noqa: RUF012
