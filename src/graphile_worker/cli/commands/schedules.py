"""`graphile-worker schedules` and `crontab`: recurring jobs.

`schedules` lists them, and runs one now. `crontab` checks and previews a crontab, and needs no database.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...config import Settings
from ...cron.crontab import parse_crontab, read_crontab
from ...cron.item import ParsedCronItem
from ...cron.item_jobs import job_options, options_of, own_options, payload_problems
from ...cron.preview import UpcomingRun, upcoming_runs
from ...diagnostics.json_shapes import schedule_as_json
from ...errors import CrontabError, CrontabProblem, InvalidArgumentError
from ...values.spec import Unique
from ...values.text import count as counted
from ...values.text import duration, parse_when
from ..support.client import with_app
from ..support.command import Output, client_command, command
from ..support.output import print_objects, print_table
from ..support.parameters import APP_OPTION, TASKS_OPTION, Parsed

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.schedules import Schedule
    from ...runner.application import App
    from ..support.task_names import LocalTasks

HORIZON = timedelta(days=366 * 9)


def _audited(run: str | None) -> str:
    return "run_schedule" if run else ""


@client_command("schedules", audit=_audited)
@click.option("--run", metavar="NAME", help="Add a job for this recurring job now.")
async def schedules_command(utils: WorkerUtils, run: str | None) -> Output:
    """List recurring jobs: when they run next, when they last ran, which workers have them.

    The details come from running workers of this package. Of recurring jobs that only Node has, nothing
    is known but when a job was last added. To pause one, use `graphile-worker pause --schedule`.

    \b
    graphile-worker schedules
    graphile-worker schedules --run nightly
    """
    if run is not None:
        job = await utils.schedules.run_now(run)
        return Output(
            lambda: {"identifier": run, "job_id": job.id}, lambda: click.echo(f"Added job {job.id}."), jobs=1
        )
    found = await utils.schedules.list()
    return Output(lambda: [schedule_as_json(each) for each in found], lambda: _print(found))


def _print(found: list[Schedule]) -> None:
    now = datetime.now(UTC)
    runs = {schedule.identifier: _when(schedule, now) for schedule in found}
    print_objects(
        found,
        "schedule=identifier, when, zone, task, next, last=last_execution, workers, state",
        when=lambda schedule: runs[schedule.identifier][0],
        zone=lambda schedule: schedule.current and (schedule.current.zone or "UTC"),
        task=lambda schedule: schedule.current and schedule.current.task_identifier,
        next=lambda schedule: runs[schedule.identifier][1],
        workers=lambda schedule: len(schedule.workers),
        state=_state,
        empty="There are no recurring jobs.",
    )


def _state(schedule: Schedule) -> str:
    state = "" if schedule.pause is None else f"paused{schedule.pause.terms}"
    return f"{state}, workers differ".removeprefix(", ") if schedule.differs else state


def _when(schedule: Schedule, now: datetime) -> tuple[str | None, datetime | None]:
    """The pattern in words, and the next run."""
    from ...cron.fields import FieldError, parse_pattern
    from ...cron.matcher import PatternMatcher, find_zone
    from ...cron.preview import describe_pattern
    from ...errors import CrontabError

    current = schedule.current
    if current is None:
        return None, None
    if current.pattern is None:
        return "a function decides", None
    try:
        zone = None if current.zone is None else find_zone(current.zone)
        matcher = PatternMatcher(parse_pattern(current.pattern), zone)
    except (FieldError, CrontabError):
        return current.pattern, None
    runs = matcher.minutes_between(now + timedelta(seconds=1), now + HORIZON)
    return describe_pattern(current.pattern), next(islice(runs, 1), None)


FILE_ARGUMENT = click.argument("file", required=False, metavar="[FILE]")


def _start_time(text: str) -> datetime | timedelta:
    """A time as other commands take it; without a zone it is UTC, as in a crontab."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return parse_when(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.group("crontab")
def crontab_group() -> None:
    """Check a crontab, or show when its recurring jobs run next."""


@command("check", short_help="Check a crontab for errors.")
@FILE_ARGUMENT
@TASKS_OPTION
@APP_OPTION
def check_command(settings: Settings, file: str | None, task_directory: str | None) -> Output:
    """Check FILE for errors and show all of them (default: crontab; - is standard input).

    If the tasks can be loaded, an unknown task and a payload that does not fit its task are errors too. The
    options of the jobs are shown, with those that come from the task. With an app, its recurring jobs are
    checked too.

    \b
    graphile-worker crontab check
    graphile-worker crontab check deploy/crontab
    """
    settings, app = with_app(settings)
    name, text = _read(file, settings, app)
    local = _load_tasks(task_directory, settings, app, must_exist=True)
    known = None if local.problem else local.tasks
    items, problems = read_crontab(text, source=name, known_tasks=known)
    if app is not None:
        problems += _problems_of_app(app, items, known)
        items = [*app.cron_items, *items]
    problems += payload_problems(items, local.tasks)
    lines = [_Line(item, local) for item in items]
    return Output(
        lambda: _as_json(name, lines, problems, local),
        lambda: _print_check(name, lines, problems, local),
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
    type=Parsed("time", _start_time),
    default="now",
    help="Start at this time (UTC unless it has a zone), or after a period such as 2h.",
)
@TASKS_OPTION
def next_command(
    settings: Settings, file: str | None, count: int, start: datetime | timedelta, task_directory: str | None
) -> Output:
    """Show when the jobs of FILE run next, in UTC and local time (default: crontab; - is standard input).

    The options of each job are shown as well, with those that come from its task. Without FILE, the recurring
    jobs of the app are shown too, if there is one.

    \b
    graphile-worker crontab next -n 20
    """
    settings, app = with_app(settings) if file is None else (settings, None)
    name, text = _read(file, settings, app)
    moment = start if isinstance(start, datetime) else datetime.now(UTC) + start
    items = [*(() if app is None else app.cron_items), *parse_crontab(text, source=name)]
    runs = upcoming_runs(items, moment, count)
    local = _load_tasks(task_directory, settings, app, must_exist=False)
    if local.problem:
        click.echo(f"Options of tasks are not shown: {local.problem}", err=True)
    return Output(lambda: [_run_as_json(run, local) for run in runs], lambda: _print_runs(runs, local))


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


def _load_tasks(tasks: str | None, settings: Settings, app: App | None, *, must_exist: bool) -> LocalTasks:
    """The tasks; those named by the option must exist."""
    from ..support.task_names import load_local_tasks

    local = load_local_tasks(
        settings.worker if tasks is None else settings.worker.with_values(task_directory=tasks),
        app,
        must_exist=must_exist or bool(tasks),
        is_named=True if tasks else None,
    )
    if local.problem is not None and tasks is not None:
        raise local.problem
    return local


class _Line:
    """An item of the crontab without its task: the options of its jobs, and where they come from."""

    def __init__(self, item: ParsedCronItem, local: LocalTasks) -> None:
        task = local.tasks.get(item.task_identifier)
        try:
            of_task = options_of(task, item.payload)
        except InvalidArgumentError:  # a function of the payload; the check of payloads reports it
            of_task = {} if task is None else task.spec_defaults
        own = own_options(item.options)
        self.item = item
        self.options = job_options(item.options, of_task)
        self.from_task = [name for name in self.options if name not in own]
        self.overrides = [
            f"{_option(name, value)} overrides the task's {_value(of_task[name])}"
            for name, value in own.items()
            if name in of_task and of_task[name] != value
        ]

    @property
    def text(self) -> str:
        """The options in words: those of the line, then those of the task."""
        own: list[str] = []
        of_task: list[str] = []
        for name, value in self.options.items():
            if (name, value) != ("job_key_mode", "replace"):  # the default
                (of_task if name in self.from_task else own).append(_option(name, value))
        parts = [", ".join(own)] if own else []
        return "; ".join([*parts, f"{', '.join(of_task)} (from the task)"] if of_task else parts)


def _option(name: str, value: Any) -> str:
    return f"{name} {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Unique):
        return f"by {', '.join(value.fields) or 'the payload'}, while {value.while_}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return duration(value)
    return str(value) if isinstance(value, str | int | float) else " ".join(value)


def _print_check(name: str, lines: list[_Line], problems: list[CrontabProblem], local: LocalTasks) -> None:
    for problem in problems:
        click.echo(str(problem))
    warnings = 0
    for line in lines:
        place, identifier = line.item.place, line.item.identifier
        if line.text and not problems:
            click.echo(f"{place}: {identifier}: {line.text}")
        for override in line.overrides:
            warnings += 1
            click.echo(f"{place}: warning: {identifier}: {override}")
    found = counted(len(problems), "problem") if problems else "no problems"
    if warnings:
        found += f", {counted(warnings, 'warning')}"
    click.echo(
        f"{name}: {found}." if problems else f"{name}: {counted(len(lines), 'recurring job')}, {found}."
    )
    if local.problem:
        click.echo(f"Tasks and payloads were not checked: {local.problem}", err=True)


def _as_json(
    name: str, lines: list[_Line], problems: Iterable[CrontabProblem], local: LocalTasks
) -> dict[str, Any]:
    return {
        "file": name,
        "items": len(lines),
        "tasks_checked": local.problem is None,
        "problems": [
            {"line": problem.line, "column": problem.column, "message": problem.message, "text": problem.text}
            for problem in problems
        ],
        "warnings": [
            {"line": line.item.line, "identifier": line.item.identifier, "message": override}
            for line in lines
            for override in line.overrides
        ],
        "jobs": [
            {"line": line.item.line, "identifier": line.item.identifier, "task": line.item.task_identifier}
            | _options_as_json(line)
            for line in lines
        ],
    }


def _options_as_json(line: _Line) -> dict[str, Any]:
    options = {name: _plain(value) for name, value in line.options.items()}
    return {"options": options, "from_task": line.from_task}


def _plain(value: Any) -> Any:
    """Periods in seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float) else msgspec.to_builtins(value)


def _print_runs(runs: list[UpcomingRun], local: LocalTasks) -> None:
    has_zones = any(run.item.options.tz for run in runs)
    options = [_Line(run.item, local).text for run in runs]
    columns = ["utc", "local", *(["in its zone"] if has_zones else []), "task", "identifier"]
    columns += ["options"] if any(options) else []
    rows = []
    for run, text in zip(runs, options, strict=True):
        zone = run.item.options.tz
        times = [f"{run.at:%a %Y-%m-%d %H:%M}", _clock(run.at.astimezone())]
        if has_zones:
            times.append(_clock(run.at.astimezone(zone)) if zone else "")
        rows.append([*times, run.item.task_identifier, run.item.identifier, text][: len(columns)])
    print_table(columns, rows, empty="No runs: no line of the crontab matches a future time.")


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M %Z}"


def _run_as_json(run: UpcomingRun, local: LocalTasks) -> dict[str, Any]:
    zone = run.item.options.tz
    return {
        "at": run.at,
        "local": run.at.astimezone().isoformat(),
        "tz": None if zone is None else str(zone),
        "task": run.item.task_identifier,
        "identifier": run.item.identifier,
        "pattern": run.item.pattern,
    } | _options_as_json(_Line(run.item, local))
