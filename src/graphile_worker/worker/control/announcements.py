"""What a pool does about notifications: SchemaWatch about changes of the schema, Announcements about all.

SchemaWatch notices when the schema is migrated, or dropped and installed again, under a worker.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable

from ...database.connections.connection import Connection
from ...database.connections.retry import Backoff, is_retryable
from ...database.migrations.refusals import check_not_newer
from ...database.migrations.state import SchemaState, read_state
from ...errors import SchemaTooNewError
from ..context import BackgroundTasks, PoolContext
from ..lanes import Lanes
from ..session.session import Sessions
from .watch import ControlWatch

MIN_INTERVAL = 1.0  # seconds between two checks, no matter how many migrations are announced

logger = logging.getLogger("graphile_worker.worker")


class SchemaWatch:
    """Compares the schema with what it was at the last check, whenever a change is announced or suspected."""

    def __init__(self, context: PoolContext, sessions: Sessions, background: BackgroundTasks) -> None:
        self._schema = context.schema
        self._clock = context.clock
        self._owner = context.owner
        self._sessions = sessions
        self._background = background
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
            self._owner.schema_changed()
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
                    self._compare(await self._sessions.run(self._read_state))
                    backoff.reset()
                except SchemaTooNewError as error:
                    self._owner.die(error, "migrate")
                except Exception as error:
                    logger.debug("could not read the schema's revision: %s", error)
                    if is_retryable(error):
                        self._is_suspected = True
                        await self._clock.sleep(backoff.next_delay(error))
        finally:
            self._is_checking = False

    def _read_state(self, connection: Connection) -> Awaitable[SchemaState]:
        return read_state(connection, self._schema)

    def _compare(self, state: SchemaState) -> None:
        now = (state.jobs_table, state.revision, state.breaking_revision)
        before, self._last_state = self._last_state, now
        if now == before:
            return
        check_not_newer(state, self._schema)
        if before is not None:
            self._owner.schema_changed()


class Announcements:
    """Implements the listener's `NotificationHandler`: tells each part of the pool what concerns it."""

    def __init__(self, lanes: Lanes, schema_watch: SchemaWatch, control: ControlWatch | None) -> None:
        self._lanes = lanes
        self._schema_watch = schema_watch
        self._control = control
        self.jobs_added = lanes.pulse
        self.jobs_freed = lanes.jobs_freed
        self.limits_changed = lanes.limits_changed

    def listening(self) -> None:
        """Notifications sent before now were missed, about jobs as well as migrations."""
        self._lanes.jobs_freed()
        self._lanes.pulse()
        self._lanes.limits_changed()
        self._schema_watch.check()
        self.control_changed()

    def control_changed(self) -> None:
        """An operator asks for something."""
        if self._control is not None:
            self._control.changed()

    def migration_announced(self, number: int, breaking: bool) -> None:
        """Only our own ledger tells what has really changed."""
        self._schema_watch.change_announced()
