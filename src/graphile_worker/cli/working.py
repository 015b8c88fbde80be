"""Runs a worker in this process: the event loop, the runner, and what a closed output does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..observability.log_format import PipeHandler
from ..runner import run, run_once


def run_worker(options: dict[str, Any], handler: PipeHandler, *, once: bool) -> int:
    """Run until there is nothing left to do (`once`) or until stopped; an error of the worker is raised."""
    with asyncio.Runner(loop_factory=_fast_loop()) as loop:
        loop.run(run_once(**options) if once else _until_stopped(options, handler))
    return 0


async def _until_stopped(options: dict[str, Any], handler: PipeHandler) -> None:
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    handler.on_broken_pipe = lambda _: loop.call_soon_threadsafe(closed.set)
    async with run(**options) as runner:
        waiting = asyncio.ensure_future(runner.wait())
        nobody_reads = asyncio.ensure_future(closed.wait())
        await asyncio.wait({waiting, nobody_reads}, return_when=asyncio.FIRST_COMPLETED)
        nobody_reads.cancel()
        if not waiting.done():
            await runner.stop()
        await waiting


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
