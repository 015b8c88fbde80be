"""`run` for a worker that stays, `run_once` to drain the queue."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Unpack

from ..config.calls import AwaitableContext
from .build import WorkerBuilder

if TYPE_CHECKING:
    from .arguments import RunArguments, RunOnceArguments
    from .runner import Runner


def run(**arguments: Unpack[RunArguments]) -> AwaitableContext[Runner]:
    """Run a worker until it is stopped: `async with run(…) as runner: await runner.wait()`.

    Takes every field of `WorkerOptions`, and the objects listed in the reference of options. What is not
    given comes from `options` if there is such an object, else from the environment and the configuration
    file. Entering installs or upgrades the schema, loads the tasks, and starts; leaving stops gracefully.
    `await run(…)` returns the Runner and leaves stopping to the caller.
    """
    builders = [WorkerBuilder(arguments)]  # now, so that the call itself raises for wrong arguments

    async def start() -> Runner:
        from .runner import Runner

        builder = builders.pop() if builders else WorkerBuilder(arguments)
        await builder.open()
        return await Runner._start(builder)

    return AwaitableContext(start, _stop)


async def run_once(**arguments: Unpack[RunOnceArguments]) -> None:
    """Drain the queue: run every job that is ready, named queues to their end, and return.

    Takes the same arguments as `run`. Recurring jobs are not added. Failed jobs are not an error; an
    unreachable database is. `pg_pool` may be a single connection: everything happens on it, in its
    transaction if it is in one.
    """
    builder = WorkerBuilder(arguments, once=True)
    if not await builder.open_if_needed():
        return
    from .runner import Runner  # imports the whole worker: half the time of a run that finds nothing

    runner = await Runner._start(builder)
    try:
        await runner.wait()
    except asyncio.CancelledError:
        await runner.kill("the run was cancelled")
        raise
    if runner.signal is not None:  # the previous handlers are back in place and decide what happens
        signal.raise_signal(runner.signal)


def end_by_signal(number: int) -> None:
    """End the process as the signal would have, so that the parent process can tell why.

    A handler that the program had installed before is called instead; if it returns, so does this.
    """
    if signal.getsignal(number) in (signal.SIG_IGN, signal.default_int_handler, None):
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


async def _stop(runner: Runner) -> None:
    if runner.is_stopping:
        await runner.wait()
    else:
        await runner.stop()
