"""Runs several commands together, with their names in front of the lines that they print."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

GRACE = 10.0  # seconds for a process to end after SIGTERM
LONGEST_LINE = 1 << 20


def stop_on_signals() -> asyncio.Event:
    """An event that is set by Ctrl-C, or when a supervisor stops this process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def running(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], folder: Path
) -> AsyncIterator[list[Process]]:
    """Start the commands, and stop them at the end of `async with`."""
    processes: list[Process] = []
    try:
        for name, command in commands.items():
            processes.append(await Process.start(name, command, environment, folder))
        yield processes
    finally:
        await asyncio.gather(*(process.stop() for process in processes))


async def first_to_end(processes: Sequence[Process], stop: asyncio.Event) -> Process | None:
    """Wait until a process ends, or until `stop` is set."""
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    waits += [asyncio.create_task(process.wait()) for process in processes]
    _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return None if stop.is_set() else next(process for process in processes if process.status is not None)


class Process:
    """One command, in a process group of its own: Ctrl-C reaches only its parent, which then stops it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._output = asyncio.create_task(self._print_lines())

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Process:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LONGEST_LINE,
            process_group=0,
        )
        return cls(name, process)

    @property
    def status(self) -> int | None:
        """The exit status; None while it is running."""
        return self._process.returncode

    async def wait(self) -> None:
        await self._process.wait()

    async def stop(self) -> None:
        """End the process gracefully; kill it, and what it may have left behind, if it takes too long."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), GRACE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._output

    async def _print_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with suppress(OSError):  # the terminal may have been closed
                print(f"{self.name:6} | {line.decode(errors='replace').rstrip()}", flush=True)
