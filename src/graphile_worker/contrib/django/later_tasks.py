"""LaterTasks: finds tasks of Django's framework in modules that the worker has not imported.

A project may define tasks anywhere, and enqueue them from a web process that has imported their module. The
worker looks at the names of tasks in the database, at its start and once a minute, and imports those modules
of installed applications that may have them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import invalidate_caches
from typing import cast

from ...clock import SystemClock
from ...db.errors import explained
from ...errors import WorkerStoppedError
from ...hooks import Hooks, WorkerContext
from ...queries.names import known_task_names
from ...recovery.periodic import Periodic
from ...tasks.task import AnyTask
from ...worker.pool import WorkerPool

INTERVAL = 60.0  # seconds

logger = logging.getLogger("graphile_worker.django")


class LaterTasks:
    """A plugin. `tasks` returns what the worker runs, of all tasks that are defined at the moment."""

    def __init__(self, tasks: Callable[[], Iterable[AnyTask]]) -> None:
        self._tasks = tasks
        self._left_alone: set[str] = set()
        self._reported: set[str] = set()
        self._pool: WorkerPool | None = None
        self._loop: Periodic | None = None

    def install(self, hooks: Hooks) -> None:
        """Nothing: it only runs beside the worker."""

    async def start(self, worker: WorkerContext) -> None:
        """Search once, and go on while the worker runs."""
        self._pool = cast(WorkerPool, worker.pool)
        self._schema = worker.options.schema_name
        try:
            await self._search()
        except Exception as error:  # the worker reports a database that is away
            logger.debug("could not search for tasks: %s", explained(error))
        if not self._pool.once:
            self._loop = Periodic("search for tasks", self._look, SystemClock(), first_after=INTERVAL)
            self._loop.start()

    async def stop(self) -> None:
        """End the search."""
        if self._loop is not None:
            await self._loop.stop()

    async def _look(self) -> float:
        with suppress(WorkerStoppedError):  # the pool ends before its plugins
            await self._search()
        return INTERVAL

    async def _search(self) -> None:
        pool = self._pool
        if pool is None:
            return
        names = await pool.run_statement(lambda connection: known_task_names(connection, self._schema))
        known = {*pool.task_identifiers, *self._left_alone}
        unknown = sorted(name for name in names - known if "." in name)
        if unknown and (found := await asyncio.to_thread(self._import, unknown, known)):
            logger.info("found further tasks: %s", ", ".join(found))
            await pool.add_tasks(found)

    def _import(self, names: list[str], known: set[str]) -> dict[str, AnyTask]:
        from .tasks import find_task

        invalidate_caches()
        found = []
        for name in names:
            try:
                if find_task(name) is not None:
                    found.append(name)
                    continue
                self._left_alone.add(name)
                logger.info("jobs of %r are left to other workers: it is no task of this project", name)
            except ImportError as error:  # the module may be deployed later
                if name not in self._reported:
                    self._reported.add(name)
                    logger.info("jobs of %r are left to other workers: %s", name, error)
            except Exception:
                self._left_alone.add(name)
                logger.exception("the module of the task %r cannot be imported", name)
        tasks = {task.identifier: task for task in self._tasks()}
        self._left_alone.update(set(found) - tasks.keys())  # of queues or backends of other workers
        return {name: task for name, task in tasks.items() if name not in known}
