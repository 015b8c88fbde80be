"""The application that projects install."""

from __future__ import annotations

from django.apps import AppConfig


class GraphileWorkerConfig(AppConfig):
    """Registers the system checks."""

    name = "graphile_worker.contrib.django"
    label = "graphile_worker"
    verbose_name = "Graphile Worker"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers them
