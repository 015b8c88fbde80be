"""Settings, logging and the database client of a command."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...config import Settings, resolve_settings
from ...observability.log_format import PipeHandler, configure_logging, debug_wanted
from .parameters import split_levels

if TYPE_CHECKING:
    from ...client import AwaitableContext, WorkerUtils

Result = TypeVar("Result")

DATABASE_VARIABLES = ("DATABASE_URL", "PGDATABASE")
"""Either one names a database when no option does."""


def load_settings(ctx: click.Context, flags: dict[str, Any]) -> Settings:
    """The settings of a command: its own flags, then those before its name, then environment and file."""
    values = {"connection_string": _flag(ctx, "connection"), "schema": _flag(ctx, "schema")}
    values["log_format"] = _flag(ctx, "log_format")
    values |= split_levels(_flag(ctx, "log_level"))
    return resolve_settings(values | flags, config_file=_flag(ctx, "config"), call="command line")


def with_database(settings: Settings, *, quiet: bool = False) -> Settings:
    """The settings; if they name no database, with that of a `dev` running in this directory.

    Unless `quiet`, a line on standard error says so.
    """
    if settings.worker.connection_string is not None or any(map(os.environ.get, DATABASE_VARIABLES)):
        return settings
    from .dev_database import use_dev_database

    return use_dev_database(settings, quiet=quiet)


def start_logging(settings: Settings, *, quiet: bool) -> PipeHandler:
    """Set up the log. `quiet` is for commands that print results: warnings only, on standard error.

    Otherwise what tasks print appears at once, and in JSON mode as JSON.
    """
    options = settings.command_line
    levels = {"graphile_worker": "debug"} if debug_wanted() else {}
    level = "warning" if quiet and options.log_level == "info" else options.log_level
    if not quiet and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return configure_logging(
        options.log_format,
        level,
        levels=levels | options.log_levels,
        stdout=sys.stderr if quiet else None,
        capture=not quiet and options.log_format == "json",
    )


def start_early_logging(log_format: str | None) -> None:
    """Before the settings are known: log errors in them as JSON, if a flag or the environment asks for it."""
    if (log_format or os.environ.get("GRAPHILE_WORKER_LOG_FORMAT")) == "json":
        configure_logging("json", capture=True)


def utils_for(settings: Settings) -> AwaitableContext[WorkerUtils]:
    """A client with one connection."""
    from ...client import make_worker_utils  # the driver, which commands without a database do not need

    # Not from file and environment again: -C may have chosen another file.
    return make_worker_utils(options=with_database(settings).worker, max_pool_size=1)


def run_async(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine of a command to its end."""
    collect_garbage()
    return asyncio.run(coroutine)


def collect_garbage() -> None:
    """Enable the collector, which `main` disabled; objects from start-up are permanent and not scanned."""
    gc.freeze()
    gc.enable()


def _flag(ctx: click.Context, name: str) -> Any:
    """A flag of this command, or of the group before it."""
    current: click.Context | None = ctx
    while current is not None:
        if current.params.get(name) is not None:
            return current.params[name]
        current = current.parent
    return None
