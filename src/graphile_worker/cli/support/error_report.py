"""Prints an error as one line, with a hint where there is one, and maps it to an exit status."""

from __future__ import annotations

import logging
import sys

import click

from ...error_parts import type_name
from ...error_text import message_of
from ...errors import SchemaTooNewError

BREAKING_MIGRATION = 57

logger = logging.getLogger("graphile_worker")


def report(error: Exception) -> int:
    """Print the error on standard error, with its traceback at debug level only; returns the exit status.

    While all output is JSON, this is a JSON line too.
    """
    from .hints import hint_for

    hint = hint_for(error)
    if is_output_captured():
        _log(error, hint)
    else:
        _print(error, hint)
    return exit_status(error)


def is_output_captured() -> bool:
    """Whether everything that the process prints becomes a log line."""
    captured = sys.modules.get("graphile_worker.observability.captured_output")
    return captured is not None and isinstance(sys.stderr, captured.LogStream)


def _log(error: Exception, hint: str | None) -> None:
    extra = {"event": "error", "error": message_of(error), "error_type": type_name(error)}
    if hint is not None:
        extra["hint"] = hint
    is_debug = logger.isEnabledFor(logging.DEBUG)
    logger.error("%s", message_of(error), extra=extra, exc_info=error if is_debug else None)


def _print(error: Exception, hint: str | None) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(f"graphile-worker: error: {message_of(error)}", err=True)
    if hint is not None:
        click.echo(f"graphile-worker: hint: {hint}", err=True)


def exit_status(error: Exception) -> int:
    """57 if the error or one of its causes is a breaking migration; else 1."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SchemaTooNewError):
            return BREAKING_MIGRATION
        cause = cause.__cause__
    return 1
