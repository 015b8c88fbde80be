"""`graphile-worker` without a sub-command: run a worker, or do one of the things that Node has as flags."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...observability.log_format import PipeHandler
from ..support.client import load_settings, start_logging
from ..support.parameters import ARGUMENTS

if TYPE_CHECKING:
    from ...hooks import Plugin

FLAGS = {
    "crontab": "crontab_file",
    "jobs": "concurrency",
    "max_pool_size": "max_pool_size",
    "tasks": "task_directory",
    "processes": "processes",
    "grace": "grace",
    "health_file": "health_file",
}
"""Flags whose value is an option's value, and the option."""


def run_command(ctx: click.Context, flags: dict[str, Any]) -> int:
    """Do what the flags ask for; returns the exit status."""
    alone = [name for name in ("schema_only", "once", "cleanup", "watch") if flags[name]]
    if len(alone) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in alone[:2])
        raise click.UsageError(f"{first} and {second} exclude each other; give one of them.", ctx)
    options = _options_from(flags)
    settings = load_settings(ctx, options)
    handler = start_logging(settings, quiet=False)
    if flags["schema_only"]:
        return _schema_only(settings)
    if flags["cleanup"]:
        from .cleanup import run_cleanup

        return run_cleanup(settings, [name for names in flags["cleanup"] for name in names])
    if flags["watch"]:
        from .watch import run_watched

        return run_watched(
            ctx.meta[ARGUMENTS], lambda: load_settings(ctx, options), config_file=flags["config"]
        )
    company = _Company()
    processes = settings.command_line.processes
    if processes == 1:
        return work(settings, handler, company, once=flags["once"])
    from ..support import run_worker  # noqa: F401 — loaded once, before the processes part
    from ..support.processes import supervise

    return supervise(
        processes, lambda: work(settings, handler, company, once=flags["once"]), replace=not flags["once"]
    )


def work(settings: Settings, handler: PipeHandler, company: _Company, *, once: bool) -> int:
    """Run a worker in this process until it is done or stopped."""
    from ..support.run_worker import run_worker

    plugins = company.join()
    if settings.command_line.health_file is not None and not once:
        from ..support.health_plugin import HeartbeatPlugin

        plugins.append(HeartbeatPlugin(settings.command_line.health_file))
    return run_worker(settings.worker, handler, once=once, plugins=plugins)


class _Company:
    """The parent that watches over this command, if `--watch` or `dev` started it."""

    def __init__(self) -> None:
        # Taken out of the environment: a task that starts this command in turn has no such parent.
        self._parent = os.environ.pop("_GRAPHILE_WORKER_PARENT_PIPE", None)
        self._feed = os.environ.pop("_GRAPHILE_WORKER_FEED_PIPE", None)
        self._command = os.getpid()

    def join(self) -> list[Plugin]:
        """End with the parent, and tell it what happens if it wants to know."""
        if self._parent is not None:
            from ..watch.lifeline import hold_on_to_parent

            hold_on_to_parent(int(self._parent), stop=self._command)
        if self._feed is None:
            return []
        from ..live_view.feed import FeedPlugin

        return [FeedPlugin(int(self._feed))]


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
