"""A PostgreSQL of the test run's own: its folder, its settings, and what killed test runs left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..embedded import EmbeddedPostgres
from .keeper import DATA, clean_up, kept

PREFIX = "graphile-worker-test-"
SETTLED_SECONDS = 60.0  # a younger folder may be another run's that is just about to use it

SETTINGS: Mapping[str, str] = {
    # Nothing here must survive a power cut.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "10min",
}


@contextmanager
def scratch_server() -> Iterator[str]:
    """A server for the time of the test run; its URL."""
    with scratch_folder() as folder, EmbeddedPostgres(folder, settings=SETTINGS) as server:
        yield server.url()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A data folder for the time of the test run; it goes with its server when the run is killed, too."""
    remove_leftovers(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o711)  # root's server runs as another user, who must get through
    with kept(folder):
        try:
            yield folder / DATA
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(temporary: Path) -> None:
    """Stops the servers of test runs that were killed along with their keeper, and removes their folders."""
    for folder in temporary.glob(f"{PREFIX}*"):
        try:
            status = folder.stat()
        except FileNotFoundError:  # another run was faster
            continue
        if status.st_uid != os.geteuid() or time.time() - status.st_mtime < SETTLED_SECONDS:
            continue
        clean_up(folder)
