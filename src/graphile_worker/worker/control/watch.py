"""ControlWatch: learns what operators ask of a running pool: which tasks are paused, which jobs to cancel.

The state is in tables. A notification on the channel `worker:py` only says that it has changed. The watch
looks every few seconds where LISTEN does not work, as behind a pooler, and while something is asked for.
Otherwise it looks seldom: the listener notices a dead connection, and a new one leads to a look.

`SchemaWatch` notices when the schema is migrated, or dropped and installed again, under a worker.
`Announcements` are what a pool does about notifications of all kinds.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from contextlib import suppress

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.connections.retry import Backoff, is_retryable
from ...database.migrations.refusals import check_not_newer
from ...database.migrations.state import SchemaState, read_state
from ...database.statements.control import NOTHING_ASKED, ControlState
from ...errors import SchemaTooNewError
from ...errors.text import message_of
from ..context import BackgroundTasks, FailureLog, PoolContext
from ..fetch.wide_queues import WideQueues
from ..lanes import Lanes
from ..session import Sessions
from .commands import Cancellations, OperatorCommands, PauseWatch

LOOK_INTERVAL = 5.0  # seconds
IDLE_INTERVAL = 30.0  # seconds, while nothing is asked for and LISTEN works
LOOK_AGAIN_AFTER = 0.2  # seconds
REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)

logger = logging.getLogger("graphile_worker.worker")


class ControlWatch:
    """Reads the state before the first fetch, after each notification, and at intervals."""

    def __init__(
        self,
        context: PoolContext,
        background: BackgroundTasks,
        pauses: PauseWatch,
        cancellations: Cancellations,
        commands: OperatorCommands,
        wide_queues: WideQueues,
    ) -> None:
        self._owner = context.owner
        self._background = background
        self._pauses = pauses
        self._cancellations = cancellations
        self._commands = commands
        self._wide_queues = wide_queues
        self._state = NOTHING_ASKED
        self._changed = asyncio.Event()
        self._failures = FailureLog(
            context,
            "pauses and cancelled jobs cannot be read: %s; retrying",
            "pauses and cancelled jobs are read again",
        )
        self.is_on = True
        """False if this role may not read the tables."""

    def changed(self) -> None:
        """Look now: a notification says that the state has changed."""
        self._changed.set()

    async def look(self) -> None:
        """Read the state and apply it; call it before the first fetch."""
        if not self.is_on:
            return
        try:
            state = await self._read_state()
        except Exception as error:
            if sqlstate_of(error) not in REFUSED:
                raise
            self.is_on = False
            logger.warning(
                "this worker cannot see pauses and cancelled jobs (%s); to obey them, run workers as the "
                "owner of the schema",
                message_of(error),
            )
            return
        last, self._state = self._state, state
        if state is not NOTHING_ASKED or last is not NOTHING_ASKED:
            self._apply(state)

    async def _read_state(self) -> ControlState:
        state = await self._commands.read()
        if state.has_ended_pauses and await self._pauses.end_due_pauses():
            state = await self._commands.read()
        return state

    def _apply(self, state: ControlState) -> None:
        """Do what operators ask for; called while they ask for something, and once when that is over."""
        if self._cancellations.end(state.cancelled):
            asyncio.get_running_loop().call_later(LOOK_AGAIN_AFTER, self.changed)
        if state.has_leftover_cancels:
            self._background.start(self._cancellations.end_leftovers(), "cancelled jobs")
        self._pauses.apply(state)
        self._commands.apply(state)
        self._wide_queues.apply(state.has_wide_queues)

    async def run(self) -> None:
        """Look until cancelled."""
        while self.is_on:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait()):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.look()
            except Exception as error:
                self._failures.failed(error)
            else:
                self._failures.succeeded()

    def _wait(self) -> float:
        """Seconds until the next look."""
        if self._state is NOTHING_ASKED and self._owner.is_listening and not self._failures.is_failing:
            return IDLE_INTERVAL
        changes_in = self._state.changes_in
        return LOOK_INTERVAL if changes_in is None else min(LOOK_INTERVAL, max(0.0, changes_in))


MIN_INTERVAL = 1.0  # seconds between two checks, no matter how many migrations are announced


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
    """What a pool does about notifications: tells each part what concerns it."""

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
