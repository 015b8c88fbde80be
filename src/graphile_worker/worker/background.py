"""BackgroundTasks: the asyncio tasks of a pool that run until the pool ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Starts tasks and cancels those that are left at the end."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run the coroutine in a task of its own."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"graphile-worker {name}")
        self._tasks = [*(each for each in self._tasks if not each.done()), task]

    async def cancel(self) -> None:
        """Cancel every task but the caller's, and wait until they have ended."""
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
