"""Installs or upgrades the schema of the jobs, and records the models over its tables."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.migrations.state import ModelState

from .. import schema
from ..models import FinishedJob, Job, Worker


def install(apps: Any, schema_editor: Any) -> None:
    schema.install(schema_editor.connection.alias)


def keep(apps: Any, schema_editor: Any) -> None:
    print("\n  The schema of the jobs stays: drop it by hand if nothing uses it.", end="")  # noqa: T201


def recorded(model: type[models.Model]) -> migrations.CreateModel:
    """The model as it is now. It is not managed, so Django creates and changes nothing."""
    state = ModelState.from_model(model)
    return migrations.CreateModel(state.name, list(state.fields.items()), state.options)


class Migration(migrations.Migration):
    """Going back leaves the schema as it is: it may have jobs, and other programs may use it."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012
    operations = [migrations.RunPython(install, keep), *map(recorded, (Job, Worker, FinishedJob))]  # noqa: RUF012
