"""The database of a `graphile-worker dev` running in the current directory.

Commands use it when no database is configured. Library calls never do.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from msgspec.structs import replace

from ...config import Settings
from ...errors import EmbeddedPostgresError

DATA_DIRECTORY = ".graphile-worker"
"""Where `dev` keeps its database."""
SOURCE = "graphile-worker dev"


def use_dev_database(settings: Settings, *, quiet: bool) -> Settings:
    """The settings with that database, announced on standard error; unchanged if `dev` is not running."""
    url = _running_url(Path.cwd() / DATA_DIRECTORY)
    if url is None:
        return settings
    if not quiet:
        click.echo(
            "graphile-worker: no database given; using the one of `graphile-worker dev` in this directory",
            err=True,
        )
    worker = settings.worker.with_values(connection_string=url)
    return replace(settings, worker=worker, places=settings.places | {"connection_string": SOURCE})


def _running_url(directory: Path) -> str | None:
    try:
        if directory.stat().st_uid != os.geteuid():  # in /tmp, say: do not trust another user's server
            return None
        from ...embedded import EmbeddedPostgres

        server = EmbeddedPostgres(directory)
        return server.url() if server.is_running else None
    except (EmbeddedPostgresError, OSError):
        return None
