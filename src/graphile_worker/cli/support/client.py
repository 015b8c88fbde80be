"""What every sub-command starts with: the settings, a quiet log, and a client that is closed at the end."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...config import Settings, resolve_settings
from ...observability.log_format import PipeHandler, configure_logging, debug_wanted

if TYPE_CHECKING:
    from ...client import AwaitableContext, WorkerUtils

Result = TypeVar("Result")


def load_settings(ctx: click.Context, flags: dict[str, Any]) -> Settings:
    """The settings for a command: its own flags, then those in front of it, then environment and file."""
    values = {"connection_string": _flag(ctx, "connection"), "schema": _flag(ctx, "schema")}
    for name in ("log_format", "log_level"):
        values[name] = _flag(ctx, name)
    return resolve_settings(values | flags, config_file=_flag(ctx, "config"), call="command line")


def start_logging(settings: Settings, *, quiet: bool) -> PipeHandler:
    """Set up the log; `quiet` is for commands that print results: only warnings, on standard error."""
    options = settings.command_line
    level = "debug" if debug_wanted() else options.log_level
    if quiet and level == "info":
        level = "warning"
    return configure_logging(options.log_format, level, stdout=sys.stderr if quiet else None)


def open_utils(ctx: click.Context) -> AwaitableContext[WorkerUtils]:
    """A client for one command that prints results; one connection is enough for it."""
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    return utils_for(settings)


def utils_for(settings: Settings) -> AwaitableContext[WorkerUtils]:
    """A client with one connection."""
    from ...client import make_worker_utils  # the driver, which commands without a database do not need

    # The options as they are: the file and the environment were read, and -C may have chosen another file.
    return make_worker_utils(options=settings.worker, max_pool_size=1)


def run_async(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run one command to its end."""
    collect_garbage()
    return asyncio.run(coroutine)


def collect_garbage() -> None:
    """Switch the collector on after start-up; what start-up made stays for good and need not be looked at."""
    gc.freeze()
    gc.enable()


def _flag(ctx: click.Context, name: str) -> Any:
    """A flag of this command, or of the command in front of it."""
    current: click.Context | None = ctx
    while current is not None:
        if current.params.get(name) is not None:
            return current.params[name]
        current = current.parent
    return None
