"""What a pool repeats at fixed intervals. Both loops run until they are cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..clock import Clock

REFRESH_TASKS = 60.0  # seconds; another process may have deleted a task's row and added it again


async def poll(fetch: Callable[[], None], clock: Clock, interval: float) -> None:
    """Fetch jobs whose notification was missed, or whose time has come."""
    while True:
        await clock.sleep(interval)
        fetch()


async def refresh_tasks(
    register: Callable[[], Awaitable[None]], clock: Clock, on_error: Callable[[BaseException], None]
) -> None:
    """Keep the task ids up to date."""
    while True:
        await clock.sleep(REFRESH_TASKS)
        try:
            await register()
        except Exception as error:
            on_error(error)
