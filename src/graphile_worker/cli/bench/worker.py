"""The worker processes of `graphile-worker bench`.

Each measured worker is a process of its own, as in production, so that it does not share the event loop of
the client that adds jobs. It gets its options from standard input, because all users of the machine can see
arguments. It writes a line when it is ready, and begins when its input continues.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import click
import msgspec

from ...errors import GraphileWorkerError
from ...values.options import WorkerOptions
from .loads import LOADS, TASK, BenchLoad

ANSWER = "answer"


@asynccontextmanager
async def worker_process(duty: str, options: WorkerOptions) -> AsyncIterator[Process]:
    """A worker process; its duty is the name of a load, or `ANSWER`. It is killed at the end of the block."""
    command = (sys.executable, "-m", __name__, duty)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,  # Ctrl-C reaches us only
    )
    try:
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(msgspec.to_builtins(options)) + b"\n")
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def line_of(worker: Process) -> bytes:
    """The next line of a worker process; raises if it ends instead."""
    line = await worker.stdout.readline() if worker.stdout is not None else b""
    return line or await _last_words(worker)


async def report_of(worker: Process) -> dict[str, Any]:
    """Let it begin, and wait for its report."""
    report: dict[str, Any] = msgspec.json.decode(await _last_words(worker))
    return report


async def _last_words(worker: Process) -> bytes:
    """What it writes until it ends; raises if it fails."""
    output, errors = await worker.communicate(b"begin\n")
    if worker.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"status {worker.returncode}"
        raise GraphileWorkerError(f"a worker process of the benchmark ended early: {reason}")
    return output


async def _drain(options: WorkerOptions, load: BenchLoad) -> None:
    """Run all ready jobs; report their number, the start of the first, and the time when all is written."""
    from ...runner import run_once

    executed, first = 0, 0.0

    async def count(payload: Any) -> None:
        nonlocal executed, first
        if not executed:
            first = time.monotonic()
        executed += 1
        if load.run is not None:
            await load.run()

    click.echo("ready")
    await asyncio.to_thread(sys.stdin.readline)
    await run_once(options=options.with_values(**load.options), task_list={TASK: count})
    click.echo(msgspec.json.encode({"executed": executed, "first": first, "ended": time.monotonic()}))


async def _answer(options: WorkerOptions) -> None:
    """Run jobs and report when each of them starts, on the clock that all processes share."""
    from ...runner import run

    async def report(payload: Any) -> None:
        click.echo(time.monotonic())

    async with run(options=options, task_list={TASK: report}):
        click.echo("ready")
        await asyncio.to_thread(sys.stdin.read)  # until the benchmark ends


def work(duty: str) -> None:
    """The program of a worker process."""
    from ...runner.process.run_worker import fast_loop

    options = msgspec.json.decode(sys.stdin.readline(), type=WorkerOptions)
    logger = logging.getLogger("graphile_worker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    gc.freeze()  # as the command does before it starts work
    with asyncio.Runner(loop_factory=fast_loop()) as loop:
        loop.run(_answer(options) if duty == ANSWER else _drain(options, LOADS[duty]))


if __name__ == "__main__":
    work(sys.argv[1])
