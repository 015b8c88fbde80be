"""The command `dev`: reads the flags, gets a database, and keeps a worker running on it."""

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
from ..dev.database import DevDatabase, embedded_database, given_database
from ..dev.stage import LiveStage, LogStage, Stage
from ..support.client import load_settings, start_logging
from ..support.parameters import CONFIG_OPTION, connection_options
from ..watch.changes import Changes
from ..watch.child import WorkerProcess
from ..watch.reloader import Reloader, end_by
from .init import lacks_tasks, prepare_project
from .watch import files_of

GRACE = 5.0
"""Seconds for running tasks when the code has changed; less than in production, because somebody waits."""
PASSED_ON = {
    "schema": "--schema",
    "task_directory": "--tasks",
    "crontab_file": "--crontab",
    "concurrency": "--jobs",
    "log_format": "--log-format",
    "log_level": "--log-level",
}
"""Options that the worker gets as flags if `dev` got them as flags."""


@click.command("dev")
@connection_options
@CONFIG_OPTION
@click.option("--fresh", is_flag=True, help="Throw the database of earlier runs away.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Let the database listen on 127.0.0.1 too; 0 for any free port.  [default: a private socket only]",
)
@click.option("--tasks", metavar="DIR|MODULE:ATTR", help="Where the tasks are.  [default: tasks]")
@click.option("--crontab", metavar="FILE", help="File with recurring jobs.  [default: crontab]")
@click.option("-j", "--jobs", type=int, metavar="N", help="Jobs to run at the same time.  [default: 1]")
@click.option("--plain", is_flag=True, help="Lines instead of the live view.")
@click.option("--json", "as_json", is_flag=True, help="Lines as JSON; the first names the connection string.")
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
    """Start a database and a worker that follows your code, and show what happens.

    The database is an embedded PostgreSQL in .graphile-worker/, which keeps its data between runs; with
    -c URL it is another one. The worker is started anew when tasks, crontab or configuration change.

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
        raise click.UsageError("--fresh and --port are for the embedded database; leave out -c.", ctx)
    live = sys.stdout.isatty() and not plain and not as_json and os.environ.get("TERM") != "dumb"
    changes = Changes(files_of(settings, _config_file(ctx)))  # first, because it may have to be installed
    _offer_tasks(settings)
    stage = _make_stage(settings, live=live)
    signal.signal(signal.SIGTERM, _exit)  # until there is a worker: leave by the door, stop the server
    with (
        nullcontext(given_database(settings.worker.connection_string or ""))
        if is_given
        else embedded_database(Path.cwd(), port=port, fresh=fresh)
    ) as database:
        number = asyncio.run(_develop(database, stage, load, changes, _config_file(ctx)))
    return end_by(number) if number is not None else 0


async def _develop(
    database: DevDatabase,
    stage: Stage,
    load: Callable[[], Settings],
    changes: Changes,
    config_file: str | None,
) -> int | None:
    """Install the schema, keep a worker running; returns the signal that ended it."""
    from ...client import make_worker_utils

    settings = load()

    async def start() -> WorkerProcess:
        return await WorkerProcess.start(
            _arguments(settings, config_file),
            _environment(database, live=stage.on_feed is not None),
            on_line=stage.on_line,
            on_feed=stage.on_feed,
        )

    def refresh() -> None:
        try:
            changes.files = files_of(load(), config_file)
        except ConfigError:  # the worker will say so itself
            return

    options = settings.worker.with_values(connection_string=database.url, max_pool_size=1)
    async with make_worker_utils(options=options) as utils:
        await utils.migrate()
        stage.introduce(database)
        reloader = Reloader(start, changes, stage, grace=_grace(settings), refresh=refresh)
        async with stage.showing(utils):
            await reloader.run()
    return reloader.signal


def _arguments(settings: Settings, config_file: str | None) -> list[str]:
    """The worker's command line: what was said on ours, and the rest as it finds it."""
    arguments = ["--no-watch", "--processes", "1", "--grace", str(_grace(settings))]
    if config_file is not None:
        arguments += ["--config", config_file]
    for option, flag in PASSED_ON.items():
        if settings.places.get(option) == "command line":
            owner = settings.worker if hasattr(settings.worker, option) else settings.command_line
            arguments += [flag, str(getattr(owner, option))]
    return arguments


def _environment(database: DevDatabase, *, live: bool) -> dict[str, str]:
    environment = {"DATABASE_URL": database.url} | dict(os.environ)
    # Wins over DATABASE_URL and the file, and is not seen in a list of processes as a flag would be.
    environment["GRAPHILE_WORKER_CONNECTION_STRING"] = database.url
    if live:
        environment |= {"PYTHONUNBUFFERED": "1", "NO_LOG_SUCCESS": "1"}  # the view counts them
    return environment


def _grace(settings: Settings) -> float:
    return settings.worker.grace if "grace" in settings.places else GRACE


def _make_stage(settings: Settings, *, live: bool) -> Stage:
    if not live:
        start_logging(settings, quiet=False)
        return LogStage()
    stage = LiveStage()
    lines: Any = stage.lines()
    configure_logging("text", "warning", stdout=lines, stderr=lines)
    return stage


def _offer_tasks(settings: Settings) -> None:
    """Without tasks there is nothing to run: make an example if somebody is there to say yes."""
    if not lacks_tasks(Path.cwd(), settings):
        return
    place = settings.worker.task_directory
    asked = sys.stdin.isatty() and sys.stdout.isatty()
    if not asked or not click.confirm(
        f"There is no folder {place} yet. Make one with an example?", default=True
    ):
        raise ConfigError(
            f"there is no folder {place}, and so no task to run; make it with `graphile-worker init`, "
            "or say with --tasks where your tasks are"
        )
    for name in prepare_project(Path.cwd(), settings).created:
        click.echo(f"made   {name}")


def _config_file(ctx: click.Context) -> str | None:
    parent = ctx.parent.params.get("config") if ctx.parent is not None else None
    return ctx.params.get("config") or parent


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
