"""Passes the worker's request to end on to tasks that run elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .call import TaskCall


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
