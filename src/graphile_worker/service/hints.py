"""Hints printed below an error, based on the current directory and the running Python."""

from __future__ import annotations

import platform
import shlex
import sys

from ..errors import NoDatabaseError, TaskLoadError, WorkerUnhealthyError


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
