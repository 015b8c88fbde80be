"""Runs a worker in this process: the event loop, the runner, what a closed output does to it, and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import TasksLeftBehindError
from ..hooks import Plugin
from ..observability.log_format import PipeHandler
from ..options import WorkerOptions
from ..runner import end_by_signal, run, run_once
from ..worker.shutdown import output_closed
from .session import collect_garbage

if TYPE_CHECKING:
    from ..runner.runner import Runner

LEFTOVERS_WITHIN = 1.0  # seconds for what tasks have started and left behind to be cancelled

logger = logging.getLogger("graphile_worker")


def run_worker(
    options: WorkerOptions, handler: PipeHandler, *, once: bool, plugins: Sequence[Plugin] = ()
) -> int:
    """Run until there is nothing left to do (`once`) or until stopped; an error of the worker is raised."""
    collect_garbage()
    loop = asyncio.Runner(loop_factory=_fast_loop())
    stopped_by: int | None = None
    try:
        stopped_by = loop.run(_run(options, handler, plugins, once=once))
    except KeyboardInterrupt:  # before there was a worker to stop, or passed on by `run_once`
        stopped_by = signal.SIGINT
    finally:
        # Closing the loop waits for every task and thread; one that does not end must not keep the process.
        if loop.run(_end_leftovers()) and stopped_by is None:
            loop.close()
    if stopped_by is None:
        return 0
    end_by_signal(stopped_by)
    return 128 + stopped_by


async def _run(
    options: WorkerOptions, handler: PipeHandler, plugins: Sequence[Plugin], *, once: bool
) -> int | None:
    """Run a worker; returns the signal that stopped it, if one did."""
    closed: list[str] = []

    def nobody_reads(stream: str) -> None:
        # Whoever wanted to see the log is gone, as when `| head` ends: that stops the worker like a signal.
        closed.append(stream)
        output_closed()

    handler.on_broken_pipe = nobody_reads
    if once:
        await run_once(options=options, plugins=plugins)
        return None
    runner: Runner | None = None
    try:
        async with run(options=options, plugins=plugins) as runner:
            if closed:  # already before there was a worker that could be stopped
                output_closed()
            await runner.wait()
    except TasksLeftBehindError as error:
        if runner is None or runner.signal is None:
            raise
        logger.error("%s", error)
    return runner.signal


async def _end_leftovers() -> bool:
    """Cancel what still runs on the loop; whether all of it has ended."""
    leftovers = asyncio.all_tasks() - {asyncio.current_task()}
    for task in leftovers:
        task.cancel()
    if leftovers:
        await asyncio.wait(leftovers, timeout=LEFTOVERS_WITHIN)
    return all(task.done() for task in leftovers)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
