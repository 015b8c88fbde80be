"""The folder of the test run's own server, and what killed test runs left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphile_worker.embedded import EmbeddedPostgres
from graphile_worker.errors import EmbeddedPostgresError

PREFIX = "graphile-worker-test-"
SETTLED_SECONDS = 60.0  # a younger folder may be another run's that is just about to use it


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A data folder for the time of the test run."""
    remove_leftovers(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o711)  # root's server runs as another user, who must get through
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(temporary: Path) -> None:
    """Stops the servers of test runs that were killed, and removes their folders."""
    for folder in temporary.glob(f"{PREFIX}*"):
        try:
            status = folder.stat()
        except FileNotFoundError:  # another run was faster
            continue
        if status.st_uid != os.geteuid() or time.time() - status.st_mtime < SETTLED_SECONDS:
            continue
        with suppress(EmbeddedPostgresError):  # it is not this run's business, only its courtesy
            if EmbeddedPostgres(folder / "data").stop_if_unused():
                shutil.rmtree(folder, ignore_errors=True)
