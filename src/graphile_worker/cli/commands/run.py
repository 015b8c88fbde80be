"""`graphile-worker` without a sub-command: runs a worker, or does what one of Node's flags asks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...observability.log_format import PipeHandler
from ..support.client import load_settings, start_early_logging, start_logging, with_database
from ..support.parameters import ARGUMENTS

if TYPE_CHECKING:
    from ...hooks import Plugin

KILL_MARGIN = 20.0  # seconds after the grace, in which a process forces its tasks, writes and exits
FLAGS = {
    "crontab": "crontab_file",
    "jobs": "concurrency",
    "max_pool_size": "max_pool_size",
    "tasks": "task_directory",
    "processes": "processes",
    "grace": "grace",
    "health_file": "health_file",
}
"""Flags that set an option, and the option."""
PARENT_PIPE = "_GRAPHILE_WORKER_PARENT_PIPE"
"""Environment variable with the descriptor of a pipe that is closed when the parent process dies."""
FEED_PIPE = "_GRAPHILE_WORKER_FEED_PIPE"
"""Environment variable with the descriptor of a pipe to which the worker reports its activity."""


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
    settings = with_database(load_settings(ctx, options))
    handler = start_logging(settings, quiet=False)
    if flags["schema_only"]:
        return _schema_only(settings)
    if flags["cleanup"]:
        from .cleanup import run_cleanup

        return run_cleanup(settings, [name for names in flags["cleanup"] for name in names])
    parent = _ParentProcess()
    processes = settings.command_line.processes
    if processes == 1:
        return work(settings, handler, parent, once=flags["once"])
    from ..support import run_worker  # noqa: F401 — imported once, before the fork
    from ..support.processes import supervise

    return supervise(
        processes,
        lambda: work(settings, handler, parent, once=flags["once"]),
        replace=not flags["once"],
        kill_after=settings.worker.grace + KILL_MARGIN,
    )


def work(settings: Settings, handler: PipeHandler, parent: _ParentProcess, *, once: bool) -> int:
    """Run a worker in this process until it is done or stopped."""
    from ..support.run_worker import run_worker

    plugins = parent.attach()
    if settings.command_line.health_file is not None and not once:
        from ..support.health_plugin import HealthFilePlugin

        plugins.append(HealthFilePlugin(settings.command_line.health_file))
    return run_worker(settings.worker, handler, once=once, plugins=plugins)


class _ParentProcess:
    """The `--watch` or `dev` that started this command, if one did."""

    def __init__(self) -> None:
        # Removed from the environment, so that a command which a task starts has no such parent.
        self._pipe = os.environ.pop(PARENT_PIPE, None)
        self._feed = os.environ.pop(FEED_PIPE, None)
        self._command = os.getpid()

    def attach(self) -> list[Plugin]:
        """Stop when the parent dies, and report activity if the parent wants it."""
        if self._pipe is not None:
            from ..support.signals import stop_when_parent_dies

            stop_when_parent_dies(int(self._pipe), pid=self._command)
        if self._feed is None:
            return []
        from ..live_view.feed import FeedPlugin

        return [FeedPlugin(int(self._feed))]


def _watch(ctx: click.Context, options: dict[str, Any]) -> int:
    from .watch import run_watched

    def load() -> Settings:
        return load_settings(ctx, options)

    start_logging(load(), quiet=False)
    return run_watched(ctx.meta[ARGUMENTS], load, config_file=ctx.params["config"])


def _schema_only(settings: Settings) -> int:
    from ..support.client import run_async
    from .migrate import describe_report, migrate_schema

    click.echo(describe_report(run_async(migrate_schema(settings))))
    return 0


def _options_from(flags: dict[str, Any]) -> dict[str, Any]:
    values = {option: flags[flag] for flag, option in FLAGS.items()}
    if flags["poll_interval"] is not None:
        values["poll_interval"] = flags["poll_interval"] / 1000
    if flags["no_prepared_statements"]:
        values["prepared_statements"] = False
    return values
