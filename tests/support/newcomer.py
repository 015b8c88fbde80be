"""Somebody who has Python and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.command_line import clean_environment
from support.worker_process import WorkerProcess


class Newcomer:
    """An empty project folder, an empty virtual environment, and what is typed there."""

    def __init__(self, home: Path, python: str = sys.executable) -> None:
        self.project = home / "project"
        self.project.mkdir()
        self.environment = home / "environment"
        # Without pip inside, because ours installs into it and making a second one takes seconds.
        self._succeed(python, "-m", "venv", "--without-pip", self.environment)

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.environment / "bin" / "graphile-worker"

    def install(self, *what: object) -> subprocess.CompletedProcess[str]:
        return self._run(*(sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", *what))

    def type(self, *command: object, **environment: str) -> str:
        """What a command prints that must succeed."""
        return self._succeed(*command, **environment)

    def start(self, *command: object) -> WorkerProcess:
        return WorkerProcess(
            [str(part) for part in command], folder=self.project, environment=self._variables()
        )

    def psql(self) -> Path:
        """The psql that came with the embedded server."""
        script = "from graphile_worker.database.embedded import find_binaries; print(find_binaries().folder)"
        return Path(self._succeed(self.python, "-c", script).strip()) / "psql"

    def _succeed(self, *command: object, **environment: str) -> str:
        done = self._run(*command, **environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.project,
            env=self._variables(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def _variables(self, **more: str) -> dict[str, str]:
        kept = clean_environment(**more)
        return {name: value for name, value in kept.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@contextmanager
def newcomer_with(python: str = sys.executable) -> Iterator[Newcomer]:
    """One who has this Python."""
    home = Path(tempfile.mkdtemp(prefix="graphile-worker-first-"))
    home.chmod(0o711)  # root's server runs as another user, who must get through
    try:
        yield Newcomer(home, python)
    finally:
        shutil.rmtree(home, ignore_errors=True)
