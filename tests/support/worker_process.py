"""A worker as a real process: its command line, its output and its exit status."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from support.command_line import clean_environment
from support.working import PATIENCE, Jobs, until

TESTS = Path(__file__).parent.parent
TASKS = TESTS / "acceptance" / "tasks_to_stop.py"

# The command with shorter times; by `-c`, because these times are not options.
IMPATIENT = """
import sys
from graphile_worker.worker import shutdown
from graphile_worker.runner import signals
signals.SignalHandling.ignore_for = {ignore_for}
shutdown.FORCED_WAIT = {forced_wait}
shutdown.LAST_WRITE = {last_write}
from graphile_worker.cli.main import main
main(sys.argv[1:])
"""


class WorkerProcess:
    """A process whose output is read continuously, so that it never blocks on a full pipe."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: dict[str, str],
        new_session: bool = False,
    ) -> None:
        """With `new_session` it has no controlling terminal, as under a supervisor."""
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._open_streams = 2
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=new_session,
        )
        self._no_more, self._stop_reading = socket.socketpair()
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """The output of both streams so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, text: str, *, times: int = 1) -> WorkerProcess:
        """Wait until `times` lines contain the text."""

        def is_said() -> bool:
            return sum(text in line for line in self._lines) >= times

        with self._changed:
            self._changed.wait_for(lambda: is_said() or not self._open_streams, PATIENCE)
            assert is_said(), f"{text!r} was not said {times} times:\n{''.join(self._lines)}"
        return self

    def says(self, pattern: re.Pattern[str], *, start: int = 0) -> bool:
        """Wait until the output from `start` on has the pattern; whether it has."""

        def is_said() -> bool:
            return pattern.search("".join(self._lines)[start:]) is not None

        with self._changed:
            self._changed.wait_for(lambda: is_said() or not self._open_streams, PATIENCE)
            return is_said()

    def ready(self) -> WorkerProcess:
        return self.wait_for("ready: graphile-worker")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end; the exit status as a shell shows it."""
        try:
            status = self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process does not end:\n{self.output}") from None
        for reader in self._readers:
            reader.join(PATIENCE)
        return 128 - status if status < 0 else status

    def close_output(self) -> None:
        """Close the reading end, as `| head` does; from here on no write of the process succeeds."""
        self._stop_reading.send(b"x")
        for reader in self._readers:
            reader.join(PATIENCE)
            assert not reader.is_alive()

    def was_killed_by(self) -> signal.Signals | None:
        """The signal that ended the process, if one did."""
        code = self.process.returncode
        return signal.Signals(-code) if code is not None and code < 0 else None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        self._no_more.close()
        self._stop_reading.close()

    def _read(self, stream: IO[bytes]) -> None:
        # Never blocked in a read, which would keep the closed end open for one more write.
        unfinished = b""
        ready = select.poll()
        ready.register(self._no_more, select.POLLIN)
        ready.register(stream, select.POLLIN)
        with stream:
            while self._no_more.fileno() not in dict(ready.poll()):
                chunk = os.read(stream.fileno(), 1 << 16)
                if not chunk:
                    break
                *lines, unfinished = (unfinished + chunk).split(b"\n")
                self._add(line + b"\n" for line in lines)
        self._add([unfinished] if unfinished else [])
        with self._changed:
            self._open_streams -= 1
            self._changed.notify_all()

    def _add(self, lines: Iterable[bytes]) -> None:
        with self._changed:
            self._lines += (line.decode(errors="replace") for line in lines)
            self._changed.notify_all()


def program(module: str, *arguments: object, folder: Path, **environment: str) -> WorkerProcess:
    """Start a module of the tests as a program, e.g. `worker.queue_process`; `close` it in the end."""
    return WorkerProcess(
        [sys.executable, "-m", module, *map(str, arguments)],
        folder=folder,
        environment=clean_environment(PYTHONPATH=str(TESTS), **environment),
    )


Start = Callable[..., WorkerProcess]
"""`start("-j", 2, url=…, tasks=…)`"""


@contextmanager
def starting(folder: Path) -> Iterator[Start]:
    """A function that starts workers in this folder; those left at the end are killed."""
    started: list[WorkerProcess] = []

    def start(
        *arguments: object,
        url: str,
        tasks: Path | None = TASKS,
        ignore_for: float = 5.0,
        forced_wait: float = 5.0,
        last_write: float = 10.0,
        **environment: str,
    ) -> WorkerProcess:
        if (ignore_for, forced_wait, last_write) == (5.0, 5.0, 10.0):
            command = [sys.executable, "-m", "graphile_worker"]
        else:
            script = IMPATIENT.format(ignore_for=ignore_for, forced_wait=forced_wait, last_write=last_write)
            command = [sys.executable, "-c", script]
        if tasks is not None:
            command += ["--tasks", str(tasks)]
        process = WorkerProcess(
            [*command, *map(str, arguments)],
            folder=folder,
            environment=clean_environment(**{"DATABASE_URL": url, "FOLDER": str(folder)} | environment),
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.close()


def let_go(folder: Path) -> None:
    """End the jobs `wait_for_test` of this folder's workers."""
    (folder / "go_on").touch()


def recorded(folder: Path) -> list[int]:
    """The ids of the jobs that ran to their end, from the test's own file."""
    path = folder / "done"
    if not path.exists():
        return []
    return [int(line) for line in path.read_text().split()]


async def until_disconnected(jobs: Jobs) -> None:
    """Wait until no worker is connected; the server notices the end of a process with a delay."""

    async def is_empty() -> bool:
        return await jobs.connection.fetchval(
            "select count(*) = 0 from pg_stat_activity "
            "where datname = current_database() and application_name = 'graphile_worker'"
        )

    await until(is_empty)
