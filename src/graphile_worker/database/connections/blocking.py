"""Runs our coroutines without an event loop, on connections of blocking libraries."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...values.clock import SystemClock

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, because all it awaits is of that kind, too.

    No event loop is touched, so this works in threads, in greenlets and while a loop is running.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waited for an event loop, which a blocking connection does not have")


class BlockingClock(SystemClock):
    """The machine's clock for such coroutines."""

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 — there is no event loop
