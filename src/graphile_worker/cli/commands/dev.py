"""`graphile-worker dev`: starts a database and keeps a worker running on it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import click

from ...config import Settings
from ...errors import ConfigError
from ...observability.log_format import configure_logging
from ..dev.database import DevDatabase, embedded_database, existing_database
from ..dev.display import Display, LiveDisplay, LogDisplay
from ..support.client import load_settings, start_logging
from ..support.parameters import CONFIG_OPTION, JOBS_OPTION, SCHEMA_OPTION, TASKS_OPTION
from ..support.signals import end_by_signal
from ..watch.changes import Changes
from ..watch.child import WorkerProcess
from ..watch.reloader import Reloader
from .init import create_project, lacks_tasks
from .watch import watched_files

GRACE = 5.0
"""Seconds for running jobs when the code changes; less than in production, because a developer waits."""
FORWARDED_FLAGS = {
    "schema": "--schema",
    "task_directory": "--tasks",
    "crontab_file": "--crontab",
    "concurrency": "--jobs",
    "log_format": "--log-format",
    "log_level": "--log-level",
    "log_levels": "--log-level",
}
"""Options that the worker gets as flags if `dev` got them as flags."""


@click.command("dev")
@click.option("-c", "--connection", metavar="URL", help="Use this database instead of the embedded one.")
@SCHEMA_OPTION
@CONFIG_OPTION
@click.option("--fresh", is_flag=True, help="Delete the data of earlier runs first.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Also listen on this port of 127.0.0.1; 0 picks a free one.  [default: a private socket only]",
)
@TASKS_OPTION
@click.option("--crontab", metavar="FILE", help="File with recurring jobs.  [default: crontab]")
@JOBS_OPTION
@click.option("--plain", is_flag=True, help="Print log lines instead of the live view.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print log lines as JSON; the first has the connection string."
)
@click.pass_context
def dev_command(
    ctx: click.Context,
    /,
    fresh: bool,
    port: int | None,
    tasks: str | None,
    crontab: str | None,
    jobs: int | None,
    plain: bool,
    as_json: bool,
    **_: Any,
) -> int:
    """Run a database and a worker that reloads your code, with a live view.

    The database is an embedded PostgreSQL in .graphile-worker/ that keeps its data between runs. Other
    graphile-worker commands in this directory use it too. The worker restarts when tasks, crontab or
    configuration change.

    \b
    graphile-worker dev
    graphile-worker dev --fresh -j 10
    graphile-worker dev --port 5433      # for applications that cannot use a socket
    """
    flags = {
        "task_directory": tasks,
        "crontab_file": crontab,
        "concurrency": jobs,
        "log_format": "json" if as_json else None,
    }

    def load() -> Settings:
        return load_settings(ctx, flags)

    settings = load()
    is_given = settings.places.get("connection_string") == "command line"
    if is_given and (fresh or port is not None):
        raise click.UsageError(
            "--fresh and --port are for the embedded database and cannot be combined with -c.", ctx
        )
    live = sys.stdout.isatty() and not plain and not as_json and os.environ.get("TERM") != "dumb"
    changes = Changes(watched_files(settings, _config_file(ctx)))  # first: its package may be missing
    _offer_tasks(settings)
    display = _make_display(settings, live=live)
    signal.signal(signal.SIGTERM, _exit)  # until there is a worker, so that the server is stopped
    with (
        nullcontext(existing_database(settings.worker.connection_string or ""))
        if is_given
        else embedded_database(Path.cwd(), port=port, fresh=fresh)
    ) as database:
        number = asyncio.run(_develop(database, display, load, changes, _config_file(ctx)))
    return end_by_signal(number) if number is not None else 0


async def _develop(
    database: DevDatabase,
    display: Display,
    load: Callable[[], Settings],
    changes: Changes,
    config_file: str | None,
) -> int | None:
    """Install the schema and keep a worker running; returns the signal that stopped it."""
    from ...client import make_worker_utils

    settings = load()

    async def start() -> WorkerProcess:
        return await WorkerProcess.start(
            _arguments(settings, config_file),
            _environment(database, live=display.on_feed is not None),
            on_line=display.on_line,
            on_feed=display.on_feed,
        )

    def refresh() -> None:
        try:
            changes.files = watched_files(load(), config_file)
        except ConfigError:  # the worker reports it
            return

    options = settings.worker.with_values(connection_string=database.url, max_pool_size=1)
    async with make_worker_utils(options=options) as utils:
        await utils.migrate()
        display.show_database(database)
        reloader = Reloader(start, changes, display, grace=_grace(settings), refresh=refresh)
        async with display.open(utils):
            await reloader.run()
    return reloader.signal


def _arguments(settings: Settings, config_file: str | None) -> list[str]:
    """The worker's command line: our flags; it reads file and environment itself."""
    arguments = ["--no-watch", "--processes", "1", "--grace", str(_grace(settings))]
    if config_file is not None:
        arguments += ["--config", config_file]
    for option, flag in FORWARDED_FLAGS.items():
        if "command line" in settings.places.get(option, ""):
            owner = settings.worker if hasattr(settings.worker, option) else settings.command_line
            value = getattr(owner, option)
            given = [f"{name}={each}" for name, each in value.items()] if isinstance(value, dict) else [value]
            arguments += [part for each in given for part in (flag, str(each))]
    return arguments


def _environment(database: DevDatabase, *, live: bool) -> dict[str, str]:
    environment = {"DATABASE_URL": database.url} | dict(os.environ)
    # Overrides DATABASE_URL and the file and, unlike a flag, does not appear in the process list.
    environment["GRAPHILE_WORKER_CONNECTION_STRING"] = database.url
    if live:
        environment |= {"PYTHONUNBUFFERED": "1", "NO_LOG_SUCCESS": "1"}  # the view counts completed jobs
    return environment


def _grace(settings: Settings) -> float:
    return settings.worker.grace if "grace" in settings.places else GRACE


def _make_display(settings: Settings, *, live: bool) -> Display:
    if not live:
        start_logging(settings, quiet=False)
        return LogDisplay()
    display = LiveDisplay()
    stream: Any = display.log_stream()
    configure_logging("text", "warning", stdout=stream, stderr=stream)
    return display


def _offer_tasks(settings: Settings) -> None:
    """If there are no tasks, offer to create an example."""
    if not lacks_tasks(Path.cwd(), settings):
        return
    place = settings.worker.task_directory
    can_ask = sys.stdin.isatty() and sys.stdout.isatty()
    if not can_ask or not click.confirm(
        f"There is no directory {place} yet. Create it with an example task?", default=True
    ):
        raise ConfigError(
            f"there is no directory {place}, so there are no tasks to run; create it with "
            "`graphile-worker init`, or name your tasks with --tasks"
        )
    for name in create_project(Path.cwd(), settings).created:
        click.echo(f"created  {name}")


def _config_file(ctx: click.Context) -> str | None:
    parent = ctx.parent.params.get("config") if ctx.parent is not None else None
    return ctx.params.get("config") or parent


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
