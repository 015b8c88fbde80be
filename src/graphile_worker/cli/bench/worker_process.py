"""Starts the processes of a benchmark and exchanges JSON lines with them (see `worker_main`)."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import IO, Any

import msgspec

from ...errors import GraphileWorkerError
from ...values.options import WorkerOptions

END_WITHIN = 5.0  # seconds for a process to end after its input is closed


class BenchProcess:
    """A process that carries out orders."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        """The process id, for measuring its resources."""
        return self._process.pid

    async def ready(self) -> None:
        """Wait until it has imported its code and opened its connections."""
        await self.receive()

    async def begin(self) -> None:
        """Let it start its work."""
        await self.send("begin")

    async def send(self, value: Any) -> None:
        """Send it a line."""
        if self._process.stdin is not None:
            # If it has ended, `receive` reports why.
            with suppress(ConnectionError):
                self._process.stdin.write(msgspec.json.encode(value) + b"\n")
                await self._process.stdin.drain()

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
async def bench_process(duty: str, options: WorkerOptions, **orders: Any) -> AsyncIterator[BenchProcess]:
    """Start a process; it ends with the block."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"{__package__}.worker_main",
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


async def drain(
    options: WorkerOptions, *, task: str = "coroutine", processes: int = 1
) -> list[dict[str, Any]]:
    """Run all ready jobs in worker processes; returns the report of each."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(bench_process("drain", options, task=task))
            for _ in range(processes)
        ]
        for step in (BenchProcess.ready, BenchProcess.begin, BenchProcess.receive):
            results = await asyncio.gather(*(step(worker) for worker in workers))
        return list(results)


async def run_until(
    options: WorkerOptions, count: int, *, task: str = "coroutine", processes: int = 1
) -> list[dict[str, Any]]:
    """Run `count` jobs in worker processes that stay; returns the report of each."""
    executed = [0] * processes
    done = asyncio.Event()

    async def follow(number: int, worker: BenchProcess) -> dict[str, Any]:
        while isinstance(received := await worker.receive(), int):
            executed[number] = received
            if sum(executed) >= count:
                done.set()
        return dict(received)

    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(bench_process("stay", options, task=task))
            for _ in range(processes)
        ]
        await asyncio.gather(*(worker.ready() for worker in workers))
        for worker in workers:
            await worker.begin()
        results = asyncio.gather(*(follow(*each) for each in enumerate(workers)))
        waiting = asyncio.create_task(done.wait())
        try:
            await asyncio.wait((results, waiting), return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                await worker.send("stop")
            return await results
        finally:
            waiting.cancel()
            results.cancel()
