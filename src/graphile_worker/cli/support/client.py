"""Settings and the database client of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...config import Host, Settings, resolve_settings
from ...runner.process.dev_database import with_database as with_database
from ...runner.process.signals import collect_garbage
from .parameters import split_levels

if TYPE_CHECKING:
    from ...client import AwaitableContext, WorkerUtils
    from ...hooks import Hooks
    from ...runner.application import App

Result = TypeVar("Result")


def load_settings(ctx: click.Context, flags: dict[str, Any]) -> Settings:
    """The settings of a command: its own flags, then those before its name, then environment and file.

    A host, which is then the object of the context, has settings in place of the file.
    """
    values = {"connection_string": _flag(ctx, "connection_string"), "schema": _flag(ctx, "schema")}
    for name in ("app", "log_format"):
        values[name] = _flag(ctx, name)
    values |= split_levels(_flag(ctx, "log_level"))
    file, host = _flag(ctx, "config"), ctx.find_object(Host)
    return resolve_settings(values | flags, config_file=file, call="command line", host=host)


def with_app(settings: Settings) -> tuple[Settings, App | None]:
    """Import the app; the settings over its options, and the app. Its lifespan is not entered."""
    if not settings.process.app:
        return settings, None
    from ...runner.application import load_app

    app = load_app(settings.process.app)
    return settings.over(app.options, f"app {app.name}"), app


def utils_for(settings: Settings, *, connections: int = 1) -> AwaitableContext[WorkerUtils]:
    """A client, with the redactors of the app. To be told of finished jobs, it needs two connections."""
    from ...client import make_worker_utils  # the driver, which commands without a database do not need

    # Not from file and environment again: -C may have chosen another file.
    options = with_database(settings).worker.with_values(plugins=[])  # plugins are for programs, not commands
    return make_worker_utils(options=options, max_pool_size=connections, hooks=_redaction(settings))


def _redaction(settings: Settings) -> Hooks | None:
    """Only the redactors: other hooks of the app are for its own programs."""
    app = with_app(settings)[1]
    if app is None or not app.hooks.table.redactors:
        return None
    from ...hooks import Hooks

    hooks = Hooks()
    for redactor in app.hooks.table.redactors:
        hooks.redact(redactor)
    return hooks


def run_async(coroutine: Coroutine[Any, Any, Result]) -> Result:
    collect_garbage()
    return asyncio.run(coroutine)


def _flag(ctx: click.Context, name: str) -> Any:
    """A flag of this command, or of the group before it."""
    current: click.Context | None = ctx
    while current is not None:
        if current.params.get(name) is not None:
            return current.params[name]
        current = current.parent
    return None
