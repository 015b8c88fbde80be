"""`graphile-worker config`: every option, its value and where it came from; passwords are hidden."""

from __future__ import annotations

from typing import Any

import click

from ...config.settings import known_settings
from ...db.dsn import masked
from ...options import WorkerOptions
from ..support.client import load_settings
from ..support.output import print_json, print_table
from ..support.parameters import CONFIG_OPTION, command_options


@click.command("config")
@command_options
@CONFIG_OPTION
@click.pass_context
def config_command(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Show every option, its value, and where the value comes from.

    \b
    graphile-worker config
    GRAPHILE_WORKER_CONCURRENCY=4 graphile-worker config --json | jq .concurrency
    """
    settings = load_settings(ctx, {})
    rows = []
    for name, place in settings.provenance.items():
        value: Any = (
            settings.worker if known_settings()[name].owner is WorkerOptions else settings.command_line
        )
        for part in name.split("."):
            value = getattr(value, part)
        if name == "connection_string" and value is not None:
            value = masked(value)
        rows.append((name, value, place))
    if as_json:
        print_json({name: {"value": value, "source": place} for name, value, place in rows})
    else:
        print_table(
            ("option", "value", "source"), [(name, _shown(value), place) for name, value, place in rows]
        )


def _shown(value: Any) -> str:
    """A value as a configuration file would write it."""
    if value is None:
        return "(not set)"
    return str(value).lower() if isinstance(value, bool) else str(value)
