"""Flags that several commands share, and the kinds of values that flags take."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only in newer versions of click

Command = TypeVar("Command", bound=Callable[..., Any])

SHARED_FLAGS = frozenset({"connection", "schema", "config", "log_level", "log_format"})
"""Flags that may stand in front of a sub-command."""
ARGUMENTS = "graphile_worker.arguments"
"""Where a context keeps the arguments as they came."""
CLEANUP_TASKS = ("DELETE_PERMAFAILED_JOBS", "GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PERIOD = re.compile(r"\+?((?:\d+[smhdw])+)", re.IGNORECASE)


class When(_ParamType):
    """A time: ISO 8601 with a zone, `now`, or a period from now such as `5m`, `+2h` or `1d12h`."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        if isinstance(value, datetime | timedelta):
            return value
        try:
            return parse_when(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_when(text: str) -> datetime | timedelta:
    """Read a time or a period from now; ValueError says what is possible."""
    text = text.strip()
    if text.lower() == "now":
        return timedelta()
    period = _PERIOD.fullmatch(text)
    if period:
        parts = re.findall(r"(\d+)([a-z])", period[1].lower())
        try:
            return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
        except OverflowError:
            raise ValueError(f"{text!r} is too long a period") from None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2030-01-31T12:00:00Z "
            "nor a period from now such as 5m, 2h or 1d12h"
        ) from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add Z for UTC or an offset such as +02:00")
    return time


class JobId(_ParamType):
    """The number of a job."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(
                f"{value!r} is not the id of a job, which is a number; `graphile-worker list` shows them",
                param,
                ctx,
            )
        if number < 1:
            self.fail(f"ids of jobs begin with 1, got {number}", param, ctx)
        return number


class CleanupTasks(_ParamType):
    """Names of clean-up tasks, separated by commas."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(name.strip() for name in str(value).split(",") if name.strip())
        unknown = [name for name in names if name not in CLEANUP_TASKS]
        if unknown or not names:
            self.fail(f"allowed are {', '.join(CLEANUP_TASKS)}; given was {value!r}", param, ctx)
        return names


def connection_options(command: Command) -> Command:
    """`-c` and `-s`: which database, which schema."""
    schema = click.option(
        "-s", "--schema", metavar="NAME", help="Schema that holds the queue.  [default: graphile_worker]"
    )
    connection = click.option(
        "-c",
        "--connection",
        metavar="URL",
        help="PostgreSQL URL, or the name of a database; else DATABASE_URL, else PGDATABASE and the other "
        "PG* variables.",
    )
    return connection(schema(command))


CONFIG_OPTION = click.option(
    "-C",
    "--config",
    metavar="FILE",
    help="Configuration file.  [default: graphile_worker.toml or pyproject.toml]",
)


def command_options(command: Command) -> Command:
    """What every sub-command takes: the connection, and `--json`."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return connection_options(as_json(command))


def worker_options(command: Command) -> Command:
    """The flags for running a worker, as Graphile Worker for Node has them, and ours after them."""
    for option in reversed(_WORKER_OPTIONS):
        command = option(command)
    return command


_WORKER_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--schema-only", is_flag=True, help="Install or upgrade the schema, then exit."),
    click.option("--once", is_flag=True, help="Run until no job is ready, then exit."),
    click.option(
        "-w/ ",
        "--watch/--no-watch",
        default=False,
        show_default=False,
        help="Start the worker anew when code, crontab or configuration change.",
    ),
    click.option(
        "--crontab",
        metavar="FILE",
        help="File with recurring jobs; must exist.  [default: crontab, if there is one]",
    ),
    click.option("-j", "--jobs", type=int, metavar="N", help="Jobs to run at the same time.  [default: 1]"),
    click.option(
        "-m", "--max-pool-size", type=int, metavar="N", help="Database connections, 2 or more.  [default: 10]"
    ),
    click.option(
        "--poll-interval",
        type=click.IntRange(min=1),
        metavar="MS",
        help="Milliseconds between looks for jobs that nobody announced.  [default: 2000]",
    ),
    click.option(
        "--no-prepared-statements", is_flag=True, help="For poolers that cannot keep prepared statements."
    ),
    click.option(
        "--cleanup",
        type=CleanupTasks(),
        multiple=True,
        metavar="NAMES",
        help=f"Clean up, then exit: {', '.join(CLEANUP_TASKS)}, separated by commas.",
    ),
    click.option(
        "--tasks",
        metavar="DIR|MODULE:ATTR",
        help="Folder with task files, or where in a module the tasks are.  [default: tasks]",
    ),
    click.option(
        "--processes", type=click.IntRange(min=1), metavar="N", help="Worker processes.  [default: 1]"
    ),
    click.option(
        "--grace",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Time that running tasks have to end after a stop was asked for.  [default: 25]",
    ),
    click.option(
        "--health-file",
        metavar="PATH",
        help="Note there, with the process id appended, that the worker lives; see `graphile-worker health`.",
    ),
    click.option("--log-format", type=click.Choice(["text", "json"]), help="[default: text]"),
    click.option(
        "--log-level", type=click.Choice(["error", "warning", "info", "debug"]), help="[default: info]"
    ),
]
