"""The database of a `graphile-worker dev` running in the current directory.

Commands and `serve` use it when no database is configured. Other library calls never do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from msgspec.structs import replace

from ...config import Settings
from ...errors import EmbeddedPostgresError

DATA_DIRECTORY = ".graphile-worker"
"""Where `dev` keeps its database."""
SOURCE = "graphile-worker dev"
DATABASE_VARIABLES = ("DATABASE_URL", "PGDATABASE")
"""Either one names a database when no option does."""


def with_database(settings: Settings, *, quiet: bool = False) -> Settings:
    """The settings; if they name no database, with that of a `dev` running in this directory.

    Unless `quiet`, a line on standard error says so.
    """
    if settings.worker.connection_string is not None or any(map(os.environ.get, DATABASE_VARIABLES)):
        return settings
    url = _running_url(Path.cwd() / DATA_DIRECTORY)
    if url is None:
        return settings
    if not quiet:
        sys.stderr.write(
            "graphile-worker: no database given; using the one of `graphile-worker dev` in this directory\n"
        )
    worker = settings.worker.with_values(connection_string=url)
    return replace(settings, worker=worker, places=settings.places | {"connection_string": SOURCE})


def _running_url(directory: Path) -> str | None:
    try:
        if directory.stat().st_uid != os.geteuid():  # in /tmp, say: do not trust another user's server
            return None
        from ...database.embedded import EmbeddedPostgres

        server = EmbeddedPostgres(directory)
        return server.url() if server.is_running else None
    except (EmbeddedPostgresError, OSError):
        return None
