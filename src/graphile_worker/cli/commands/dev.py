"""`graphile-worker dev`: starts a database and keeps a worker running on it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...errors import ConfigError
from ...logging.configure import configure_logging
from ...runner.process.logs import start_logging
from ...runner.process.signals import REPORTS, end_by_signal, exit_with, forwarded_signals, signal_received
from ...runner.process.watch import COMMAND, Reloader
from ..dev.database import DevDatabase, embedded_database, existing_database
from ..dev.display import Display, LiveDisplay, dev_dashboard
from ..support.client import load_settings, with_app
from ..support.parameters import APP_OPTION, CONFIG_OPTION, JOBS_OPTION, SCHEMA_OPTION, TASKS_OPTION
from .init import create_project, lacks_tasks

GRACE = 5.0
"""Seconds for running jobs when the code changes; less than in production, because a developer waits."""
FORWARDED_FLAGS = {
    "schema": "--schema",
    "task_directory": "--tasks",
    "app": "--app",
    "crontab_file": "--crontab",
    "concurrency": "--jobs",
    "log_format": "--log-format",
    "log_level": "--log-level",
    "log_levels": "--log-level",
}
"""Options that the worker gets as flags if `dev` got them as flags."""


@click.command("dev")
@click.option(
    "-c",
    "--connection",
    "connection_string",
    metavar="URL",
    help="Use this database.  [default: the embedded one; DATABASE_URL is ignored]",
)
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
@APP_OPTION
@click.option(
    "--crontab", "crontab_file", metavar="FILE", help="File with recurring jobs.  [default: crontab]"
)
@JOBS_OPTION
@click.option(
    "--no-worker", is_flag=True, help="Run the database and the view only, for a worker started elsewhere."
)
@click.option("--no-admin", is_flag=True, help="Do not serve the dashboard.")
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
    no_worker: bool,
    no_admin: bool,
    plain: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Run a database and a worker that reloads your code, with a live view.

    The database is an embedded PostgreSQL in .graphile-worker/ that keeps its data between runs. Other
    graphile-worker commands in this directory use it too. The worker restarts when tasks, crontab or
    configuration change. Options in the configuration file and the environment apply, except for the
    connection and the number of processes. The dashboard is served too if its packages are installed.

    \b
    graphile-worker dev
    graphile-worker dev --fresh -j 10
    graphile-worker dev --port 5433      # for applications that cannot use a socket
    graphile-worker dev --no-worker      # for a worker that you start yourself
    graphile-worker dev --no-admin       # without the dashboard
    """
    flags = {name: given[name] for name in ("task_directory", "crontab_file", "concurrency")}
    flags["log_format"] = "json" if as_json else None

    def load() -> Settings:
        return load_settings(ctx, flags)

    settings = load()
    is_given = settings.places.get("connection_string") == "command line"
    if is_given and (fresh or port is not None):
        raise click.UsageError(
            "--fresh and --port are for the embedded database and cannot be combined with -c.", ctx
        )
    live = sys.stdout.isatty() and not plain and not as_json and os.environ.get("TERM") != "dumb"
    if no_worker:
        _refuse_worker_flags(ctx)
    display = _make_display(settings, live=live)
    config_file, reloader = _config_file(ctx), None
    if not no_worker:  # the package that it needs may be missing
        reloader = Reloader(load, display, config_file=config_file, grace=_grace(settings))
        _offer_tasks(settings)
    signal.signal(signal.SIGTERM, exit_with)  # until there is a worker, so that the server is stopped
    with (
        nullcontext(existing_database(settings.worker.connection_string or ""))
        if is_given
        else embedded_database(Path.cwd(), port=port, fresh=fresh)
    ) as database:
        command = [*COMMAND, *_arguments(settings, config_file)]
        number = asyncio.run(
            _develop(database, display, settings, reloader, command, with_dashboard=not no_admin)
        )
    return end_by_signal(number) if number is not None else 0


async def _develop(
    database: DevDatabase,
    display: Display,
    settings: Settings,
    reloader: Reloader | None,
    command: list[str],
    *,
    with_dashboard: bool,
) -> int | None:
    """Install the schema and keep a worker running; returns the signal that stopped it."""
    from ...client import make_worker_utils

    options = _with_app_options(settings).worker.with_values(
        connection_string=database.url, max_pool_size=1, plugins=[]
    )
    async with make_worker_utils(options=options) as utils:
        await utils.migrate()
        display.show_database(database)
        dashboard = dev_dashboard(database.url, options.schema, display) if with_dashboard else nullcontext()
        async with display.open(utils), dashboard:
            if reloader is not None:
                return await reloader.run(command, _environment(database, display.reports))
            display.without_worker()
            return await signal_received(forwarded_signals())


def _with_app_options(settings: Settings) -> Settings:
    """The settings with the schema of the app; if that cannot be imported yet, the worker reports it."""
    try:
        return with_app(settings)[0]
    except ConfigError:
        return settings


def _arguments(settings: Settings, config_file: str | None) -> list[str]:
    """The worker's command line: our flags; it reads file and environment itself."""
    arguments = ["--no-watch", "--processes", "1", "--grace", str(_grace(settings))]
    if config_file is not None:
        arguments += ["--config", config_file]
    for option, flag in FORWARDED_FLAGS.items():
        if "command line" in settings.places.get(option, ""):
            owner = settings.worker if hasattr(settings.worker, option) else settings.process
            value = getattr(owner, option)
            given = [f"{name}={each}" for name, each in value.items()] if isinstance(value, dict) else [value]
            arguments += [part for each in given for part in (flag, str(each))]
    return arguments


def _environment(database: DevDatabase, reports: str | None) -> dict[str, str]:
    """`reports`: where the worker reports what it does."""
    environment = {"DATABASE_URL": database.url} | dict(os.environ)
    # Overrides DATABASE_URL and the file and, unlike a flag, does not appear in the process list.
    environment["GRAPHILE_WORKER_CONNECTION_STRING"] = database.url
    if reports is not None:  # the view counts completed jobs
        environment |= {REPORTS: reports, "PYTHONUNBUFFERED": "1", "NO_LOG_SUCCESS": "1"}
    return environment


def _grace(settings: Settings) -> float:
    return settings.worker.grace if "grace" in settings.places else GRACE


def _refuse_worker_flags(ctx: click.Context) -> None:
    """Refuse flags of the worker with --no-worker, where they would have no effect."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name in ("task_directory", "app", "crontab_file", "concurrency"):
            flag = max(parameter.opts, key=len)
            raise click.UsageError(f"{flag} is for the worker and cannot be combined with --no-worker.", ctx)


def _make_display(settings: Settings, *, live: bool) -> Display:
    if not live:
        start_logging(settings)
        return Display(prints_command=settings.process.log_format == "text")
    display = LiveDisplay()
    stream: Any = display.log_stream()
    configure_logging("text", "warning", stdout=stream, stderr=stream)
    return display


def _offer_tasks(settings: Settings) -> None:
    """If there are no tasks, offer to create an example."""
    if settings.process.app or not lacks_tasks(Path.cwd(), settings):
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
