"""`graphile-worker` without a sub-command: runs a worker, or does what one of Node's flags asks for."""

from __future__ import annotations

from typing import Any

import click

from ..config import Settings
from ..config.settings import callable_names
from ..logging.configure import PipeHandler
from ..runner.process.logs import start_early_logging, start_logging
from ..runner.process.signals import ParentProcess
from .support.client import load_settings, with_app, with_database
from .support.parameters import ARGUMENTS


def run_command(ctx: click.Context, flags: dict[str, Any]) -> int:
    """Do what the flags ask for; returns the exit status."""
    exclusive = [name for name in ("schema_only", "once", "cleanup", "watch") if flags[name]]
    if len(exclusive) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in exclusive[:2])
        raise click.UsageError(f"{first} and {second} cannot be combined.", ctx)
    start_early_logging(flags["log_format"])
    options = _options_from(flags)
    if flags["watch"]:
        return _watch(ctx, options)
    settings = load_settings(ctx, options)
    handler = start_logging(settings)
    if not settings.process.app:
        settings = with_database(settings)
    if flags["schema_only"]:
        return _schema_only(with_app(settings)[0])
    if flags["cleanup"]:
        from .commands.cleanup import run_cleanup

        return run_cleanup(with_app(settings)[0], [name for names in flags["cleanup"] for name in names])
    return _run(settings, handler, once=flags["once"])


def _run(settings: Settings, handler: PipeHandler, *, once: bool) -> int:
    """Run a worker in this process, or several."""
    from ..runner.process.run_service import Service, run_service

    parent = ParentProcess()

    def make_arguments() -> dict[str, Any]:
        chosen, app = with_app(settings)  # with --processes, in each process
        arguments: dict[str, Any] = {"options": with_database(chosen).worker, "app": app}
        if parent.reports is not None:
            from .dev.feed import FeedPlugin

            arguments["plugins"] = (FeedPlugin(parent.reports),)
        return arguments

    return run_service(
        Service(make_arguments, parent, settings.process, grace=settings.grace, once=once, handler=handler)
    )


def _watch(ctx: click.Context, options: dict[str, Any]) -> int:
    from ..runner.process.watch import COMMAND, run_watched

    def load() -> Settings:
        return load_settings(ctx, options)

    start_logging(load())
    command = [*COMMAND, *ctx.meta[ARGUMENTS], "--no-watch"]
    return run_watched(command, load, config_file=ctx.params["config"])


def _schema_only(settings: Settings) -> int:
    from .commands.cleanup import describe_report, migrate_schema
    from .support.client import run_async

    click.echo(describe_report(run_async(migrate_schema(settings))))
    return 0


def _options_from(flags: dict[str, Any]) -> dict[str, Any]:
    """The options among the flags; `load_settings` reads those of all commands itself."""
    return {name: value for name, value in flags.items() if name in callable_names() and name != "log_level"}
