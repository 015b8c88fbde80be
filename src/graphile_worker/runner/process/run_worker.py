"""Runs a worker in this process: event loop, runner, closed output, and how the process ends."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import LeakedTasksError
from ...hooks import Plugin
from ...logging.configure import PipeHandler
from .. import end_by_signal, run, run_once
from ..build import WorkerBuilder
from ..signals import SignalHandling, output_closed, stop_workers
from .signals import Reload, collect_garbage, flush_output

if TYPE_CHECKING:
    from ..runner import Runner

CANCEL_WITHIN = 1.0  # seconds for asyncio tasks that jobs left behind
WAIT_FOR_DATABASE = 5.0  # seconds, unless the options say it
EXIT_MARGIN = 3.0  # seconds after the grace until a process whose event loop is blocked is ended

logger = logging.getLogger("graphile_worker")


class OpenPlugin(Plugin, Protocol):
    """A plugin that serves something while the process runs, also before and after the worker does."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


def run_worker(
    arguments: dict[str, Any],
    handler: PipeHandler | None,
    *,
    once: bool,
    reload: Reload,
    servers: Sequence[OpenPlugin] = (),
) -> int:
    """Run until stopped, or until no job is ready (`once`); returns the exit status.

    The arguments are those of `run` or `run_once`; `servers` are some of the plugins among them.
    """
    collect_garbage()
    SignalHandling.exit_margin = EXIT_MARGIN
    WorkerBuilder.usual_wait = WAIT_FOR_DATABASE
    loop = asyncio.Runner(loop_factory=fast_loop())
    stopped_by: int | None = None
    status = 0
    try:
        stopped_by = _drive(loop, _run(arguments, handler, reload, servers, once=once))
    except KeyboardInterrupt:  # before the worker had started, re-raised by `run_once`, or raised by a task
        stopped_by = signal.SIGINT
    except _TaskExitError as error:
        status = error.status
    finally:
        # Closing the loop waits for every task and thread; one that hangs must not keep the process alive.
        if loop.run(_cancel_leftovers()) and stopped_by is None:
            loop.close()
    if stopped_by is None:
        return status
    if stopped_by == signal.SIGHUP and reload.is_enabled:
        return reload.start_again()
    if handler is not None:
        handler.flush()
    flush_output()
    end_by_signal(stopped_by)
    return 128 + stopped_by


class _TaskExitError(Exception):
    """A task called `sys.exit` where only the event loop could catch it; the worker has stopped."""

    def __init__(self, code: object) -> None:
        super().__init__(f"sys.exit({code!r})")
        # An unrequested stop, so the status is never 0.
        self.status = code if isinstance(code, int) and 0 < code < 256 else 1


def _drive(loop: asyncio.Runner, work: Coroutine[Any, Any, int | None]) -> int | None:
    """Run `work` on the loop.

    SystemExit and KeyboardInterrupt in an asyncio task that a job has started propagate out of the event
    loop and halt it. It is started again to shut the worker down gracefully.
    """
    started: list[asyncio.Task[Any]] = []

    async def main() -> int | None:
        started.extend(filter(None, (asyncio.current_task(),)))
        return await work

    try:
        return loop.run(main())
    except (SystemExit, KeyboardInterrupt) as error:
        if not started or started[0].done():  # from our own code, not from a job
            raise
        exit_ = error
    message = f"a task raised {type(exit_).__name__} in an asyncio task that it started"
    logger.error("%s; stopping the worker", message, exc_info=exit_)
    while not started[0].done():
        with suppress(SystemExit, KeyboardInterrupt):  # another task may do the same
            loop.run(_stop(started[0], message))
    if not started[0].cancelled() and (failure := started[0].exception()) is not None:
        raise failure
    if isinstance(exit_, KeyboardInterrupt):
        raise exit_
    raise _TaskExitError(exit_.code)


async def _stop(main: asyncio.Task[Any], message: str) -> None:
    if not stop_workers(message):  # none is running, or it does not handle signals
        main.cancel()
    await asyncio.wait((main,))


async def _run(
    arguments: dict[str, Any],
    handler: PipeHandler | None,
    reload: Reload,
    servers: Sequence[OpenPlugin],
    *,
    once: bool,
) -> int | None:
    """Run a worker; returns the signal that stopped it, if any.

    The servers are open meanwhile: they say that the worker is starting, and that it has stopped.
    """
    closed: list[str] = []

    def stop_worker(stream: str) -> None:
        # The reader of the log is gone, as when `| head` ends: stop as for a signal.
        closed.append(stream)
        output_closed()

    if handler is not None:
        handler.on_broken_pipe = stop_worker
    if once:
        await run_once(**arguments)
        return None
    runner: Runner | None = None
    try:
        async with AsyncExitStack() as stack:
            for server in servers:
                await server.open()
                stack.push_async_callback(server.close)
            runner = await stack.enter_async_context(run(**arguments))
            if closed:  # before the worker could be stopped
                output_closed()
            if reload.is_wanted:
                signal.raise_signal(signal.SIGHUP)
            await runner.wait()
    except LeakedTasksError as error:
        if runner is None or runner.signal is None:
            raise
        logger.error("%s", error)
    return runner.signal


async def _cancel_leftovers() -> bool:
    """Cancel all remaining asyncio tasks; returns whether they have ended."""
    leftovers = asyncio.all_tasks() - {asyncio.current_task()}
    for task in leftovers:
        task.cancel()
    if leftovers:
        await asyncio.wait(leftovers, timeout=CANCEL_WITHIN)
    return all(task.done() for task in leftovers)


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory of uvloop, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
