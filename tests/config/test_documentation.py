"""The pages about options and flags match the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import msgspec

from graphile_worker.cli.main import COMMANDS, graphile_worker
from graphile_worker.config.process_options import ProcessOptions
from graphile_worker.config.settings import AdminOptions, known_settings
from graphile_worker.values.options import LocalQueueOptions, RefetchDelayOptions, WorkerOptions

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `([a-z_.]+)` \|([^|]*)\|([^|]*)\|", re.MULTILINE)


def _tables() -> str:
    """The part of the page with the options."""
    return (DOCS / "configuration.md").read_text().partition("## Options")[2].partition("## Logging")[0]


def _defaults() -> dict[str, Any]:
    groups: dict[str, type[msgspec.Struct]] = {
        "": WorkerOptions,
        "local_queue.": LocalQueueOptions,
        "local_queue.refetch_delay.": RefetchDelayOptions,
        "admin.": AdminOptions,
    }
    found = {field.name: field.default for field in msgspec.structs.fields(ProcessOptions)}
    for prefix, cls in groups.items():
        found |= {prefix + field.name: field.default for field in msgspec.structs.fields(cls)}
    return found


def test_every_option_is_documented_with_its_default() -> None:
    rows = {name: (default.strip(), flag) for name, default, flag in ROW.findall(_tables())}
    assert list(rows) == list(known_settings())
    defaults = _defaults()
    for name, (text, _) in rows.items():
        value = defaults[name]
        if value in (None, "") or value is msgspec.NODEFAULT:
            assert not text or text == "5 × size"
        elif isinstance(value, bool | str):
            assert text.strip("`") == str(value).lower()
        else:
            assert float(text) == value


def test_every_flag_and_command_is_documented() -> None:
    text = (DOCS / "command-line.md").read_text()
    context = click.Context(graphile_worker)
    flags = [flag for parameter in graphile_worker.get_params(context) for flag in parameter.opts]
    for flag in flags:
        assert f"`{flag}" in text
    for command in COMMANDS:
        assert f"graphile-worker {command}" in text


def test_every_flag_in_the_table_of_options_exists() -> None:
    flags = {flag for parameter in graphile_worker.params for flag in parameter.opts}
    for _, _, cell in ROW.findall(_tables()):
        for flag in re.findall(r"`(-[^`]+)`", cell):
            assert flag in flags
