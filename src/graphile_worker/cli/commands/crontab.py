"""`graphile-worker crontab`: check and preview a crontab. Needs no database."""

from __future__ import annotations

import sys
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...cron.crontab import parse_crontab, read_crontab
from ...cron.item import ParsedCronItem
from ...cron.preview import UpcomingRun, upcoming_runs
from ...errors import CrontabError, CrontabProblem, TaskLoadError
from ...text import count as counted
from ..support.client import with_app
from ..support.command import Output, command
from ..support.output import print_table
from ..support.parameters import APP_OPTION, TASKS_OPTION, When

if TYPE_CHECKING:
    from ...app import App

FILE_ARGUMENT = click.argument("file", required=False, metavar="[FILE]")


class StartTime(When):
    """A time as other commands take it; without a zone it is UTC, as in a crontab."""

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
    """Check a crontab, or show when its recurring jobs run next."""


@command("check", short_help="Check a crontab for errors.")
@FILE_ARGUMENT
@TASKS_OPTION
@APP_OPTION
def check_command(settings: Settings, file: str | None, tasks: str | None) -> Output:
    """Check FILE for errors and show all of them (default: crontab; - is standard input).

    An unknown task is an error too, if the tasks can be loaded. With an app, its recurring jobs are checked
    too.

    \b
    graphile-worker crontab check
    graphile-worker crontab check deploy/crontab
    """
    settings, app = with_app(settings)
    name, text = _read(file, settings, app)
    known, note = _known_tasks(tasks, settings, app)
    items, problems = read_crontab(text, source=name, known_tasks=known)
    if app is not None:
        problems += _problems_of_app(app, items, known)
        items = [*app.cron_items, *items]
    return Output(
        lambda: _as_json(name, items, problems, known),
        lambda: _print_problems(name, items, problems, note),
        status=1 if problems else 0,
    )


@command("next", short_help="Show when the recurring jobs of a crontab run next.")
@FILE_ARGUMENT
@APP_OPTION
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 100_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of runs to show.",
)
@click.option(
    "--from",
    "start",
    type=StartTime(),
    default="now",
    help="Start at this time (UTC unless it has a zone), or after a period such as 2h.",
)
def next_command(settings: Settings, file: str | None, count: int, start: datetime | timedelta) -> Output:
    """Show when the jobs of FILE run next, in UTC and local time (default: crontab; - is standard input).

    Without FILE, the recurring jobs of the app are shown too, if there is one.

    \b
    graphile-worker crontab next -n 20
    """
    settings, app = with_app(settings) if file is None else (settings, None)
    name, text = _read(file, settings, app)
    moment = start if isinstance(start, datetime) else datetime.now(UTC) + start
    items = [*(() if app is None else app.cron_items), *parse_crontab(text, source=name)]
    runs = upcoming_runs(items, moment, count)
    return Output(lambda: [_run_as_json(run) for run in runs], lambda: _print_runs(runs))


crontab_group.add_command(check_command)
crontab_group.add_command(next_command)


def _read(file: str | None, settings: Settings, app: App | None) -> tuple[str, str]:
    """The name of the crontab for messages, and its text; an app does not need a crontab."""
    name = settings.worker.crontab_file if file is None else file
    if file is None and app is not None and "crontab_file" not in settings.places and not Path(name).exists():
        return f"app {app.name}", ""
    try:
        if name == "-":
            return "standard input", sys.stdin.read()
        return name, Path(name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise CrontabError(f"{name}: not UTF-8 text") from None
    except OSError as error:
        raise CrontabError(f"{name}: cannot be read: {error.strerror}") from None


def _known_tasks(
    tasks: str | None, settings: Settings, app: App | None
) -> tuple[Collection[str] | None, str]:
    """The names of all tasks; None, and why, if the default directory cannot be loaded."""
    options = settings.worker if tasks is None else settings.worker.with_values(task_directory=tasks)
    try:
        if app is not None:
            from ...app.tasks import tasks_of

            return frozenset(tasks_of(app, options, is_named=True if tasks else None)), ""
        from ...tasks.load import load_tasks

        return frozenset(load_tasks(options.task_directory)), ""
    except TaskLoadError as error:
        if tasks is not None:
            raise
        return None, f"Task names were not checked: {error}"


def _problems_of_app(
    app: App, items: list[ParsedCronItem], known: Collection[str] | None
) -> list[CrontabProblem]:
    """Recurring jobs of the app whose task is unknown, and identifiers that the crontab uses too."""
    problems = [
        CrontabProblem(source=item.source or "app", line=item.line, message=f"unknown task {task!r}")
        for item in app.cron_items
        if known is not None and (task := item.task_identifier) not in known
    ]
    places = {item.identifier: item.place for item in app.cron_items}
    for item in items:
        if (place := places.get(item.identifier)) is not None:
            message = f"the identifier {item.identifier!r} is already used in {place}; add ?id="
            problems.append(CrontabProblem(source=item.source or "", line=item.line, message=message))
    return problems


def _print_problems(
    name: str, items: list[ParsedCronItem], problems: list[CrontabProblem], note: str
) -> None:
    for problem in problems:
        click.echo(str(problem))
    if problems:
        click.echo(f"{name}: {counted(len(problems), 'problem')}.")
    else:
        click.echo(f"{name}: {counted(len(items), 'recurring job')}, no problems.")
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
    print_table(columns, rows, empty="No runs: no line of the crontab matches a future time.")


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
