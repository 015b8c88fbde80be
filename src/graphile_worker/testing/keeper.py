"""The keeper of a test run's server: a small process that cleans up when the run ends, even if it is killed.

It waits until its standard input is closed, which the kernel does for a killed process too. Then it stops
the server, unless another process uses it, and removes the directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..database.embedded import EmbeddedPostgres
from ..errors import EmbeddedPostgresError

DATA = "data"
"""The server's data directory, relative to the directory that is kept."""
REMOVED_WITHIN = 30.0  # seconds; processes of the run may still be writing
ENDS_WITHIN = 60.0  # seconds after which a keeper is considered stuck


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Remove the directory and its server even if this process is killed."""
    package_root = os.fspath(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", __name__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # a reader of our output must not wait for the keeper
        env={**os.environ, "PYTHONPATH": path},
        cwd="/",
        start_new_session=True,  # Ctrl-C and a closed terminal must not end it
    )
    try:
        yield
    finally:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.close()
        try:
            process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def clean_up(folder: Path) -> bool:
    """Stop the server if it is unused, and remove its directory; returns whether it is gone."""
    with suppress(EmbeddedPostgresError):
        if EmbeddedPostgres(folder / DATA).stop_if_unused():
            shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def main() -> None:
    folder = Path(sys.argv[1])
    sys.stdin.buffer.read()
    deadline = time.monotonic() + REMOVED_WITHIN
    while not clean_up(folder) and time.monotonic() < deadline:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
