"""What the parts of a pool share.

PoolContext: what each of them knows of the pool. Owner and JobTakers: the pool and its lanes, for the rooms
below them. BackgroundTasks: asyncio tasks that run until the pool ends; none of them dies unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from ..database.statements.write_plan import Continuation
from ..hooks import Events
from ..hooks.faults import Supervised, Work, logged
from ..values.clock import Clock
from ..values.job import Job
from ..values.options import WorkerOptions
from ..values.outcome import Finished
from ..values.schema_name import SchemaName

REFRESH_TASKS = 60.0  # seconds; another process may have deleted a task's row and added it again


class Owner(Protocol):
    """`WorkerPool`, as its parts see it: they report what concerns more than themselves."""

    @property
    def is_stopping(self) -> bool: ...
    @property
    def sees_cancelled_jobs(self) -> bool: ...
    @property
    def is_listening(self) -> bool: ...
    def begin_shutdown(self, message: str) -> None: ...
    def set_concurrency(self, lane: str, concurrency: int) -> None: ...
    def die(self, error: BaseException, action: str) -> None: ...
    def fetch_failed(self, error: BaseException) -> None: ...
    def write_failed(self, error: BaseException) -> None: ...
    def jobs_taken(self, jobs: list[Job]) -> None: ...
    def schema_changed(self) -> None: ...


class JobTakers(Protocol):
    """`Lanes`, as the rooms below see them: they take jobs for the slots."""

    @property
    def running(self) -> list[Job]: ...
    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]: ...
    def pulse(self) -> None: ...
    def jobs_freed(self) -> None: ...
    def jobs_written(self, finished: Sequence[Finished]) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def terms(self) -> Continuation | None: ...
    def adopt(self, jobs: Sequence[Job]) -> None: ...
    def cap_priority(self, above: int) -> None: ...
    def queues_freed(self, above: int) -> None: ...


class PoolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What every part of one pool is given."""

    pool_id: str
    options: WorkerOptions
    events: Events
    clock: Clock
    owner: Owner

    @property
    def schema(self) -> SchemaName:
        return self.options.schema_name

    def now(self) -> datetime | None:
        """The time for statements: the worker's own, or None for the server's."""
        return self.clock.now() if self.options.use_local_time else None


class BackgroundTasks:
    """Starts tasks and cancels those that are left at the end."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._tasks: list[asyncio.Task[None]] = []
        self._kept: list[Supervised] = []

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run the coroutine once, in its own task; an error is logged."""
        task = asyncio.get_running_loop().create_task(logged(coroutine, name), name=f"graphile-worker {name}")
        task.add_done_callback(lambda _: coroutine.close())  # it never began if the task was cancelled before
        self._tasks = [*(each for each in self._tasks if not each.done()), task]

    def keep(self, work: Work, name: str) -> None:
        """Run this in its own task, and restart it whenever it ends by anything but a return.

        The pool dies if it keeps dying.
        """
        owner = self._owner
        kept = Supervised(
            work, name, on_fatal=lambda error: owner.die(error, "run"), is_over=lambda: owner.is_stopping
        )
        self._kept = [*(each for each in self._kept if not each.is_done), kept]
        kept.start()

    async def cancel(self) -> None:
        """Cancel every task but the caller's, and wait until they have ended."""
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        kept = [each for each in self._kept if not each.is_current()]
        await asyncio.gather(*others, *(each.stop() for each in kept), return_exceptions=True)


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
