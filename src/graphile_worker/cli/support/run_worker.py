"""Runs a worker in this process: the event loop, the runner, what a closed output does to it, and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import TasksLeftBehindError
from ...hooks import Plugin
from ...observability.log_format import PipeHandler
from ...options import WorkerOptions
from ...runner import end_by_signal, run, run_once
from ...worker.signals import output_closed, stop_workers
from .client import collect_garbage

if TYPE_CHECKING:
    from ...runner.runner import Runner

LEFTOVERS_WITHIN = 1.0  # seconds for what tasks have started and left behind to be cancelled

logger = logging.getLogger("graphile_worker")


def run_worker(
    options: WorkerOptions, handler: PipeHandler, *, once: bool, plugins: Sequence[Plugin] = ()
) -> int:
    """Run until there is nothing left to do (`once`) or until stopped; an error of the worker is raised."""
    collect_garbage()
    loop = asyncio.Runner(loop_factory=_fast_loop())
    stopped_by: int | None = None
    status = 0
    try:
        stopped_by = _drive(loop, _run(options, handler, plugins, once=once))
    except KeyboardInterrupt:  # before there was a worker to stop, passed on by `run_once`, or a task's own
        stopped_by = signal.SIGINT
    except _TaskExitError as error:
        status = error.status
    finally:
        # Closing the loop waits for every task and thread; one that does not end must not keep the process.
        if loop.run(_end_leftovers()) and stopped_by is None:
            loop.close()
    if stopped_by is None:
        return status
    end_by_signal(stopped_by)
    return 128 + stopped_by


class _TaskExitError(Exception):
    """A task called `sys.exit` where only the event loop could catch it; the worker has been stopped."""

    def __init__(self, code: object) -> None:
        super().__init__(f"sys.exit({code!r})")
        # The worker was not asked to end, so the status tells that it did.
        self.status = code if isinstance(code, int) and 0 < code < 256 else 1


def _drive(loop: asyncio.Runner, work: Coroutine[Any, Any, int | None]) -> int | None:
    """Run `work` to its end on the loop.

    SystemExit and KeyboardInterrupt in an asyncio task that a task of ours has started come out of the event
    loop, which stands still then with everything on it. It is started again to stop the worker gracefully.
    """
    started: list[asyncio.Task[Any]] = []

    async def main() -> int | None:
        started.extend(filter(None, (asyncio.current_task(),)))
        return await work

    try:
        return loop.run(main())
    except (SystemExit, KeyboardInterrupt) as error:
        if not started or started[0].done():  # it is ours, not a task's
            raise
        exit_ = error
    message = f"a task has raised {type(exit_).__name__} in an asyncio task that it started"
    logger.error("%s; stopping the worker", message, exc_info=exit_)
    while not started[0].done():
        with suppress(SystemExit, KeyboardInterrupt):  # the next one that does the same
            loop.run(_stop(started[0], message))
    if not started[0].cancelled() and (failure := started[0].exception()) is not None:
        raise failure
    if isinstance(exit_, KeyboardInterrupt):
        raise exit_
    raise _TaskExitError(exit_.code)


async def _stop(main: asyncio.Task[Any], message: str) -> None:
    if not stop_workers(message):  # there is none that could be stopped, or it does not handle signals
        main.cancel()
    await asyncio.wait((main,))


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
