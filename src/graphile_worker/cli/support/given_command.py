"""The command as it was given, for advice to repeat it with more flags."""

from __future__ import annotations

import shlex

import click

from ...db.connection_text import masked
from .parameters import ARGUMENTS

CONNECTION_FLAGS = ("-c", "--connection")


def given_command(*more: str) -> str:
    """The command line, ready to paste, with these arguments in addition; passwords are not repeated."""
    arguments: list[str] = click.get_current_context().meta.get(ARGUMENTS, [])
    shown = []
    previous = ""
    for argument in arguments:
        shown.append(masked(argument) if previous in CONNECTION_FLAGS else _masked_flag(argument))
        previous = argument
    return shlex.join(["graphile-worker", *shown, *more])


def _masked_flag(argument: str) -> str:
    """A flag that contains its value: `-cURL` or `--connection=URL`."""
    if argument.startswith("--"):
        name, separator, value = argument.partition("=")
        return f"{name}={masked(value)}" if name == "--connection" and separator else argument
    return f"-c{masked(argument[2:])}" if argument.startswith("-c") and argument != "-c" else argument
