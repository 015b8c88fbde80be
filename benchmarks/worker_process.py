"""The worker processes of these benchmarks: how they are started, and how they get orders and report.

A process reads its orders as a line of JSON from standard input: arguments, with the connection string, would
be visible to all users of the machine. It sends "ready", starts at the next line, and sends what it has to
report as lines of JSON. It exits at the end of its input, so that it cannot outlive the benchmark.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Any

import msgspec

from graphile_worker.errors import GraphileWorkerError
from graphile_worker.options import WorkerOptions
from graphile_worker.runner.process.run_worker import fast_loop

TASK = "bench"
END_WITHIN = 5.0  # seconds for a process to end after its input is closed

Orders = dict[str, Any]
Duty = Callable[[WorkerOptions, Orders], Awaitable[None]]
"""What a process does, by its options and orders."""


class BenchProcess:
    """A worker process that carries out orders."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        """The process id, for measuring its resources."""
        return self._process.pid

    async def send(self, value: Any) -> None:
        """Send it a line."""
        if self._process.stdin is not None:
            # If it has ended, `receive` reports why.
            with suppress(ConnectionError):
                self._process.stdin.write(msgspec.json.encode(value) + b"\n")
                await self._process.stdin.drain()

    async def begin(self) -> None:
        """Let it start its work, after it has said that it is ready."""
        await self.send("begin")

    async def receive(self) -> Any:
        """Wait for its next line; raises if it ends instead."""
        line = await self._process.stdout.readline() if self._process.stdout is not None else b""
        if line:
            return msgspec.json.decode(line)
        status = await self._process.wait()
        self._errors.seek(0)
        output = self._errors.read().decode(errors="replace").strip()
        reason = output.splitlines()[-1] if output else f"status {status}"
        raise GraphileWorkerError(f"a worker process of the benchmark ended early: {reason}")

    async def end(self) -> None:
        """Close its input; kill it if it does not end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_WITHIN):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def worker_process(
    duty: str, options: WorkerOptions, *, module: str, **orders: Any
) -> AsyncIterator[BenchProcess]:
    """Start a process; it ends with the block."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches us only; we end them
        )
        worker = BenchProcess(process, errors)
        try:
            await worker.send({"duty": duty, "options": msgspec.to_builtins(options), **orders})
            yield worker
        finally:
            await worker.end()


def send(value: Any) -> None:
    """Send a line to the benchmark."""
    os.write(1, msgspec.json.encode(value) + b"\n")


async def begin() -> None:
    """Say that this process is ready, and wait for the start."""
    send("ready")
    if not await asyncio.to_thread(sys.stdin.readline):
        os._exit(0)
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()


def _exit_at_end_of_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(duties: Mapping[str, Duty]) -> None:
    """Carry out the orders of the first line."""
    orders = msgspec.json.decode(sys.stdin.readline())
    options = msgspec.convert(orders["options"], WorkerOptions)
    logger = logging.getLogger("graphile_worker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    gc.freeze()  # as the command does before it starts work

    async def work() -> None:
        await duties[orders["duty"]](options, orders)

    with asyncio.Runner(loop_factory=fast_loop()) as loop:
        loop.run(work())
