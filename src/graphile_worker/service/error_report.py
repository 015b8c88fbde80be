"""Prints an error as one line, with a hint where there is one, and maps it to an exit status."""

from __future__ import annotations

import logging

import click

from ..error_text import message_of
from ..errors import SchemaTooNewError

BREAKING_MIGRATION = 57


def report(error: Exception) -> int:
    """Print the error on standard error, with its traceback at debug level only; returns the exit status."""
    if logging.getLogger("graphile_worker").isEnabledFor(logging.DEBUG):
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(f"graphile-worker: error: {message_of(error)}", err=True)
    from .hints import hint_for

    hint = hint_for(error)
    if hint is not None:
        click.echo(f"graphile-worker: hint: {hint}", err=True)
    return exit_status(error)


def exit_status(error: Exception) -> int:
    """57 if the error or one of its causes is a breaking migration; else 1."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SchemaTooNewError):
            return BREAKING_MIGRATION
        cause = cause.__cause__
    return 1
