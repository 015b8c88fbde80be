"""Reads a command line as a user would type it with the real command, and does nothing."""

from __future__ import annotations

import re
import shlex

import click

from graphile_worker.cli.main import graphile_worker


def words_of(line: str) -> list[str]:
    """The words of a command without its prompt, the remark behind it, and variables in front of it."""
    line = re.split(r"\s{3,}|\s+# ", line.strip().removeprefix("$ "))[0]
    words = shlex.split(line)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    for sign in ("|", ">"):
        if sign in words:
            words = words[: words.index(sign)]
    return words


def parse(arguments: list[str]) -> None:
    """Let the command read its arguments; a flag or a value that does not exist is a UsageError."""
    context = graphile_worker.make_context("graphile-worker", arguments)
    while context._protected_args or context.args:
        command = context.command
        assert isinstance(command, click.Group)
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        context = found.make_context(name, rest, parent=context)
        if not isinstance(found, click.Group):
            return
