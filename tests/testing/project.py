"""A user's project with its own test suite, which runs in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import graphile_worker
from support.command_line import clean_environment

SOURCE = Path(graphile_worker.__file__).parents[1]
"""The package under test, which need not be the one that is installed."""
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]


class Project:
    """A directory with files; `run` starts pytest in it as a user would."""

    def __init__(self, folder: Path, server_url: str) -> None:
        self.folder = folder
        self.server_url = server_url

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *arguments: str, embedded: bool = False, **environment: str) -> str:
        """Run pytest and return its output; with `embedded` the plugin starts the server."""
        if not embedded:
            environment.setdefault("GRAPHILE_WORKER_TEST_DATABASE_URL", self.server_url)
        done = subprocess.run(
            [*PYTEST, *arguments],
            cwd=self.folder,
            env=self._environment(environment),
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.stdout + done.stderr

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return clean_environment(PYTHONPATH=f"{self.folder}{os.pathsep}{SOURCE}", **more)

    @contextmanager
    def start(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """A run in the background, with the embedded server; killed at the end if it still runs."""
        process = subprocess.Popen(
            [*PYTEST, *arguments],
            cwd=self.folder,
            env=self._environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()
