"""UnknownTasks: warns about jobs that wait for a task which no running worker has.

Every worker looks from time to time, soon after its start and then ever less often. Of the workers on one
host only the oldest warns, and only once an hour about the same task.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection

from ...database.statements.inspection import ReadyTask, ready_tasks
from ...database.statements.pauses import pauses_if_readable
from ...values.clock import Clock, uptime
from ...values.options import WorkerOptions
from ...values.text import did_you_mean, similar_names
from ..registry.workers import RunningTasks, running_tasks
from ..sweep import StatementRunner
from ..sweeper import Periodic

FIRST_DELAY = 10.0  # seconds after the start; then twice as long each time
LONGEST_DELAY = 300.0
JITTER = 0.2  # of the delay, either way
SHORTEST_WAIT = 10.0  # seconds that a job may be ready while its worker is restarted
WARN_AGAIN_AFTER = 3600.0

logger = logging.getLogger("graphile_worker.worker")


class UnknownTasks:
    """The search of one worker."""

    def __init__(
        self,
        run: StatementRunner,
        options: WorkerOptions,
        clock: Clock,
        *,
        pool_id: str,
        tasks: Collection[str],
        share: Callable[[], float] = random.random,
    ) -> None:
        self._run = run
        self._options = options
        self._clock = clock
        self._pool_id = pool_id
        self._tasks = frozenset(tasks)
        self._share = share
        self._delay = FIRST_DELAY
        self._warned_at: dict[str, float] = {}
        self.loop = Periodic("search for unknown tasks", self._look, clock, first_after=self._jittered())

    async def _look(self) -> float:
        try:
            await self._search()
        except Exception as error:  # other parts of the worker report a server that is away
            logger.debug("could not search for unknown tasks: %s", error)
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        return self._jittered()

    async def _search(self) -> None:
        schema = self._options.schema_name
        now = self._clock.now() if self._options.use_local_time else None
        ready = await self._run(lambda connection: ready_tasks(connection, schema, now=now))
        unknown = [
            task
            for task in ready
            if task.task_identifier not in self._tasks and task.age >= SHORTEST_WAIT and self._may_warn(task)
        ]
        if unknown:
            running = await self._run(lambda connection: running_tasks(connection, schema))
            if self._is_oldest(running):
                paused = await self._run(lambda connection: pauses_if_readable(connection, schema))
                if any(pause.name is None for pause in paused):  # everything
                    return
                known = running.tasks.union(pause.task_identifier or "" for pause in paused)
                self._warn([task for task in unknown if task.task_identifier not in known], running)

    def _may_warn(self, task: ReadyTask) -> bool:
        warned_at = self._warned_at.get(task.task_identifier)
        return warned_at is None or uptime() - warned_at >= WARN_AGAIN_AFTER

    def _is_oldest(self, running: RunningTasks) -> bool:
        """Whether this is the oldest pool on its host; they are listed by age."""
        hosts = {pool.id: pool.host for pool in running.pools}
        host = hosts.get(self._pool_id)
        return host is not None and next(id_ for id_, of in hosts.items() if of == host) == self._pool_id

    def _warn(self, unknown: list[ReadyTask], running: RunningTasks) -> None:
        import shlex  # most workers never need it

        for task in unknown:
            name = task.task_identifier
            self._warned_at[name] = uptime()
            question = did_you_mean(similar_names(name, running.tasks)) or "."
            logger.warning(
                "%s for the task %r, which %s has%s To list them: graphile-worker list --task %s",
                task.waiting,
                name,
                running.no_worker,
                question,
                shlex.quote(name),
            )

    def _jittered(self) -> float:
        return self._delay * (1 - JITTER + 2 * JITTER * self._share())
