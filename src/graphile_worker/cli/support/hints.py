"""A second line under an error, where more can be said than the error itself knows: what is around here."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path

from ...errors import EmbeddedPostgresError, NoDatabaseError, TaskLoadError
from ..commands.init import DATA_FOLDER


def hint_for(error: BaseException) -> str | None:
    """One sentence with something to do, or None."""
    if isinstance(error, NoDatabaseError):
        return database_hint()
    if isinstance(error, TaskLoadError):
        return _hint_for_task(error.__cause__)
    return None


def database_hint() -> str:
    """For somebody who named no database: perhaps the one of `dev` is running in this very folder."""
    url = _url_of_dev(Path.cwd() / DATA_FOLDER)
    if url is None:
        return "for a first try without a server, run `graphile-worker dev`"
    return (
        "`graphile-worker dev` is running in this folder; to use its database: "
        f"export DATABASE_URL={shlex.quote(url)}"
    )


def _url_of_dev(folder: Path) -> str | None:
    """The connection string of the embedded server in the folder, if it runs."""
    if not folder.is_dir():
        return None
    from ...embedded import EmbeddedPostgres

    try:
        server = EmbeddedPostgres(folder)
        return server.url() if server.is_running else None
    except (EmbeddedPostgresError, OSError):
        return None


def _hint_for_task(cause: BaseException | None) -> str | None:
    """For a task that another Python could import: which one this is."""
    here = f"Python {platform.python_version()} ({sys.executable})"
    if isinstance(cause, ModuleNotFoundError):
        return (
            f"this worker runs with {here}; install what is missing there "
            f"(`{shlex.quote(sys.executable)} -m pip install …`), or start the worker with the Python that "
            "has it"
        )
    if isinstance(cause, SyntaxError):
        return f"this worker runs with {here}; code for a newer Python needs a worker that runs with that one"
    return None
