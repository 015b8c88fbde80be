"""A project of a user with a test suite of its own, and a run of it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cli.command_line import clean_environment


class Project:
    """A folder with files; `run` starts pytest there as a user would."""

    def __init__(self, folder: Path, server_url: str) -> None:
        self.folder = folder
        self.server_url = server_url

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *arguments: str, embedded: bool = False, **environment: str) -> str:
        """What pytest prints; `embedded` leaves the server to the plugin."""
        if not embedded:
            environment.setdefault("GRAPHILE_WORKER_TEST_DATABASE_URL", self.server_url)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=self.folder,
            env=clean_environment(PYTHONPATH=os.fspath(self.folder), **environment),
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.stdout + done.stderr
