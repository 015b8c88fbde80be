"""Flags of the worker, flags that several commands share, and the types of their values.

A flag that sets an option has the option's name as its parameter, and its value is the option's. So nothing
else has to know it: not the command, not Django's command, and not the tables of the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...values.text import closest, parse_period, parse_when

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only in newer versions of click

Command = TypeVar("Command", bound=Callable[..., Any])

SHARED_FLAGS = frozenset({"connection_string", "schema", "config", "app", "log_level", "log_format"})
"""Flags that may precede a sub-command."""
ARGUMENTS = "graphile_worker.arguments"
"""Key of the original arguments in a context's `meta`."""
LOG_LEVELS = ("error", "warning", "info", "debug")
CLEANUP_TASKS = ("DELETE_PERMAFAILED_JOBS", "GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES")


class Parsed(_ParamType):
    """A value that a function reads from text; its ValueError says what is wrong."""

    def __init__(self, name: str, read: Callable[[str], Any], *, words: Sequence[str] = ()) -> None:
        """`words` are offered by the completion of the shell."""
        self.name = name
        self._read = read
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # click converts the default, too
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def _since(text: str) -> datetime | timedelta:
    try:
        return parse_when(text.strip().removeprefix("-"))
    except ValueError as error:
        raise ValueError(str(error).replace("from now", "before now")) from None


def _ago(text: str) -> datetime:
    when = _since(text)
    return datetime.now(UTC) - when if isinstance(when, timedelta) else when


def _job_id(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a job id; ids are numbers, and `graphile-worker list` shows them"
        ) from None
    if number < 1:
        raise ValueError(f"job ids start at 1, got {number}")
    return number


def _cleanup_tasks(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not set(names) <= set(CLEANUP_TASKS):
        raise ValueError(f"expected names from {', '.join(CLEANUP_TASKS)}; got {text!r}")
    return names


def _log_level(text: str) -> tuple[str, str]:
    logger, sign, level = text.rpartition("=")
    if sign and not logger.strip():
        raise ValueError(f"{text!r} names no logger; write for example httpx=warning")
    level = level.strip().lower()
    if level not in LOG_LEVELS:
        near = closest(level, LOG_LEVELS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"{level!r} is not a level{hint} (levels: {', '.join(LOG_LEVELS)})")
    return logger.strip(), level


def _lane_slots(text: str) -> tuple[str, int]:
    name, sign, slots = text.rpartition("=")
    if not sign or not name.strip() or not slots.strip().isdecimal() or not int(slots):
        raise ValueError(f"{text!r} is not a lane with its slots, such as video=2")
    return name.strip(), int(slots)


def _executor_setting(text: str) -> tuple[str, str]:
    name, sign, setting = text.partition("=")
    if not sign or "." not in name.strip(". ") or not setting.strip():
        raise ValueError(f"{text!r} is not a setting of an executor, such as process.processes=4")
    return name.strip(), setting.strip()


WHEN = Parsed("when", parse_when)
"""A time: ISO 8601 with a zone, `now`, or a period from now such as `5m`, `+2h` or `1d12h`."""
SINCE = Parsed("since", _since)
"""The beginning of a period: ISO 8601 with a zone, or a period before now such as `15m` or `7d`."""
AGO = Parsed("ago", _ago)
"""The same as a point in time."""
PERIOD = Parsed("period", parse_period)
"""A length of time such as `30s`, `5m` or `1h30m`; a number without a unit is in seconds."""
JOB_ID = Parsed("id", _job_id)
CLEANUP_NAMES = Parsed("names", _cleanup_tasks)
"""Names separated by commas."""


def split_levels(given: Sequence[tuple[str, str]] | None) -> dict[str, Any]:
    """The options that `--log-level` sets: the last level without a logger, and those of loggers."""
    pairs = given or ()
    general = [level for logger, level in pairs if not logger]
    return {
        "log_level": general[-1] if general else None,
        "log_levels": {logger: level for logger, level in pairs if logger} or None,
    }


def as_table(
    _: click.Context, __: click.Parameter, given: Sequence[tuple[str, Any]]
) -> dict[str, Any] | None:
    return dict(given) or None


def as_list(_: click.Context, __: click.Parameter, given: Sequence[str]) -> list[str] | None:
    return list(given) or None


def _as_flags(_: click.Context, __: click.Parameter, given: Sequence[str]) -> list[str] | None:
    """An empty text is in no list, but makes one."""
    return [flag for flag in given if flag] if given else None


def _as_seconds(_: click.Context, __: click.Parameter, given: int | None) -> float | None:
    return None if given is None else given / 1000


def _turned_off(_: click.Context, __: click.Parameter, given: bool) -> bool | None:
    return False if given else None


CONNECTION_OPTION = click.option(
    "-c",
    "--connection",
    "connection_string",
    metavar="URL",
    help="PostgreSQL URL or database name.  [default: DATABASE_URL, the PG* variables, or the database of a "
    "running `dev`]",
)
SCHEMA_OPTION = click.option(
    "-s", "--schema", metavar="NAME", help="Schema of the job queue.  [default: graphile_worker]"
)
CONFIG_OPTION = click.option(
    "-C",
    "--config",
    metavar="FILE",
    help="Configuration file.  [default: graphile_worker.toml or pyproject.toml]",
)
EXACT_OPTION = click.option("--exact", is_flag=True, help="Count every job, however long it takes.")
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
TASKS_OPTION = click.option(
    "--tasks",
    "task_directory",
    metavar="DIR|MODULE:ATTR",
    help="Tasks: a directory, or an attribute of a module.  [default: tasks]",
)
APP_OPTION = click.option(
    "--app",
    metavar="MODULE:ATTR",
    help="Application: an App, or a lifespan that yields extensions for tasks.",
)
JOBS_OPTION = click.option(
    "-j", "--jobs", "concurrency", type=int, metavar="N", help="Jobs to run at the same time.  [default: 1]"
)


def several(
    flag: str, name: str, metavar: str, help: str, *, type: Any = None, callback: Any = None
) -> Callable[[Command], Command]:
    """A flag that may be repeated."""
    return click.option(flag, name, type=type, multiple=True, callback=callback, metavar=metavar, help=help)


def flags(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """All of these flags, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def limit_option(nouns: str, default: int) -> Callable[[Command], Command]:
    """`--limit` of a command that lists things."""
    return click.option(
        "--limit",
        type=click.IntRange(1, 100_000),
        default=default,
        show_default=True,
        metavar="N",
        help=f"Maximum number of {nouns} to show.",
    )


worker_options = flags(
    click.option("--schema-only", is_flag=True, help="Install or upgrade the schema, then exit."),
    click.option("--once", is_flag=True, help="Run until no job is ready, then exit."),
    click.option(
        "-w/ ",
        "--watch/--no-watch",
        default=False,
        show_default=False,
        help="Restart the worker when code, crontab or configuration change.",
    ),
    click.option(
        "--crontab",
        "crontab_file",
        metavar="FILE",
        help="File with recurring jobs; must exist.  [default: crontab, if it exists]",
    ),
    JOBS_OPTION,
    several(
        "--lane",
        "lanes",
        "NAME=N",
        "Slots for a lane, in addition to those of --jobs. Repeatable.",
        type=Parsed("lane", _lane_slots),
        callback=as_table,
    ),
    several(
        "--executor",
        "executors",
        "NAME.SETTING=VALUE",
        "A setting of an executor, such as process.processes=4. Repeatable.",
        type=Parsed("executor", _executor_setting),
        callback=as_table,
    ),
    several(
        "--forbid-flag", "forbidden_flags", "FLAG", "Skip jobs with this flag. Repeatable.", callback=as_list
    ),
    several(
        "--accept-flag",
        "accepted_flags",
        "FLAG",
        "Take only jobs with this flag. Repeatable; a job needs one of them.",
        callback=as_list,
    ),
    several(
        "--allow-flag",
        "flag_allowlist",
        "FLAG",
        "Take only jobs that have no other flags. Repeatable; '' allows none.",
        callback=_as_flags,
    ),
    click.option(
        "-m",
        "--max-pool-size",
        type=int,
        metavar="N",
        help="Maximum database connections, at least 2.  [default: 10]",
    ),
    click.option(
        "--poll-interval",
        type=click.IntRange(min=1),
        callback=_as_seconds,
        metavar="MS",
        help="Polling interval in milliseconds.  [default: 2000]",
    ),
    click.option(
        "--no-prepared-statements",
        "prepared_statements",
        is_flag=True,
        callback=_turned_off,
        help="For connection poolers that do not support prepared statements.",
    ),
    click.option(
        "--cleanup",
        type=CLEANUP_NAMES,
        multiple=True,
        metavar="NAMES",
        help=f"Clean up, then exit: {', '.join(CLEANUP_TASKS)}, separated by commas.",
    ),
    TASKS_OPTION,
    APP_OPTION,
    click.option(
        "--processes", type=click.IntRange(min=1), metavar="N", help="Worker processes.  [default: 1]"
    ),
    click.option(
        "--grace",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Time for running jobs to finish during a graceful shutdown.  [default: 25]",
    ),
    click.option(
        "--wait-for-database",
        type=PERIOD,
        metavar="PERIOD",
        help="How long to wait for a database server that is not up yet, such as 60s.  [default: 5s]",
    ),
    click.option(
        "--http-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve /livez, /readyz and /metrics over HTTP on this port.  [default: off]",
    ),
    click.option(
        "--http-address", metavar="ADDRESS", help="Address for --http-port.  [default: every address]"
    ),
    click.option(
        "--database-metrics",
        is_flag=True,
        default=None,
        help="Serve gauges about the database at /metrics, too; only one of several workers does.",
    ),
    several(
        "--plugin",
        "plugins",
        "NAME",
        "Plugin: a name such as sentry or otel, or MODULE:ATTR. Repeatable.",
        callback=as_list,
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), help="Format of log lines.  [default: text]"
    ),
    click.option(
        "--log-level",
        type=Parsed("level", _log_level, words=LOG_LEVELS),
        multiple=True,
        metavar="[LOGGER=]LEVEL",
        help="Lowest level to log: error, warning, info or debug. Repeat it for single loggers: "
        "--log-level httpx=warning.  [default: info]",
    ),
)
"""The flags for running a worker: those of Graphile Worker for Node, then ours."""
