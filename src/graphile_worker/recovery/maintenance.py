"""Maintenance tasks: regular work that one pool does for all pools of a database, such as folding statistics.

The pool that did it last goes on; the others ask now and then, and take over when it is late. So an idle pool
sends next to nothing, and it does not matter which pool dies. A maintenance task must do no harm if it is
done twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ..database.connections.connection import Connection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import explained, sqlstate_of
from ..database.connections.retry import is_retryable
from ..database.sql import load
from ..values.clock import Clock
from ..values.schema_name import SchemaName
from .registry.workers import UNAVAILABLE
from .sweep import StatementRunner

LATE = 30.0  # seconds after which other pools take over
LONGEST_WAIT = 10.0  # seconds for a pool with its own tasks, whose intervals may become shorter
MOST_STEPS = 20  # of one maintenance task in a row
SHORTEST_WAIT = 0.5  # seconds between two claims
RETRY = 10.0  # seconds after a claim that failed
OFF_FOR = 3600.0  # seconds, if the table is missing or must not be used

logger = logging.getLogger("graphile_worker.recovery")


class MaintenanceTask(Protocol):
    """One kind of regular work."""

    @property
    def name(self) -> str:
        """Its key in the database, and what log lines call it."""
        ...

    @property
    def interval(self) -> float:
        """Seconds from one time to the next; may change from call to call."""
        ...

    async def run(self, connection: Connection, /) -> bool:
        """Do a step that takes well below a second; return whether there is more to do at once."""
        ...


class Maintenance:
    """The maintenance tasks of one pool, whether they are its turn or not."""

    def __init__(
        self,
        tasks: Sequence[MaintenanceTask],
        run: StatementRunner,
        schema: SchemaName,
        clock: Clock,
        *,
        pool_id: str,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """`run` is called for each step. `is_alive`: whether this pool's own heartbeats arrive."""
        self._tasks = {task.name: task for task in tasks}
        self._run = run
        self._schema = schema
        self._clock = clock
        self._pool_id = pool_id
        self._is_alive = is_alive
        self._due = dict.fromkeys(self._tasks, 0.0)
        self._done: dict[str, float] = {}  # when this pool did what is its turn
        self._failing: set[str] = set()

    async def run_due(self) -> float:
        """Do what is due and this pool's turn; return the seconds until something may be due again."""
        now = self._clock.monotonic()
        due = [task for name, task in self._tasks.items() if self._due_at(name) <= now]
        if due and self._is_alive():
            try:
                claims = await self._run(
                    lambda connection: claim_maintenance(connection, self._schema, self._pool_id, due)
                )
            except Exception as error:
                logger.debug("could not claim maintenance tasks: %s", explained(error))
                return OFF_FOR if sqlstate_of(error) in UNAVAILABLE else RETRY
            for name, (is_ours, wait) in claims.items():
                self._due[name] = now + max(wait, SHORTEST_WAIT)
                self._done.pop(name, None)
                if is_ours:
                    self._done[name] = now
                    await self._do(self._tasks[name])
        wait = min(map(self._due_at, self._tasks)) - self._clock.monotonic()
        return max(min(wait, LONGEST_WAIT) if self._done else wait, SHORTEST_WAIT)

    def _due_at(self, name: str) -> float:
        done = self._done.get(name)
        return self._due[name] if done is None else done + self._tasks[name].interval

    async def _do(self, task: MaintenanceTask) -> None:
        """All steps of a task. A failure is logged once until it works again; it must not stop the others."""
        try:
            for _ in range(MOST_STEPS):
                if not await self._run(task.run):
                    break
        except Exception as error:
            is_about_connection = sqlstate_of(error) is None or is_retryable(error)
            level = logging.DEBUG if is_about_connection or task.name in self._failing else logging.WARNING
            logger.log(level, "the maintenance task %r failed: %s; retrying", task.name, explained(error))
            if not is_about_connection:
                self._failing.add(task.name)
        else:
            self._failing.discard(task.name)


async def claim_maintenance(
    connection: Connection, schema: SchemaName, pool_id: str, tasks: Sequence[MaintenanceTask]
) -> dict[str, tuple[bool, float]]:
    """By name: whether it is this pool's turn, and the seconds until it may be the next time."""
    teach_arrays(connection)
    rows = await connection.fetch(
        load("recovery/claim_maintenance", schema),
        pool_id,
        [task.name for task in tasks],
        [task.interval for task in tasks],
        LATE,
    )
    return {row["name"]: (row["is_ours"], row["wait"]) for row in rows}
