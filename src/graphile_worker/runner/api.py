"""The two doors: `run` for a worker that stays, `run_once` for what can run now."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..awaitable import AwaitableContext
from ..clock import Clock
from ..db.connection import AnyConnection, AnyPool
from ..hooks import Events, Hooks, Plugin
from ..options import WorkerOptions
from .arguments import Arguments

if TYPE_CHECKING:
    from ..cron import ParsedCronItem
    from ..tasks.registry import TaskList
    from ..worker.fetcher import FlagSource
    from .runner import Runner


def run(
    *,
    pg_pool: AnyPool | None = None,
    task_list: TaskList | None = None,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    forbidden_flags: FlagSource = None,
    events: Events | None = None,
    hooks: Hooks | None = None,
    plugins: Iterable[Plugin] = (),
    extensions: Iterable[object] | Mapping[type[Any], object] = (),
    logger: logging.Logger | None = None,
    clock: Clock | None = None,
    options: WorkerOptions | None = None,
    **values: Any,
) -> AwaitableContext[Runner]:
    """A worker that runs until it is stopped: `async with run(…) as runner: await runner.wait()`.

    `values` are options by the names of `WorkerOptions`; what is not given comes from `options` if there is
    such an object, else from the environment and the configuration file. Entering installs or upgrades the
    schema, loads the tasks, and starts; leaving stops gracefully. `await run(…)` gives the Runner and leaves
    stopping to the caller.
    """
    given = Arguments(
        pg_pool, task_list, crontab, parsed_cron_items, forbidden_flags, events, hooks, plugins, extensions,
        logger, clock, options, values,
    )  # fmt: skip

    async def open_() -> Runner:
        from .runner import Runner

        runner = Runner(await given.parts(), once=False)
        await runner.start()
        return runner

    return AwaitableContext(open_, _close)


async def run_once(
    *,
    pg_pool: AnyPool | AnyConnection | None = None,
    task_list: TaskList | None = None,
    crontab: str | None = None,
    parsed_cron_items: Sequence[ParsedCronItem] | None = None,
    forbidden_flags: FlagSource = None,
    events: Events | None = None,
    hooks: Hooks | None = None,
    plugins: Iterable[Plugin] = (),
    extensions: Iterable[object] | Mapping[type[Any], object] = (),
    logger: logging.Logger | None = None,
    clock: Clock | None = None,
    options: WorkerOptions | None = None,
    **values: Any,
) -> None:
    """Run every job that can run now, named queues to their end, and return; recurring jobs are not added.

    Jobs that fail are no error; an unreachable database is. `pg_pool` may be a single connection: everything
    happens there, in its transaction if it is in one.
    """
    given = Arguments(
        pg_pool, task_list, crontab, parsed_cron_items, forbidden_flags, events, hooks, plugins, extensions,
        logger, clock, options, values, once=True,
    )  # fmt: skip
    parts = await given.parts_if_any_job_waits()
    if parts is None:
        return
    from .runner import Runner  # with all of a worker; half of the time of a run that finds nothing

    runner = Runner(parts, once=True)
    await runner.start()
    try:
        await runner.wait()
    except asyncio.CancelledError:
        await runner.kill("the run was cancelled")
        raise
    if runner.signal is not None:  # the handlers from before are back; what they make of it is up to them
        signal.raise_signal(runner.signal)


def end_by_signal(number: int) -> None:
    """End the process as the signal would have done, so that whoever started it sees why.

    A handler that the program had installed before is called instead; if it returns, this does too.
    """
    if signal.getsignal(number) in (signal.SIG_IGN, signal.default_int_handler, None):
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


async def _close(runner: Runner) -> None:
    if not runner.is_stopped:
        await runner.stop()
    else:
        await runner.wait()
