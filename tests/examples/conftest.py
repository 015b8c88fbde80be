"""An example in its own folder, started with the commands of its README and stopped at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from docs.blocks import ROOT, blocks_of
from graphile_worker.database.embedded import find_binaries
from graphile_worker.errors import EmbeddedPostgresError
from support.command_line import clean_environment
from support.ports import unused_port
from support.programs import needed_by

PATIENCE = 60
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "archive")  # what running it there has left behind


class Example:
    """One example; `run` and `start` take the next command block of its README."""

    def __init__(self, name: str, folder: Path, database_url: str) -> None:
        self.folder = shutil.copytree(ROOT / "examples" / name, folder / name, ignore=LEFT_OUT)
        self.blocks = [
            block.text for block in blocks_of(self.folder / "README.md") if block.language == "bash"
        ]
        self.port = unused_port()
        self.environment = clean_environment(
            DATABASE_URL=database_url, PATH=_path(), PORT=str(self.port), PYTHONUNBUFFERED="1"
        )
        self._next = 0
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def run(self, *, timeout: float = PATIENCE) -> str:
        """Run the next block to its end and return its output."""
        done = subprocess.run(
            self._command(),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *, again: bool = False) -> Path:
        """Start the next block (or the last one again) and return the file with its output."""
        if again:
            self._next -= 1
        log = self.folder.parent / f"output-{len(self._started)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append((process, log))
        return log

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the process that was started last, as a supervisor would; its exit status."""
        process, _ = self._started[-1]
        if process.poll() is None:
            os.killpg(process.pid, number)
        return self.wait()

    def wait(self) -> int:
        """Wait until the process that was started last has ended; its exit status."""
        return self._started[-1][0].wait(PATIENCE)

    def processes(self) -> dict[int, str]:
        """What it has started and is still running; only Linux can tell."""
        mark = f"PORT={self.port}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    @property
    def is_done(self) -> bool:
        """Whether every command of the README was run."""
        return self._next == len(self.blocks)

    def close(self) -> None:
        for process, _ in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process, _ in self._started:
            try:
                process.wait(10)  # timing: after that it is killed
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _command(self) -> list[str]:
        block = self.blocks[self._next]
        self._next += 1
        return ["bash", "-e", "-u", "-o", "pipefail", "-c", block]


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path, empty_database_url: str) -> Iterator[Example]:
    """The example with the name of the test module."""
    name = request.module.__name__.rpartition("test_")[2]
    running = Example(name, tmp_path, empty_database_url)
    needed_by(running.blocks, running.environment["PATH"])
    try:
        yield running
    finally:
        running.close()


def _path() -> str:
    """Our commands first, and psql of the embedded server last, for machines without one."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    with suppress(EmbeddedPostgresError):
        folders.append(str(find_binaries().folder))
    return os.pathsep.join(folders)
