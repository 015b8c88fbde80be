"""Ends a call that runs elsewhere, step by step: it is asked, then interrupted, then killed.

`follow_worker` passes the worker's request to end on to tasks that run elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import ConfigError, JobInterruptedError
from ..tasks.executables.process_group import SHUTDOWN_LIMIT
from .call import TaskCall

KILL_LIMIT = 5.0  # seconds to wait after the last step


def checked_seconds(name: str, value: float) -> float:
    """The setting, if it is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigError(f"{name}: expected a number of seconds, got {value!r}")
    return float(value)


async def end_call(
    call: TaskCall,
    ended: asyncio.Future[Any],
    kill_after: float,
    *,
    ask: Callable[[str], object],
    interrupt: Callable[[], object],
    kill: Callable[[], object],
) -> None:
    """Returns if the call has answered; raises CancelledError if it had to be killed.

    `ended` is done when the call has answered, or cannot any more. `kill_after`: seconds between the first
    and the last step, fewer if the cause of the end allows only that. `ask` gets the reason.
    """
    signal = call.helpers.abort_signal
    limit = min(kill_after, SHUTDOWN_LIMIT if signal._grace is None else signal._grace)
    try:
        ask(signal.reason or "the worker is stopping")
        await asyncio.wait((ended,), timeout=limit / 2)
        if not ended.done():
            interrupt()
            await asyncio.wait((ended,), timeout=limit / 2)
    finally:  # also when it is cancelled once more
        if not ended.done():
            kill()
            await _wait_uninterrupted(ended)
            raise asyncio.CancelledError


def value_after_end(value: Callable[[], Any]) -> Any:
    """What a call returned or raised although it was asked to end; CancelledError if it was interrupted."""
    try:
        return value()
    except JobInterruptedError:
        raise asyncio.CancelledError from None


async def _wait_uninterrupted(future: asyncio.Future[Any]) -> None:
    """Wait for the end of what was killed; cancelling this does not end the wait."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + KILL_LIMIT
    while not future.done() and (left := deadline - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,), timeout=left)


def follow_worker(call: TaskCall, abort: Callable[[str], object]) -> Callable[[], None]:
    """When the worker of this call asks its tasks to end, call `abort` in this event loop, with the reason.

    Returns a function that ends this.
    """
    worker = call.helpers._services.abort_signal
    loop = asyncio.get_running_loop()

    def pass_on() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(abort, worker.reason)

    return worker.on_set(pass_on)
