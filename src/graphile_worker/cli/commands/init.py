"""`graphile-worker init`: the first files of a project. Existing files are never overwritten.

`dev` uses the same functions, after asking.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from ...config import Settings
from ...errors import ConfigError
from ...service.dev_database import DATA_DIRECTORY
from ..support.command import Output, command

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
