"""A temporary PostgreSQL server for a test run, and the removal of leftovers of killed runs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..database.embedded import EmbeddedPostgres
from ..database.embedded.keeper import Keeper
from ..errors import EmbeddedPostgresError

PREFIX = "graphile-worker-scratch-"
SETTLED_SECONDS = 60.0  # a younger directory may belong to a run that is starting

SETTINGS: Mapping[str, str] = {
    # The data need not survive a crash.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "10min",
}


@contextmanager
def scratch_server() -> Iterator[str]:
    """Start a temporary server and yield its URL."""
    with scratch_folder() as folder, EmbeddedPostgres(folder, settings=SETTINGS) as server:
        yield server.url()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary data directory; removed with its server even if the run is killed."""
    remove_leftovers(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    keeper = Keeper(folder, remove=True)
    keeper.start()
    try:
        yield folder
    finally:
        if _is_removed(folder):
            keeper.dismiss()
        else:
            keeper.forget()  # it waits for the other processes that use the server


def remove_leftovers(temporary: Path) -> None:
    """Stop servers of runs that were killed together with their keeper, and remove their directories."""
    for folder in temporary.glob(f"{PREFIX}*"):
        try:
            status = folder.stat()
        except FileNotFoundError:  # another run has removed it
            continue
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime >= SETTLED_SECONDS:
            _is_removed(folder)


def _is_removed(folder: Path) -> bool:
    with suppress(EmbeddedPostgresError, FileNotFoundError):  # another process may remove it
        return EmbeddedPostgres(folder).stop_if_unused(remove=True)
    return not folder.exists()
