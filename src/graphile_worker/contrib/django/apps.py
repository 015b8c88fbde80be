"""The application that projects install."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class GraphileWorkerConfig(AppConfig):
    """Registers the system checks, and upgrades the schema with `manage.py migrate`."""

    name = "graphile_worker.contrib.django"
    label = "graphile_worker"
    verbose_name = "Graphile Worker"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, schema  # checks register themselves

        _ = checks
        post_migrate.connect(schema.upgrade, sender=self)
