"""`graphile-worker crontab`: look at a crontab without running it. No database is needed."""

from __future__ import annotations

import sys
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...cron.crontab import parse_crontab, read_crontab
from ...cron.item import ParsedCronItem
from ...cron.preview import UpcomingRun, upcoming_runs
from ...errors import CrontabError, CrontabProblem, TaskLoadError
from ..support.client import load_settings, start_logging
from ..support.output import count as counted
from ..support.output import print_json, print_table
from ..support.parameters import CONFIG_OPTION, When

FILE_ARGUMENT = click.argument("file", required=False, metavar="[FILE]")
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


class StartTime(When):
    """A time as other commands take it; without a zone it is UTC, as crontabs are."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return super().convert(value, param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.group("crontab")
def crontab_group() -> None:
    """Check a crontab, or see when its jobs run next."""


@crontab_group.command("check", short_help="Show every fault in a crontab.")
@FILE_ARGUMENT
@CONFIG_OPTION
@click.option("--tasks", metavar="DIR|MODULE:ATTR", help="Where the tasks are.  [default: tasks]")
@JSON_OPTION
@click.pass_context
def check_command(ctx: click.Context, /, file: str | None, tasks: str | None, as_json: bool, **_: Any) -> int:
    """Read FILE (default: crontab, - is standard input) and show every fault in it.

    Tasks that do not exist are faults too, if the tasks can be loaded.

    \b
    graphile-worker crontab check
    graphile-worker crontab check deploy/crontab
    """
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    name, text = _read(file, settings)
    known, note = _known_tasks(tasks, settings)
    items, problems = read_crontab(text, source=name, known_tasks=known)
    if as_json:
        print_json(_as_json(name, items, problems, known))
    else:
        _print_findings(name, items, problems, note)
    return 1 if problems else 0


@crontab_group.command("next", short_help="Show when the jobs of a crontab run next.")
@FILE_ARGUMENT
@CONFIG_OPTION
@click.option(
    "-n", "--count", type=click.IntRange(1, 100_000), default=10, show_default=True, help="How many runs."
)
@click.option(
    "--from",
    "start",
    type=StartTime(),
    default="now",
    help="Begin at this time (UTC if it names no zone), or so long from now.",
)
@JSON_OPTION
@click.pass_context
def next_command(
    ctx: click.Context,
    /,
    file: str | None,
    count: int,
    start: datetime | timedelta,
    as_json: bool,
    **_: Any,
) -> None:
    """Show when the jobs of FILE (default: crontab, - is standard input) run next, in UTC and local time.

    \b
    graphile-worker crontab next -n 20
    """
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    name, text = _read(file, settings)
    moment = start if isinstance(start, datetime) else datetime.now(UTC) + start
    runs = upcoming_runs(parse_crontab(text, source=name), moment, count)
    if as_json:
        print_json([_run_as_json(run) for run in runs])
    else:
        _print_runs(runs)


def _read(file: str | None, settings: Settings) -> tuple[str, str]:
    """The name of the crontab for messages, and its text."""
    name = settings.worker.crontab_file if file is None else file
    try:
        if name == "-":
            return "standard input", sys.stdin.read()
        return name, Path(name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise CrontabError(f"{name}: it is not UTF-8 text") from None
    except OSError as error:
        raise CrontabError(f"{name}: it cannot be read: {error.strerror}") from None


def _known_tasks(tasks: str | None, settings: Settings) -> tuple[Collection[str] | None, str]:
    """The names of all tasks; None, and why, if the default folder cannot be loaded."""
    from ...tasks.load import load_tasks

    try:
        return frozenset(load_tasks(tasks or settings.worker.task_directory)), ""
    except TaskLoadError as error:
        if tasks is not None:
            raise
        return None, f"Task names were not checked: {error}"


def _print_findings(
    name: str, items: list[ParsedCronItem], problems: list[CrontabProblem], note: str
) -> None:
    for problem in problems:
        click.echo(str(problem))
    if problems:
        click.echo(f"{name}: {counted(len(problems), 'problem')}.")
    else:
        click.echo(f"{name}: {counted(len(items), 'item')}, no problems.")
    if note:
        click.echo(note, err=True)


def _as_json(
    name: str,
    items: list[ParsedCronItem],
    problems: list[CrontabProblem],
    known: Collection[str] | None,
) -> dict[str, Any]:
    return {
        "file": name,
        "items": len(items),
        "tasks_checked": known is not None,
        "problems": [
            {"line": problem.line, "column": problem.column, "message": problem.message, "text": problem.text}
            for problem in problems
        ],
    }


def _print_runs(runs: list[UpcomingRun]) -> None:
    has_zones = any(run.item.options.tz for run in runs)
    columns = ["utc", "local", *(["in its zone"] if has_zones else []), "task", "identifier"]
    rows = []
    for run in runs:
        zone = run.item.options.tz
        times = [f"{run.at:%a %Y-%m-%d %H:%M}", _clock(run.at.astimezone())]
        if has_zones:
            times.append(_clock(run.at.astimezone(zone)) if zone else "")
        rows.append([*times, run.item.task_identifier, run.item.identifier])
    print_table(columns, rows, empty="Nothing runs: no line of the crontab matches any minute to come.")


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M %Z}"


def _run_as_json(run: UpcomingRun) -> dict[str, Any]:
    zone = run.item.options.tz
    return {
        "at": run.at,
        "local": run.at.astimezone().isoformat(),
        "tz": None if zone is None else str(zone),
        "task": run.item.task_identifier,
        "identifier": run.item.identifier,
        "pattern": run.item.pattern,
    }
