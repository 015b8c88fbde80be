"""What the parts of a pool share.

PoolContext: what each of them knows of the pool. Owner and JobTakers: the pool and its lanes, for the
packages below them. FailureLog: the log lines of what may fail again and again. BackgroundTasks: asyncio
tasks that run until the pool ends; none of them dies unnoticed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from ..database.connections.errors import explained
from ..database.statements.write_plan import Continuation
from ..hooks import Events
from ..hooks.faults import Supervised, Work, logged
from ..values.clock import Clock
from ..values.job import Job
from ..values.options import WorkerOptions
from ..values.outcome import Finished
from ..values.schema_name import SchemaName
from ..values.text import duration

REFRESH_TASKS = 60.0  # seconds; another process may have deleted a task's row and added it again
REMIND_AFTER = 60.0  # seconds; the pause doubles with each reminder
LONGEST_PAUSE = 3600.0

logger = logging.getLogger("graphile_worker.worker")


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
    """`Lanes`, as the packages below see them: they take jobs for the slots."""

    @property
    def running(self) -> list[Job]: ...
    def has_free_slots(self, tasks: Mapping[int, str]) -> bool: ...
    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]: ...
    def pulse(self) -> None: ...
    def jobs_freed(self) -> None: ...
    def jobs_written(self, finished: Sequence[Finished]) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def terms(self) -> Continuation | None: ...
    def adopt(self, jobs: Sequence[Job]) -> None: ...
    def follow(self, job: Job) -> None: ...
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


class FailureLog:
    """The log lines of one operation.

    One line at the first failure, a reminder now and then, and one at the first success: enough to tell
    what is wrong and since when, and few enough that a server that is down for a night does not fill a
    disk.
    """

    def __init__(
        self, context: PoolContext, failing: str, recovered: str, *, level: int = logging.WARNING
    ) -> None:
        """`failing`: the line for a failure, with `%s` for the error; `recovered`: the one for success."""
        self._clock = context.clock
        self._schema = context.schema
        self._failing = failing
        self._recovered = recovered
        self._level = level
        self._since: float | None = None
        self._attempts = 0
        self._remind_after = REMIND_AFTER

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._since is not None

    def failed(self, error: BaseException) -> None:
        """Record a failed attempt."""
        now = self._clock.monotonic()
        self._attempts += 1
        if self._since is None:
            self._since, self._remind_after = now, REMIND_AFTER
            logger.log(self._level, self._failing, explained(error, self._schema))
        elif now - self._since >= self._remind_after:
            self._remind_after += min(self._remind_after, LONGEST_PAUSE)
            why = explained(error, self._schema)
            logger.log(
                self._level,
                self._failing,
                f"{why} (for {duration(now - self._since)}, {self._attempts} attempts)",
            )

    def succeeded(self) -> None:
        """Record a successful attempt."""
        if self._since is not None:
            logger.info("%s (after %s)", self._recovered, duration(self._clock.monotonic() - self._since))
            self._since, self._attempts = None, 0


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


async def sleep_unless(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Sleep for so long, or until the event is set."""
    timer = asyncio.ensure_future(clock.sleep(seconds))
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((timer, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        waiting.cancel()
