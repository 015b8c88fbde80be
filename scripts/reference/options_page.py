"""The reference of options: a page for each class, that of workers with the other arguments of `run`."""

from __future__ import annotations

import typing
from typing import Any

import click

from graphile_worker.cli.commands.admin import admin_group
from graphile_worker.cli.main import graphile_worker
from graphile_worker.config.settings import AdminOptions, ProcessOptions, Setting, known_settings
from graphile_worker.runner.arguments import RunOnceArguments, WorkerArguments
from graphile_worker.values.option_groups import GROUPS
from graphile_worker.values.options import CLIENT_OPTIONS, WorkerOptions

from .members import cell, field_texts, field_types, text

SHARED = {"log_levels": "log_level"}
"""Options that another flag sets as well, and that flag."""
NESTED = (
    "The type is in parentheses. Some options are fields of an object in Python, which is named there, too:\n"
    "`recovery_grace = 30` in the file is `run(recovery=RecoveryOptions(grace=30))` in a program.\n"
    '`recovery=False` and `history="all"` set the first option of their group alone. `local_queue` is a\n'
    "`LocalQueueOptions`, its `refetch_delay` a `RefetchDelayOptions`. All of these are in\n"
    "`graphile_worker.options`."
)


def pages() -> dict[str, str]:
    """The text of each page of options, by file name."""
    lines = [text("options.md"), "## The options", "", NESTED, "", *_table(WorkerOptions), ""]
    lines += [
        f"`make_worker_utils` takes {', '.join(f'`{name}`' for name in CLIENT_OPTIONS)} of these,",
        "and `pg_pool`, `events`, `hooks`, `plugins`, `clock` and `options`.",
        "",
        "## Other arguments of `run` and `run_once`",
        "",
        "These are objects of your program, so no file and no environment variable can hold them.",
        "",
        "| argument | meaning |",
        "|---|---|",
        *(f"| `{name}` | {cell(meaning)} |" for name, meaning in _arguments().items()),
    ]
    return {
        "options.md": "\n".join(lines) + "\n",
        "process-options.md": "\n".join((text("process-options.md"), *_table(ProcessOptions))) + "\n",
        "dashboard-options.md": "\n".join((text("dashboard-options.md"), *_table(AdminOptions))) + "\n",
    }


def _table(owner: type[Any]) -> list[str]:
    rows = ["| option | default | flag | meaning |", "|---|---|---|---|"]
    for setting in known_settings().values():
        if setting.owner is owner:
            kind = field_types(holder(setting))[setting.path[-1]]
            place = f", in Python {place}" if (place := in_python(setting)) else ""
            rows.append(
                f"| `{setting.name}` | {_default(setting)} | {_flag(setting)} "
                f"| {cell(meaning(setting))} (`{cell(kind)}`{place}) |"
            )
    return [row.replace("|  |", "| |").replace("|  |", "| |") for row in rows]


def holder(setting: Setting) -> type[Any]:
    """The class with the field of an option: that of its group, if there is one."""
    found: Any = setting.owner
    for name in setting.path[:-1]:
        kind = typing.get_type_hints(found)[name]
        found = next((each for each in typing.get_args(kind) if each is not type(None)), kind)
    return typing.cast("type[Any]", found)


def meaning(setting: Setting) -> str:
    """The text below its field; links are relative to the reference."""
    return field_texts(holder(setting))[setting.path[-1]]


def in_python(setting: Setting) -> str:
    """Its place in the object of its group; empty if its name is the argument."""
    group = setting.path[0]
    return f"`{GROUPS[group].__name__}.{setting.path[1]}`" if group in GROUPS else ""


def _flag(setting: Setting) -> str:
    command = admin_group if setting.owner is AdminOptions else graphile_worker
    name = SHARED.get(setting.name, setting.path[-1] if setting.owner is AdminOptions else setting.name)
    for parameter in command.params:
        if parameter.name == name and isinstance(parameter, click.Option):
            unit = " (milliseconds)" if parameter.metavar == "MS" else ""
            return ", ".join(f"`{flag}`" for flag in parameter.opts) + unit
    return ""


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "" if setting.path[-1] not in ("size", "duration") else "required"
    value = setting.default
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`" if text else ""


def _arguments() -> dict[str, str]:
    return field_texts(RunOnceArguments) | field_texts(WorkerArguments)
