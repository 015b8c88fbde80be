"""`graphile-worker init`: the first files of a project. Nothing that exists is changed, only added to.

`dev` uses the same functions after asking.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...errors import ConfigError
from ..support.client import load_settings
from ..support.output import print_json
from ..support.parameters import CONFIG_OPTION

DATA_FOLDER = ".graphile-worker"
"""Where `dev` keeps its database."""
EXAMPLE_TASK = '''\
"""The task "hello". Add a job for it: graphile-worker add hello '{"name": "Ada"}'"""

from graphile_worker import JobHelpers


async def hello(payload: dict[str, str], helpers: JobHelpers) -> None:
    helpers.logger.info("Hello, %s!", payload.get("name", "world"))
'''
EXAMPLE_CRONTAB = """\
# Recurring jobs, one a line; times are UTC. When do they run? graphile-worker crontab next
#
# minute  hour  day  month  weekday  task  ?options  {payload}
#
# Say hello every five minutes:
# */5 * * * * hello {name: "every five minutes"}
#
# At four in the morning; if the worker was down then, make up for it within a day:
# 0 4 * * * hello ?id=daily&fill=1d {name: "once a day"}
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was made, and what was there already, as paths seen from the project's folder."""

    created: list[str]
    kept: list[str]


@click.command("init")
@CONFIG_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.pass_context
def init_command(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Make tasks/hello.py, a crontab and an entry in .gitignore; nothing is overwritten.

    \b
    mkdir my-project && cd my-project
    graphile-worker init
    graphile-worker dev
    """
    prepared = prepare_project(Path.cwd(), load_settings(ctx, {}))
    if as_json:
        print_json({"created": prepared.created, "kept": prepared.kept})
        return
    for name in prepared.created:
        click.echo(f"made   {name}")
    for name in prepared.kept:
        click.echo(f"kept   {name}, which is there already")
    click.echo("\nNext: `graphile-worker dev` starts a database and a worker that runs your tasks.")


def prepare_project(folder: Path, settings: Settings) -> Prepared:
    """Make what is missing."""
    prepared = Prepared([], [])
    try:
        _make_tasks(folder, settings.worker.task_directory, prepared)
        crontab = folder / settings.worker.crontab_file
        if crontab.exists():
            prepared.kept.append(_name(crontab, folder))
        else:
            _write(crontab, EXAMPLE_CRONTAB, folder, prepared)
        _ignore_data_folder(folder / ".gitignore", folder, prepared)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}") from error
    return prepared


def lacks_tasks(folder: Path, settings: Settings) -> bool:
    """Whether the folder of tasks is not there; tasks in a file or module are another matter."""
    place = settings.worker.task_directory
    return _is_folder(place) and not (folder / place).exists()


def _make_tasks(folder: Path, place: str, prepared: Prepared) -> None:
    if not _is_folder(place):
        prepared.kept.append(place)
        return
    tasks = folder / place
    if tasks.exists() and (not tasks.is_dir() or any(not _is_hidden(path) for path in tasks.iterdir())):
        prepared.kept.append(_name(tasks, folder))
    else:
        _write(tasks / "hello.py", EXAMPLE_TASK, folder, prepared)


def _is_folder(place: str) -> bool:
    """Whether a place of tasks can only be a folder: neither `module:attribute`, `a.module` nor a file."""
    return ":" not in place and not place.endswith(".py") and not re.fullmatch(r"\w+(\.\w+)+", place)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "__pycache__"))


def _ignore_data_folder(path: Path, folder: Path, prepared: Prepared) -> None:
    text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
    if any(line.strip().strip("/") == DATA_FOLDER for line in text.splitlines()):
        prepared.kept.append(_name(path, folder))
        return
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(("\n" if text and not text.endswith("\n") else "") + f"{DATA_FOLDER}/\n")
    prepared.created.append(f"{_name(path, folder)} ({DATA_FOLDER}/)")


def _write(path: Path, text: str, folder: Path, prepared: Prepared) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:  # not even one that appeared this moment is overwritten
        file.write(text)
    prepared.created.append(_name(path, folder))


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
