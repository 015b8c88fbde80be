"""Starts worker processes for a benchmark and talks with them in lines of JSON (see `worker_main`)."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import IO, Any

import msgspec

from ...errors import GraphileWorkerError
from ...options import WorkerOptions

END_WITHIN = 5.0  # seconds for a process to end after its input was closed


class WorkerProcess:
    """One process that carries out orders."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        """Of the process, to look at what it uses."""
        return self._process.pid

    async def ready(self) -> None:
        """Until it could begin: it has loaded its code, and opened what it has to open."""
        await self.hear()

    async def begin(self) -> None:
        """Let it start with its work."""
        await self.tell("begin")

    async def tell(self, value: Any) -> None:
        """Write one line to it."""
        if self._process.stdin is not None:
            # A process that has ended says why when it is heard.
            with suppress(ConnectionError):
                self._process.stdin.write(msgspec.json.encode(value) + b"\n")
                await self._process.stdin.drain()

    async def hear(self) -> Any:
        """Its next line; an error if it ended instead."""
        line = await self._process.stdout.readline() if self._process.stdout is not None else b""
        if line:
            return msgspec.json.decode(line)
        status = await self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        reason = said.splitlines()[-1] if said else f"status {status}"
        raise GraphileWorkerError(f"a worker process of the benchmark ended early: {reason}")

    async def end(self) -> None:
        """Close its input and see that it ends."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_WITHIN):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def worker_process(duty: str, options: WorkerOptions, **orders: Any) -> AsyncIterator[WorkerProcess]:
    """A process that gets ready; at the end of the block it is ended."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"{__package__}.worker_main",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we end them
        )
        worker = WorkerProcess(process, errors)
        try:
            await worker.tell({"duty": duty, "options": msgspec.to_builtins(options), **orders})
            yield worker
        finally:
            await worker.end()


async def drain(
    options: WorkerOptions, *, task: str = "coroutine", processes: int = 1
) -> list[dict[str, Any]]:
    """Let so many worker processes run everything that is ready; what each of them reports."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(worker_process("drain", options, task=task))
            for _ in range(processes)
        ]
        for step in (WorkerProcess.ready, WorkerProcess.begin, WorkerProcess.hear):
            results = await asyncio.gather(*(step(worker) for worker in workers))
        return list(results)


async def run_until(
    options: WorkerOptions, count: int, *, task: str = "coroutine", processes: int = 1
) -> list[dict[str, Any]]:
    """Let so many worker processes that stay run so many jobs between them; what each of them reports."""
    executed = [0] * processes
    done = asyncio.Event()

    async def follow(number: int, worker: WorkerProcess) -> dict[str, Any]:
        while isinstance(heard := await worker.hear(), int):
            executed[number] = heard
            if sum(executed) >= count:
                done.set()
        return dict(heard)

    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(worker_process("stay", options, task=task))
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
                await worker.tell("stop")
            return await results
        finally:
            waiting.cancel()
            results.cancel()
