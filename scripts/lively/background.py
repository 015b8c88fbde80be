"""An event loop in a thread, for code that drives a browser and cannot wait for coroutines itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")
PATIENCE = 240.0  # seconds for one call; only a failure ever takes so long


class Background:
    """Runs coroutines in its own thread. Servers and workers started there go on between calls."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._end_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a coroutine from another thread; its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()
