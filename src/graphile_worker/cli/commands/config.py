"""`graphile-worker config`: every option, its value and its source; passwords are masked."""

from __future__ import annotations

from typing import Any

from ...config import Settings
from ...config.admin_options import AdminOptions
from ...config.settings import known_settings
from ...db.connection_text import HIDDEN
from ...db.dsn import masked
from ...options import WorkerOptions
from ...plugin_options import shown_options
from ..support.client import with_database
from ..support.command import Output, command
from ..support.output import print_table


@command("config", database=True)
def config_command(settings: Settings) -> Output:
    """Show every option, its value, and where the value comes from.

    \b
    graphile-worker config
    GRAPHILE_WORKER_CONCURRENCY=4 graphile-worker config --json | jq .concurrency
    """
    settings = with_database(settings, quiet=True)
    rows = [(name, _value(settings, name), source) for name, source in settings.provenance.items()]
    return Output(
        lambda: {name: {"value": value, "source": source} for name, value, source in rows},
        lambda: print_table(
            ("option", "value", "source"), [(name, _shown(value), source) for name, value, source in rows]
        ),
    )


def _value(settings: Settings, name: str) -> Any:
    setting = known_settings()[name]
    value: Any = settings if setting.owner is AdminOptions else settings.command_line
    value = settings.worker if setting.owner is WorkerOptions else value
    for part in name.split("."):
        value = getattr(value, part)
    if name == "plugin_options":
        return shown_options(value, HIDDEN)
    if not setting.is_secret or not value:
        return value
    if isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    return masked(value) if name == "connection_string" else HIDDEN


def _shown(value: Any) -> str:
    """A value as a configuration file would have it."""
    if value is None or value in ({}, []):
        return "(not set)"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
