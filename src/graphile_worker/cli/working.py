"""Runs a worker in this process: the event loop, the runner, and what a closed output does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..observability.log_format import PipeHandler
from ..runner import end_by_signal, run, run_once
from ..worker.shutdown import signal_handling
from .session import collect_garbage


def run_worker(options: dict[str, Any], handler: PipeHandler, *, once: bool) -> int:
    """Run until there is nothing left to do (`once`) or until stopped; an error of the worker is raised."""
    collect_garbage()
    with asyncio.Runner(loop_factory=_fast_loop()) as loop:
        stopped_by = loop.run(_run(options, handler, once=once))
    if stopped_by is not None:
        end_by_signal(stopped_by)
    return 0


async def _run(options: dict[str, Any], handler: PipeHandler, *, once: bool) -> int | None:
    """Run a worker; returns the signal that stopped it, if one did."""
    signals = signal_handling()
    closed: list[str] = []

    def nobody_reads(stream: str) -> None:
        # Whoever wanted to see the log is gone, as when `| head` ends: that stops the worker like a signal.
        closed.append(stream)
        signals.output_closed()

    handler.on_broken_pipe = nobody_reads
    if once:
        await run_once(**options)
        return None
    async with run(**options) as runner:
        if closed:  # already before there was a worker that could be stopped
            signals.output_closed()
        await runner.wait()
    return runner.signal


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
