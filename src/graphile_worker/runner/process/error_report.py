"""Errors as a person sees them at the terminal: one line, perhaps with a hint, and an exit status."""

from __future__ import annotations

import logging
import platform
import shlex
import sys
from collections.abc import Callable

from ...errors import (
    GraphileWorkerError,
    NoDatabaseError,
    SchemaTooNewError,
    TaskLoadError,
    WorkerUnhealthyError,
)
from ...errors.text import message_of, type_name

BREAKING_MIGRATION = 57
UNHEALTHY = 58
NO_DATABASE = (
    "no database was given; set connection_string (on the command line -c/--connection), the environment "
    "variable DATABASE_URL, or the PG* environment variables with at least PGDATABASE"
)
"""Without `pg_pool`, which only calls from an event loop can take."""

logger = logging.getLogger("graphile_worker")


def reported(work: Callable[[], int]) -> int:
    """Do the work; returns its exit status. Errors that have a clear message are reported.

    These are our own, and those of the server. Others are raised, for their traceback.
    """
    try:
        return work()
    except Exception as error:
        if not isinstance(error, GraphileWorkerError) and getattr(error, "sqlstate", None) is None:
            raise
        return report(error)


def report(error: Exception) -> int:
    """Print the error on standard error, with its traceback at debug level only; returns the exit status.

    While all output is JSON, this is a JSON line too.
    """
    message = NO_DATABASE if isinstance(error, NoDatabaseError) else message_of(error)
    hint = hint_for(error)
    if is_output_captured():
        _log(error, message, hint)
        return exit_status(error)
    if logger.isEnabledFor(logging.DEBUG):
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    _print(f"graphile-worker: error: {message}")
    if hint is not None:
        _print(f"graphile-worker: hint: {hint}")
    return exit_status(error)


def is_output_captured() -> bool:
    """Whether everything that the process prints becomes a log line."""
    captured = sys.modules.get("graphile_worker.logging.captured_output")
    return captured is not None and isinstance(sys.stderr, captured.LogStream)


def _log(error: Exception, message: str, hint: str | None) -> None:
    extra = {"event": "error", "error": message, "error_type": type_name(error)}
    if hint is not None:
        extra["hint"] = hint
    is_debug = logger.isEnabledFor(logging.DEBUG)
    logger.error("%s", message, extra=extra, exc_info=error if is_debug else None)


def exit_status(error: Exception) -> int:
    """57 if the error or one of its causes is a breaking migration, 58 if tasks leaked; else 1."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SchemaTooNewError):
            return BREAKING_MIGRATION
        if isinstance(cause, WorkerUnhealthyError):
            return UNHEALTHY
        cause = cause.__cause__
    return 1


def _print(line: str) -> None:
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stderr.flush()


def hint_for(error: BaseException) -> str | None:
    """One sentence of advice, or None. A note on an error of ours is advice."""
    if notes := getattr(error, "__notes__", None):
        return str(notes[0])
    if isinstance(error, NoDatabaseError):
        return database_hint()
    if isinstance(error, TaskLoadError):
        return _hint_for_task(error.__cause__)
    if isinstance(error, WorkerUnhealthyError):
        return "the log shows where each task hangs, in the lines with `leaked`"
    return None


def database_hint() -> str:
    """For newcomers without a database."""
    return "to try it without a server, run `graphile-worker dev`"


def _hint_for_task(cause: BaseException | None) -> str | None:
    """Names this Python when a task may be written for another one."""
    here = f"Python {platform.python_version()} ({sys.executable})"
    if isinstance(cause, ModuleNotFoundError):
        return (
            f"this worker runs on {here}; install the missing package there "
            f"(`{shlex.quote(sys.executable)} -m pip install …`), or start the worker with the Python that "
            "has it"
        )
    if isinstance(cause, SyntaxError) and "Python 3" in cause.msg:  # else it is hardly newer syntax
        return f"this worker runs on {here}; code for a newer Python needs a worker on that version"
    return None
