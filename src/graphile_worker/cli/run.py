"""`graphile-worker` without a sub-command: run a worker, or do one of the things that Node has as flags."""

from __future__ import annotations

from typing import Any

import click

from ..config import Settings
from ..observability.log_format import PipeHandler
from .session import load_settings, start_logging

FLAGS = {
    "crontab": "crontab_file",
    "jobs": "concurrency",
    "max_pool_size": "max_pool_size",
    "tasks": "task_directory",
    "processes": "processes",
    "grace": "grace",
}
"""Flags whose value is an option's value, and the option."""


def run_command(ctx: click.Context, flags: dict[str, Any]) -> int:
    """Do what the flags ask for; returns the exit status."""
    alone = [name for name in ("schema_only", "once", "cleanup") if flags[name]]
    if len(alone) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in alone[:2])
        raise click.UsageError(f"{first} and {second} exclude each other; give one of them.", ctx)
    settings = load_settings(ctx, _options_from(flags))
    handler = start_logging(settings, quiet=False)
    if flags["schema_only"]:
        return _schema_only(settings)
    if flags["cleanup"]:
        from .maintenance import run_cleanup

        return run_cleanup(settings, [name for names in flags["cleanup"] for name in names])
    processes = settings.command_line.processes
    if processes == 1:
        return work(settings, handler, once=flags["once"])
    from . import working  # noqa: F401 — loaded once, before the processes part
    from .processes import supervise

    return supervise(
        processes, lambda: work(settings, handler, once=flags["once"]), replace=not flags["once"]
    )


def work(settings: Settings, handler: PipeHandler, *, once: bool) -> int:
    """Run a worker in this process until it is done or stopped."""
    from .working import run_worker

    return run_worker(settings.worker, handler, once=once)


def _schema_only(settings: Settings) -> int:
    from .database import describe_report, migrate_schema
    from .session import run_async

    click.echo(describe_report(run_async(migrate_schema(settings))))
    return 0


def _options_from(flags: dict[str, Any]) -> dict[str, Any]:
    values = {option: flags[flag] for flag, option in FLAGS.items()}
    if flags["poll_interval"] is not None:
        values["poll_interval"] = flags["poll_interval"] / 1000
    if flags["no_prepared_statements"]:
        values["prepared_statements"] = False
    return values
