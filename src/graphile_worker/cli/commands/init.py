"""`graphile-worker init` and `config`: the files and the options of a project.

`init` writes the first files and never overwrites one; `dev` uses the same functions, after asking. `config`
shows every option, its value and its source, with passwords masked.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...config.settings import AdminOptions, known_settings
from ...database.connections.connection_text import HIDDEN
from ...database.connections.dsn import masked
from ...errors import ConfigError
from ...runner.process.dev_database import DATA_DIRECTORY
from ...values.option_groups import shown_options
from ...values.options import WorkerOptions
from ..support.client import with_database
from ..support.command import Output, command
from ..support.output import print_table

EXAMPLE_TASK = '''\
"""The task "hello". To add a job for it: graphile-worker add hello '{"name": "Ada"}'"""

from typing import Any

from graphile_worker import JobHelpers


async def hello(payload: dict[str, Any], helpers: JobHelpers) -> None:
    helpers.logger.info("Hello, %s!", payload.get("name", "world"))
'''
EXAMPLE_CRONTAB = """\
# Recurring jobs, one per line; times are in UTC. To see when they run: graphile-worker crontab next
#
# minute  hour  day  month  weekday  task  ?options  {payload}
#
# Say hello every five minutes:
# */5 * * * * hello {name: "every five minutes"}
#
# Every day at 04:00; if no worker was running then, add the job up to a day later:
# 0 4 * * * hello ?id=daily&fill=1d {name: "once a day"}
"""


@dataclass(frozen=True, slots=True)
class InitReport:
    """Files that were created, and those that existed already, relative to the project."""

    created: list[str]
    kept: list[str]


@command("init")
def init_command(settings: Settings) -> Output:
    """Create tasks/hello.py, a crontab and an entry in .gitignore; overwrites nothing.

    \b
    mkdir my-project && cd my-project
    graphile-worker init
    graphile-worker dev
    """
    report = create_project(Path.cwd(), settings)
    return Output(lambda: asdict(report), lambda: _print(report))


def create_project(project: Path, settings: Settings) -> InitReport:
    """Create the files that are missing."""
    report = InitReport([], [])
    try:
        _create_tasks(project, settings.worker.task_directory, report)
        crontab = project / settings.worker.crontab_file
        if crontab.exists():
            report.kept.append(_name(crontab, project))
        else:
            _write(crontab, EXAMPLE_CRONTAB, project, report)
        _ignore_data_directory(project / ".gitignore", project, report)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}") from error
    return report


def lacks_tasks(project: Path, settings: Settings) -> bool:
    """Whether the task directory is missing; False for tasks in a file or module."""
    place = settings.worker.task_directory
    return _is_directory(place) and not (project / place).exists()


def _print(report: InitReport) -> None:
    for name in report.created:
        click.echo(f"created  {name}")
    for name in report.kept:
        click.echo(f"kept     {name} (exists)")
    click.echo("\nNext: `graphile-worker dev` starts a database and a worker that runs your tasks.")


def _create_tasks(project: Path, place: str, report: InitReport) -> None:
    if not _is_directory(place):
        report.kept.append(place)
        return
    tasks = project / place
    if tasks.exists() and (not tasks.is_dir() or any(not _is_hidden(path) for path in tasks.iterdir())):
        report.kept.append(_name(tasks, project))
    else:
        _write(tasks / "hello.py", EXAMPLE_TASK, project, report)


def _is_directory(place: str) -> bool:
    """Whether the tasks are in a directory, not in `module:attribute`, `a.module` or a file."""
    return ":" not in place and not place.endswith(".py") and not re.fullmatch(r"\w+(\.\w+)+", place)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "__pycache__"))


def _ignore_data_directory(path: Path, project: Path, report: InitReport) -> None:
    text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
    if any(line.strip().strip("/") == DATA_DIRECTORY for line in text.splitlines()):
        report.kept.append(_name(path, project))
        return
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(("\n" if text and not text.endswith("\n") else "") + f"{DATA_DIRECTORY}/\n")
    report.created.append(f"{_name(path, project)} ({DATA_DIRECTORY}/)")


def _write(path: Path, text: str, project: Path, report: InitReport) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:  # fails if the file has appeared since the check
        file.write(text)
    report.created.append(_name(path, project))


def _name(path: Path, project: Path) -> str:
    return str(path.relative_to(project)) if path.is_relative_to(project) else str(path)


@command("config", database=True)
def config_command(settings: Settings) -> Output:
    """Show every option, its value, and where the value comes from.

    \b
    graphile-worker config
    GRAPHILE_WORKER_CONCURRENCY=4 graphile-worker config --json | jq .concurrency
    """
    settings = with_database(settings, quiet=True)
    rows = [(name, _value(settings, name), source) for name, source in settings.provenance.items()]
    return Output(
        lambda: {name: {"value": value, "source": source} for name, value, source in rows},
        lambda: print_table(
            ("option", "value", "source"), [(name, _shown(value), source) for name, value, source in rows]
        ),
    )


def _value(settings: Settings, name: str) -> Any:
    setting = known_settings()[name]
    value: Any = settings.admin if setting.owner is AdminOptions else settings.process
    value = settings.worker if setting.owner is WorkerOptions else value
    for part in setting.path:
        value = getattr(value, part)
    if name == "plugin_options":
        return shown_options(value, HIDDEN)
    if not setting.is_secret or not value:
        return value
    if isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    return masked(value) if name == "connection_string" else HIDDEN


def _shown(value: Any) -> str:
    """A value as a configuration file would have it."""
    if value is None or value in ({}, []):
        return "(not set)"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
