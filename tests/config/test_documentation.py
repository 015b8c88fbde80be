"""The pages about options and flags match the code."""

from __future__ import annotations

import re
from pathlib import Path

import click
from scripts.reference import configuration_page

from graphile_worker.cli.main import COMMANDS, graphile_worker
from graphile_worker.config.settings import known_settings

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `([a-z_.]+)` \|([^|]*)\|([^|]*)\|", re.MULTILINE)


def _tables() -> str:
    """The part of the page with the options."""
    return (DOCS / "configuration.md").read_text().partition("## Options")[2].partition("## Logging")[0]


def test_the_tables_of_options_are_what_the_generator_makes_of_the_declarations() -> None:
    assert configuration_page.page() == configuration_page.PAGE.read_text()
    assert [name for name, _, _ in ROW.findall(_tables())] == list(known_settings())


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
