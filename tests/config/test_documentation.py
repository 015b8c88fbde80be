"""The pages about options and flags match the code."""

from __future__ import annotations

import re
from pathlib import Path

import click
from scripts.reference import options_page

from graphile_worker.cli.main import COMMANDS, graphile_worker
from graphile_worker.config.settings import known_settings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_of_options_are_what_the_generator_makes_of_the_declarations() -> None:
    for name, text in options_page.pages().items():
        assert (DOCS / "reference" / name).read_text() == text, "run `make reference`"


def test_every_option_is_on_one_page() -> None:
    found = [
        option
        for text in options_page.pages().values()
        for option in re.findall(r"^\| `([a-z_.]+)` \|", text, re.MULTILINE)
    ]
    for name in known_settings():
        objects = {"app", "forbidden_flags", "accepted_flags", "flag_allowlist", "plugins"}
        assert found.count(name) == (2 if name in objects else 1), name


def test_every_flag_and_command_is_documented() -> None:
    text = (DOCS / "command-line.md").read_text()
    context = click.Context(graphile_worker)
    flags = [flag for parameter in graphile_worker.get_params(context) for flag in parameter.opts]
    for flag in flags:
        assert f"`{flag}" in text
    for command in COMMANDS:
        assert f"graphile-worker {command}" in text
