"""EnteredApp: an app for the length of one run, with its lifespan entered.

The lifespan has an asyncio task of its own: task groups and timeouts in it require that the task that enters
them also leaves them, and a worker is started and stopped by different tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ..errors import LifespanError
from ..hooks.faults import as_exception, is_our_end
from ..tasks.services import Extensions
from ..values.text import duration
from .application import App, open_lifespan

LEAVE_WITHIN = 10.0  # seconds for the lifespan to end
CANCEL_WITHIN = 1.0  # seconds for a lifespan that was cancelled because it did not end

logger = logging.getLogger("graphile_worker.app")


class EnteredApp:
    """Enters the lifespan of an app and leaves it; without a lifespan it does nothing."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._entered = asyncio.Event()
        self._leaving = asyncio.Event()
        self.ended_early = asyncio.Event()
        """Set if the lifespan was cancelled before `leave`, as by a task group in it that has failed."""
        self.error: LifespanError | None = None
        """How it failed at its end."""

    async def enter(self) -> App:
        """Enter; returns the app with everything that the lifespan yielded. Raises LifespanError."""
        if self._app.lifespan is None:
            return self._app
        began = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker lifespan")
        entered = asyncio.ensure_future(self._entered.wait())
        try:
            await asyncio.wait((self._task, entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await self.leave()
            raise
        finally:
            entered.cancel()
        if self._task.done():
            task, self._task = self._task, None
            task.result()
        logger.debug("entered the lifespan of %s in %s", self._app.name, duration(time.monotonic() - began))
        return self._whole

    async def leave(self) -> None:
        """Leave, if it was entered; a failure is logged, and kept in `error`."""
        task, self._task = self._task, None
        if task is None:
            return
        self._leaving.set()
        await asyncio.wait((task,), timeout=LEAVE_WITHIN)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=CANCEL_WITHIN)
            self._fail(TimeoutError(f"it did not end within {LEAVE_WITHIN:g} seconds"))
        elif task.cancelled():
            self.error = LifespanError(
                self._app.name, "at its end", asyncio.CancelledError("it was cancelled")
            )
        elif (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = self._failure("at its end", error)
        self.error.__cause__ = error

    def _failure(self, when: str, error: BaseException) -> LifespanError:
        logger.error("the lifespan of %s failed %s", self._app.name, when, exc_info=error)
        return LifespanError(self._app.name, when, error)

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                self._whole = await _enter(self._app, stack)
                self._entered.set()
                await self._until_leaving()
        except BaseException as error:  # asyncio would let SystemExit stop the event loop
            if is_our_end(error):
                raise
            if not self._entered.is_set():
                raise self._failure("at its start", error) from error
            if isinstance(error, Exception):
                raise
            if isinstance(error, SystemExit):
                raise RuntimeError("the lifespan called sys.exit()") from error
            raise as_exception(error) from error

    async def _until_leaving(self) -> None:
        """Wait for `leave`, even when cancelled: running jobs still use what the lifespan has opened."""
        cancelled: asyncio.CancelledError | None = None
        while not self._leaving.is_set():
            try:
                await self._leaving.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self.ended_early.set()
        if cancelled is not None:
            raise cancelled


@asynccontextmanager
async def entered(app: App) -> AsyncIterator[App]:
    """The app with its lifespan entered, for the length of an `async with`."""
    run = EnteredApp(app)
    whole = await run.enter()
    try:
        yield whole
    finally:
        await run.leave()
    if run.error is not None:
        raise run.error


async def _enter(app: App, stack: AsyncExitStack) -> App:
    """Enter the lifespan of an app, and those of the apps that it yields."""
    if app.lifespan is None:
        return app
    yielded = await stack.enter_async_context(open_lifespan(app.lifespan, app))
    extensions, apps = _sorted(yielded)
    return app._with(extensions, [await _enter(each, stack) for each in apps])


def _sorted(yielded: Any) -> tuple[Extensions, list[App]]:
    """What a lifespan yielded, as extensions and apps: one object, a list or mapping of them, or nothing."""
    if yielded is None:
        return Extensions(), []
    if type(yielded) is dict:
        return Extensions(yielded), []
    # Only plain containers: a settings object or a named tuple is one object, even if it can be iterated.
    objects = list(yielded) if type(yielded) in (list, tuple, set, frozenset) else [yielded]
    apps = [each for each in objects if isinstance(each, App)]
    return Extensions([each for each in objects if not isinstance(each, App)]), apps
