"""How an error of ours leaves the command: a clean line, perhaps a hint, and an exit status."""

from __future__ import annotations

import logging

import click

from ...error_text import message_of
from ...errors import SchemaTooNewError

BREAKING_MIGRATION = 57


def report(error: Exception) -> int:
    """Say what is wrong on standard error, with a traceback only at debug level; returns the exit status."""
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
    """57 when a newer worker changed the schema in a breaking way, here or underneath; else 1."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SchemaTooNewError):
            return BREAKING_MIGRATION
        cause = cause.__cause__
    return 1
