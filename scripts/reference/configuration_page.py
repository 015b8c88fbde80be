"""The tables of options in docs/configuration.md: defaults, flags and meanings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from graphile_worker.cli.main import graphile_worker
from graphile_worker.config.settings import AdminOptions, ProcessOptions, Setting, known_settings
from graphile_worker.values.options import WorkerOptions

from .members import cell
from .options_page import meaning

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
OWNERS: dict[str, type[Any]] = {"worker": WorkerOptions, "process": ProcessOptions, "admin": AdminOptions}
SHARED = {"log_levels": "log_level"}
"""Options that another flag sets as well, and that flag."""


def page() -> str:
    """The page as it is, with the tables behind `<!-- options: … -->` written anew."""
    return re.sub(
        r"(<!-- options: (\w+) -->\n\n)(?:\|.*\n)+",
        lambda found: found[1] + "\n".join(_table(OWNERS[found[2]])) + "\n",
        PAGE.read_text(encoding="utf-8"),
    )


def _table(owner: type[Any]) -> list[str]:
    rows = ["| option | default | flag | meaning |", "|---|---|---|---|"]
    for setting in known_settings().values():
        if setting.owner is owner:
            text = meaning(setting).replace("](../configuration.md#", "](#").replace("](../", "](")
            rows.append(f"| `{setting.name}` | {_default(setting)} | {_flag(setting)} | {cell(text)} |")
    return [row.replace("|  |", "| |").replace("|  |", "| |") for row in rows]


def _default(setting: Setting) -> str:
    value = setting.default
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, str) else f"{value:g}"


def _flag(setting: Setting) -> str:
    for parameter in graphile_worker.params:
        if parameter.name == SHARED.get(setting.name, setting.name) and isinstance(parameter, click.Option):
            unit = " (milliseconds)" if parameter.metavar == "MS" else ""
            return ", ".join(f"`{flag}`" for flag in parameter.opts) + unit
    return ""
