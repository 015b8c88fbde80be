"""Stops an embedded server that a killed program left behind.

A program can end without any clean-up: by SIGKILL, or by SIGTERM if it does not handle it. So every program
that uses a server starts a keeper: a shell that waits at a pipe, which the kernel closes when the program
ends. Only then it becomes a Python process, which stops the server if no other program uses it. For a
temporary server it removes the data folder too.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SCRIPT = 'read -r line && exit; exec "$@"'
"""A line says that all is done; the end of the input says that the program is gone."""
PROGRAM = """
import sys, time
from graphile_worker.database.embedded import EmbeddedPostgres
server, remove = EmbeddedPostgres(sys.argv[1]), sys.argv[2] == "remove"
deadline = time.monotonic() + 30 * remove  # other processes may use the temporary server for a moment
while not server.stop_if_unused(remove=remove) and time.monotonic() < deadline:
    time.sleep(0.1)
"""
ENDS_WITHIN = 10.0  # seconds

logger = logging.getLogger("graphile_worker.embedded")


class Keeper:
    """Watches over the server in a data folder on behalf of this process and its forks."""

    def __init__(self, data_dir: Path, *, remove: bool = False) -> None:
        self._arguments = (os.fspath(data_dir), "remove" if remove else "stop")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start to watch."""
        package_root = os.fspath(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
        program = [sys.executable, "-P", "-c", PROGRAM, *self._arguments]
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT, "graphile-worker-keeper", *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a reader of our output must not wait for the keeper
                bufsize=0,
                env={**os.environ, "PYTHONPATH": path},
                cwd="/",
                start_new_session=True,  # Ctrl-C and a closed terminal must not end it
            )
        except OSError as error:
            logger.debug("no process can watch over the server in %s: %s", self._arguments[0], error)

    def dismiss(self) -> None:
        """This process is done with the server."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with suppress(BrokenPipeError):  # killed
            process.stdin.write(b"\n")
            process.stdin.close()
        try:
            process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def forget(self) -> None:
        """Leave the rest to the keeper; in a forked process, to the one that started it."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.returncode = 0  # it outlives us, or is not our child; prevents a warning of Popen
