"""SchemaWatch: notices when the schema is migrated, or dropped and installed again, under a worker."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

from ...clock import Clock
from ...db.retry import Backoff, is_retryable
from ...errors import SchemaTooNewError
from ...migrate.refusals import check_not_newer
from ...migrate.state import SchemaState
from ...schema_name import SchemaName
from ..background import BackgroundTasks

MIN_INTERVAL = 1.0  # seconds between two checks, no matter how many migrations are announced

logger = logging.getLogger("graphile_worker.worker")


class SchemaWatch:
    """Compares the schema with what it was at the last check, whenever a change is announced or suspected."""

    def __init__(
        self,
        schema: SchemaName,
        read_state: Callable[[], Awaitable[SchemaState]],
        clock: Clock,
        background: BackgroundTasks,
        *,
        on_changed: Callable[[], None],
        on_too_new: Callable[[SchemaTooNewError], None],
    ) -> None:
        """`on_changed`: task ids and locked jobs may be stale; `on_too_new`: the worker must stop."""
        self._schema = schema
        self._read_state = read_state
        self._clock = clock
        self._background = background
        self._on_changed = on_changed
        self._on_too_new = on_too_new
        self._last_state: tuple[int | None, ...] | None = None
        self._checked_at = self._announced_at = -math.inf
        self._is_suspected = False
        self._is_checking = False

    def change_announced(self) -> None:
        """A notification announced a migration.

        Any role can send one, and for any schema, so only our own ledger stops the worker. Until it is read,
        nothing known about the schema is used, because it may have been dropped and installed again. The rate
        is limited, so that a flood of notifications cannot block the worker.
        """
        now = self._clock.monotonic()
        if now >= self._announced_at + MIN_INTERVAL:
            self._announced_at = now
            self._on_changed()
        self.check()

    def check(self) -> None:
        """Check in the background; a call during a check leads to another one."""
        self._is_suspected = True
        if not self._is_checking:
            self._is_checking = True
            self._background.start(self._check_until_certain(), "schema watch")

    async def _check_until_certain(self) -> None:
        backoff = Backoff()
        try:
            while self._is_suspected:
                wait = self._checked_at + MIN_INTERVAL - self._clock.monotonic()
                if wait > 0:
                    await self._clock.sleep(wait)
                self._is_suspected = False
                self._checked_at = self._clock.monotonic()
                try:
                    self._compare(await self._read_state())
                    backoff.reset()
                except SchemaTooNewError as error:
                    self._on_too_new(error)
                except Exception as error:
                    logger.debug("could not read the schema's revision: %s", error)
                    if is_retryable(error):
                        self._is_suspected = True
                        await self._clock.sleep(backoff.next_delay(error))
        finally:
            self._is_checking = False

    def _compare(self, state: SchemaState) -> None:
        now = (state.jobs_table, state.revision, state.breaking_revision)
        before, self._last_state = self._last_state, now
        if now == before:
            return
        check_not_newer(state, self._schema)
        if before is not None:
            self._on_changed()
