"""Ends what a test run leaves behind, however the run ends: processes, servers, temporary folders.

Run as a script it is the guard: it waits until its standard input is closed, which the kernel does for a test
run that was killed, and then cleans up. Everything that the run starts inherits a marker in its environment,
by which the guard finds it. Only Linux shows the environment of other processes; elsewhere the guard removes
the folder and the servers end by the means of `graphile_worker.testing`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

MARKER = "TEST_RUN_OF_GRAPHILE_WORKER"
PREFIX = "gwt-"  # short: paths of sockets are limited to about a hundred bytes
CLEANED_WITHIN = 60.0  # seconds
SERVERS_END_WITHIN = 20.0  # seconds until a server that ignores SIGQUIT is killed


class RunGuard:
    """The test run's side: the folder for everything temporary, and the guard process."""

    def __init__(self) -> None:
        before = tempfile.gettempdir()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_root()))
        self.folder.chmod(0o711)  # root's servers run as another user, who must get through
        environment = {name: value for name, value in os.environ.items() if name != MARKER}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self.folder.name, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,  # Ctrl-C and a closed terminal are for the tests
        )
        self._variables = {
            MARKER: self.folder.name,
            "TMPDIR": str(self.folder),
            "PYTEST_DEBUG_TEMPROOT": os.environ.get("PYTEST_DEBUG_TEMPROOT", before),  # keeps `tmp_path`
        }
        self._before = {name: os.environ.get(name) for name in self._variables}
        os.environ.update(self._variables)
        tempfile.tempdir = None

    def close(self) -> None:
        """The run is over: let the guard clean up and wait for it."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        tempfile.tempdir = None
        _end_multiprocessing()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=2 * CLEANED_WITHIN)


def _end_multiprocessing() -> None:
    """Its folder is in the one of the run, and would be missing when this process exits and removes it."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_finalizers(-100)  # the priority of the folder: after everything else


def _root() -> str:
    """Where the folder is made: beside that of an outer run, because paths of sockets must be short."""
    from .memory import temporary_root  # not above: the guard has only this file

    chosen = os.environ.get("TMPDIR")
    if not chosen:
        return temporary_root()
    return os.path.dirname(chosen) if os.path.basename(chosen) == os.environ.get(MARKER) else chosen


def marked_processes(marker: str) -> dict[int, str]:
    """The processes with this marker, and the names of their programs; zombies do not count."""
    wanted = f"{MARKER}={marker}".encode()
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with suppress(OSError):
            if name.isdecimal() and wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found[int(name)] = Path(f"/proc/{name}/comm").read_text().strip()
    return found


def end_processes(marker: str) -> None:
    """Kill them all. A server gets SIGQUIT first, because a killed one leaves shared memory behind."""
    began = time.monotonic()
    while (left := marked_processes(marker)) and time.monotonic() - began < CLEANED_WITHIN:
        may_quit = time.monotonic() - began < SERVERS_END_WITHIN
        for pid, program in left.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if program == "postgres" and may_quit else signal.SIGKILL)
        time.sleep(0.05)


def remove(folder: Path) -> None:
    """Again and again for a while: processes that are just ending may still write."""
    deadline = time.monotonic() + CLEANED_WITHIN
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def main(marker: str, folder: str) -> None:
    sys.stdin.buffer.read()
    end_processes(marker)
    remove(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
